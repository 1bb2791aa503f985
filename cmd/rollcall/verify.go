package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/list"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
)

// pollLocal is how often the node in this process is asked: often enough for a live bar, and a tenth of what one key
// may request.
const pollLocal = 500 * time.Millisecond

type verifyFlags struct {
	lab, local, json bool
	spreadsheet      bool
	quiet            bool
	api, key, config string
	again            string
	out              term.OutFile
	list             list.Options
	mend, join       bool
}

func newVerify(e environment) *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Verify the addresses of a list and print the results",
		Long: "Verify the addresses of a list and print the results as CSV, with progress and a closing table on " +
			"standard\nerror. A list is CSV with any separator, in UTF-8, UTF-16 or Latin-1, or a workbook (XLSX); - is " +
			"standard\ninput. Of several columns the one with the addresses is sent; --join puts results beside the rows. " +
			"Before\nanything is sent each row is checked, as `rollcall lint` does.\n\n" +
			"A service does the work when --api or ROLLCALL_API names one. Otherwise, and with --local, this process\ndoes " +
			"it, which needs the open Internet with outgoing port 25; with --lab it asks simulated receivers instead.\n" +
			"The service charges the same content once for a workspace: a repeat, from any folder, goes on with the first\n" +
			"verification or gives its results. --again NAME verifies it anew.\n\n" +
			"Stopped half-way (Ctrl-C), it ends with exit code 130, and the same command goes on where it stopped. At " +
			"a\nservice only this program stops: the service goes on, and charges. `rollcall cancel ID` ends that.",
		Example: "  rollcall verify list.csv --api https://rollcall.example\n" +
			"  rollcall verify customers.xlsx --column Email --join --out results.xlsx\n" +
			"  rollcall verify a.csv b.csv --out results/",
	}
	c.Flags().BoolVar(&f.lab, "lab", false, "ask simulated receivers on this machine instead of real ones")
	c.Flags().BoolVar(&f.local, "local", false, "ask from this machine, also when ROLLCALL_API names a service")
	addOutFlags(c, &f.out)
	c.Flags().Lookup("out").Usage = "write the results to this `FILE` instead of standard output, a workbook if it ends " +
		"in .xlsx;\nof several files: a folder"
	c.Flags().StringVar(&f.api, "api", "", "the URL of a running service; also ROLLCALL_API")
	c.Flags().StringVar(&f.key, "key", "", "the API key; better ROLLCALL_KEY, which other users can't see")
	addAgainFlag(c, &f.again)
	c.Flags().StringVar(&f.config, "config", "", "from this machine: a configuration file, for [dns], [smtp], "+
		"[retry], [throttle]")
	addListFlags(c, &f.list)
	c.Flags().BoolVar(&f.mend, "fix", false, "correct rows where that is certain, and leave out other rows with a defect")
	c.Flags().BoolVar(&f.join, "join", false, "print each row of the list with its result, not each address")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only results and errors")
	addFormFlags(c, &f)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.chooseService(e); err != nil {
			return err
		}
		loaded, err := config.Load(f.config, e)
		if err != nil {
			return err
		}
		outs, err := f.outFiles(args)
		if err != nil {
			return err
		}
		for i, name := range args {
			one := f
			one.out = outs[i]
			if err := verifyFile(c, one, name, loaded); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// chooseService decides whether a service or this machine does the work, and refuses flags that don't go together.
func (f *verifyFlags) chooseService(e environment) error {
	if f.api == "" && !f.local && !f.lab && f.config == "" {
		f.api = e.value("ROLLCALL_API")
	}
	if f.api == "" && f.key != "" {
		return term.UsageError("--key needs --api URL")
	}
	f.key = cmp.Or(f.key, e.value("ROLLCALL_KEY"))
	return f.check()
}

// outFiles returns the output file of each input; several inputs go into a folder.
func (f *verifyFlags) outFiles(files []string) ([]term.OutFile, error) {
	if len(files) == 1 {
		return []term.OutFile{f.out}, nil
	}
	if info, err := os.Stat(f.out.Name); err != nil || !info.IsDir() {
		return nil, term.UsageError("several files need --out with a folder that exists, for the results of each")
	}
	outs, seen := make([]term.OutFile, len(files)), map[string]bool{}
	for i, name := range files {
		base := filepath.Base(name)
		out := filepath.Join(f.out.Name, strings.TrimSuffix(base, filepath.Ext(base))+".results.csv")
		if outs[i] = (term.OutFile{Name: out, Force: f.out.Force}); seen[out] {
			return nil, term.UsageError(fmt.Sprintf("two files would have their results in %s: verify one alone", out))
		}
		seen[out] = true
	}
	return outs, nil
}

func verifyFile(c *cobra.Command, f verifyFlags, name string, loaded config.Config) error {
	told := c.ErrOrStderr()
	if f.quiet {
		told = io.Discard
	}
	in, err := openAny(name, c.InOrStdin())
	if err != nil {
		return err
	}
	defer in.Close()
	if err := f.out.Check(in.File, c.OutOrStdout()); err != nil {
		return err
	}
	r := &verifyRun{flags: f, view: newProgressView(told), stdout: c.OutOrStdout()}
	if r.list, err = in.openList(f.list); err != nil {
		return err
	}
	if r.input, err = in.makeSendable(r.list, f.mend, r.view.notice); err != nil {
		return err
	}
	defer r.input.Close()
	if f.api != "" {
		r.client = client.NewAPI(f.api, f.key, r.view.notice)
		err = r.run(c.Context())
	} else {
		err = verifyLocal(c.Context(), r, loaded)
	}
	r.view.stop()
	return r.left(err)
}

func addAgainFlag(c *cobra.Command, again *string) {
	c.Flags().StringVar(again, "again", "", "verify and charge again content that was sent before. Choose any `NAME`,\n"+
		"such as a date: the same NAME gives the same verification")
}

func addFormFlags(c *cobra.Command, f *verifyFlags) {
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object for programs")
	c.Flags().BoolVar(&f.spreadsheet, "spreadsheet", false, "put ' before cells that a spreadsheet would run as a "+
		"formula (= + - @, tab, CR)")
}

func (f verifyFlags) checkForm() error {
	switch {
	case f.spreadsheet && f.json && f.out.Name == "":
		return term.UsageError("--spreadsheet and --json don't go together: JSON has no formulas; give --out for the results")
	case f.join && f.json && f.out.Name == "":
		return term.UsageError("--join and --json don't go together: give --out for the rows")
	}
	return nil
}

func (f verifyFlags) check() error {
	switch {
	case f.again != "" && f.api == "":
		return term.UsageError("--again needs --api URL: on this machine a new run starts once the last one has ended")
	case f.api != "" && f.lab:
		return term.UsageError("--lab and --api don't go together: the service has its own receivers")
	case f.api != "" && f.local:
		return term.UsageError("--local and --api don't go together: a service asks from its own machines")
	case f.lab && f.local:
		return term.UsageError("--lab and --local don't go together: the one asks simulated receivers, the other real ones")
	case f.api != "" && f.config != "":
		return term.UsageError("--config and --api don't go together: the service has its own configuration")
	case f.api != "" && f.key == "":
		return term.UsageError("the API key is missing: set ROLLCALL_KEY or give --key")
	case f.api != "":
		if err := checkBase("--api", f.api, apiDefault); err != nil {
			return err
		}
	}
	return f.checkForm()
}

type verifyRun struct {
	flags  verifyFlags
	input  *input     // what is sent
	list   *list.List // the list it was made from; nil without --join
	view   *progressView
	stdout io.Writer
	client *client.API
	memory *memory
	poll   time.Duration // longest wait between two requests; 0: as the service says

	id    string // of the verification, once known
	known bool   // it existed before this run, and that was not shown yet

	repeats time.Time   // when the verification was made, if it ended before this run; else zero
	stage   verifyStage // how far it is
}

func (r *verifyRun) run(ctx context.Context) error {
	detail, err := r.finish(ctx)
	if err != nil {
		return err
	}
	summary, err := r.deliver(ctx, detail)
	if err != nil {
		return r.expired(err)
	}
	if err := r.forget(); err != nil {
		return err
	}
	err = r.close(summary)
	if err == nil && detail.Status == string(ledger.Cancelled) {
		err = fmt.Errorf("%s: verification was cancelled; partial results follow%s", r.input.name,
			r.anew("to have the rest checked too"))
	}
	return err
}

// finish creates or recovers the verification, uploads the file, and waits for the end. A failed verification is an
// error.
func (r *verifyRun) finish(ctx context.Context) (d api.Detail, err error) {
	identity, err := r.identity()
	if err != nil {
		return d, err
	}
	made, fresh, err := r.client.CreateFresh(ctx, identity, r.input.size, filepath.Base(r.input.name))
	if err != nil {
		return d, err
	}
	r.id, r.stage, r.known = made.ID, stageCreated, !fresh && r.remote()
	if made.Upload != nil {
		if made.Upload.Method != "" && made.Upload.Method != http.MethodPut {
			return d, fmt.Errorf("the service wants the upload by %s, which this program can't", made.Upload.Method)
		}
		r.view.phase("uploading")
		sent := func(n int64) { r.view.uploaded(n, r.input.size) }
		if err := r.client.Upload(ctx, made.Upload.URL, r.input, r.input.size, sent); err != nil {
			return d, err
		}
	}
	r.stage = stageUploaded
	if d, err = r.wait(ctx, made.ID); err != nil {
		return d, err
	}
	if d.Status == string(ledger.Failed) {
		return d, errors.Join(r.failure(d), r.forget())
	}
	return d, nil
}

// remote reports whether a running service does the work, whose credits are real.
func (r *verifyRun) remote() bool { return r.flags.api != "" }

// identity returns the idempotency key. At a service it depends on the content; in this process it is that of the
// last run if that was interrupted.
func (r *verifyRun) identity() (uuid.UUID, error) {
	if r.remote() {
		return r.input.identity(r.flags.again), nil
	}
	return r.memory.identity()
}

// forget makes the next run in this process start a new verification.
func (r *verifyRun) forget() error {
	if r.remote() {
		return nil
	}
	return r.memory.forget()
}

func (r *verifyRun) failure(d api.Detail) error {
	if d.Issue == nil {
		return fmt.Errorf("%s: the verification failed", r.input.name)
	}
	hint := ""
	if !strings.HasPrefix(string(d.Issue.Code), "csv_") { // other content wouldn't help
		hint = r.anew("to have it verified after all")
	}
	return fmt.Errorf("%s: %s (%s)%s", r.input.name, api.IssueText(d.Issue), d.Issue.Code, hint)
}

func (r *verifyRun) wait(ctx context.Context, id string) (api.Detail, error) {
	counted := client.Tally{}
	for {
		d, wait, err := r.client.Detail(ctx, id)
		if err != nil {
			return d, err
		}
		answered := time.Now()
		final := ledger.Status(d.Status).Final()
		if r.tellKnown(d); final {
			r.stage = stageFinal
		}
		settled := d.Progress.Completed + d.Progress.Errors
		if counted.Behind(settled) || final && counted.Sum() != settled {
			if counted, err = r.client.Tally(ctx, id); err != nil {
				return d, r.expired(err)
			}
		}
		r.view.progress(d, counted)
		if final {
			return d, nil
		}
		if r.poll > 0 {
			wait = min(wait, r.poll)
		}
		if err := term.Sleep(ctx, wait-time.Since(answered)); err != nil { // counting a large file takes long
			return d, err
		}
	}
}

// verifyStage is how far a verification is, as far as this program knows.
type verifyStage int

const (
	stageNone     verifyStage = iota // the service has not answered yet
	stageCreated                     // bytes may be missing
	stageUploaded                    // all bytes are durable
	stageFinal
)

// left returns the error of an interrupted run: what the service does without this program, and how to resume.
func (r *verifyRun) left(err error) error {
	stopped := errors.Is(err, context.Canceled)
	if !r.remote() { // the node runs in this process and stops too
		if stopped {
			return errors.New("stopped: run the same command again to go on where it stopped")
		}
		return err
	}
	switch {
	case err == nil:
		return nil
	case stopped && r.stage == stageNone:
		return errors.New("stopped before anything was uploaded: nothing is charged")
	case stopped:
		return errors.New("stopped: " + r.goesOn() + r.wayBack())
	case r.stage == stageCreated || r.stage == stageUploaded:
		return fmt.Errorf("%w\n%s%s", err, r.goesOn(), r.wayBack())
	}
	return err
}

// goesOn says what the service does with the verification when this program has ended.
func (r *verifyRun) goesOn() string {
	switch r.stage {
	case stageCreated:
		return fmt.Sprintf("verification %s waits for the rest of the file; nothing is charged before it is there", r.id)
	case stageFinal:
		return fmt.Sprintf("verification %s is over, and its results are kept", r.id)
	}
	return fmt.Sprintf("the service goes on with verification %s and charges for it", r.id)
}

// wayBack returns how to resume the verification, and how to cancel it.
func (r *verifyRun) wayBack() string {
	text := "\nto come back to it, run the same command again: that charges nothing twice"
	if r.stage != stageFinal {
		text += fmt.Sprintf("\nto end it, run: rollcall cancel %s --api %s", r.id, r.flags.api)
	}
	return text
}

// tellKnown prints, once, that the service knew the content before this run.
func (r *verifyRun) tellKnown(d api.Detail) {
	if !r.known {
		return
	}
	r.known = false
	created := time.Time(d.CreatedAt).UTC().Format("2006-01-02 15:04") + "Z"
	if !ledger.Status(d.Status).Final() {
		r.view.notice(fmt.Sprintf("This content was sent before: going on with verification %s of %s", d.ID, created))
		return
	}
	r.repeats = time.Time(d.CreatedAt)
	text := fmt.Sprintf("This content was sent before, on %s: this is that verification, %s, and nothing is charged",
		created, d.ID)
	// Failed and cancelled verifications are reported as errors that say what to do.
	if d.Status != string(ledger.Failed) && d.Status != string(ledger.Cancelled) {
		text += r.anew("to have it verified and charged anew")
	}
	r.view.notice(text)
}

// anew returns how to verify the same content again, or "" if every run does that.
func (r *verifyRun) anew(what string) string {
	if !r.remote() {
		return ""
	}
	return fmt.Sprintf("\n%s, add --again NAME with any NAME, such as %s", what,
		time.Now().UTC().Format(time.DateOnly))
}

func (r *verifyRun) expired(err error) error {
	if api.HasCode(err, api.ResultsExpired) {
		return fmt.Errorf("%w%s", err, r.anew("to have it verified and charged anew"))
	}
	return err
}

// verifySummary is what verify --json prints, beside the results.
type verifySummary struct {
	ID         string        `json:"id"`
	Status     string        `json:"status"`
	Rows       int64         `json:"rows"`
	Duplicates int64         `json:"duplicates"`
	Total      int64         `json:"total"`
	Cancelled  int64         `json:"cancelled"`
	Outcomes   client.Tally  `json:"outcomes"`
	Credits    creditSummary `json:"credits"`
	Out        *string       `json:"out"`
	took       time.Duration
	repeats    time.Time    // when the verification was made, if this run only read it; zero otherwise
	full       client.Tally // of mailbox_full
}

type creditSummary struct {
	Charged  int64 `json:"charged"`
	Released int64 `json:"released"`
}

type resultView struct {
	Email   string `json:"email"`
	Result  string `json:"result"`
	Message string `json:"message"`
	Checked string `json:"checked_at"`
}

func resultOf(row []string) resultView {
	return resultView{Email: row[0], Result: row[1], Message: row[2], Checked: row[3]}
}

// fullReason is the only reason that two outcomes can have.
var fullReason, _, _ = strings.Cut(smtp.MailboxFull.Message(), " ")

// deliver writes the results to their destination and counts them.
func (r *verifyRun) deliver(ctx context.Context, d api.Detail) (verifySummary, error) {
	s := verifySummary{ID: d.ID, Status: d.Status, Cancelled: d.Progress.Cancelled, Outcomes: client.Tally{},
		full: client.Tally{}, repeats: r.repeats}
	for _, o := range smtp.Outcomes {
		s.Outcomes[o.String()] = 0
	}
	if d.Input != nil {
		s.Rows, s.Duplicates = d.Input.Rows, d.Input.Duplicates
	}
	if d.Progress.Total != nil {
		s.Total = *d.Progress.Total
	}
	if d.CompletedAt != nil {
		s.took = time.Time(*d.CompletedAt).Sub(time.Time(d.CreatedAt))
	}
	r.view.stop()
	var err error
	switch {
	case r.flags.out.Name != "":
		s.Out = &r.flags.out.Name
		err = r.flags.out.Write(func(w io.Writer) error { return r.writeRows(ctx, d.ID, w, &s) })
	case r.flags.json:
		err = r.toJSON(ctx, d.ID, &s)
	default:
		out := bufio.NewWriter(r.stdout)
		err = r.writeRows(ctx, d.ID, out, &s)
		err = errors.Join(err, out.Flush())
	}
	s.Credits = creditSummary{Charged: s.Outcomes.Charged(), Released: s.Outcomes[smtp.Unknown.String()] + s.Cancelled}
	return s, err
}

func (s *verifySummary) count(row []string) error {
	s.Outcomes[row[1]]++
	if reason, _, _ := strings.Cut(row[2], " "); reason == fullReason {
		s.full[row[1]]++
	}
	return nil
}

// writeRows copies the results byte for byte. With --join, --spreadsheet (which keeps cells from running as formulas)
// or the name of a workbook in --out it writes every row itself.
func (r *verifyRun) writeRows(ctx context.Context, id string, out io.Writer, s *verifySummary) error {
	workbook := list.IsWorkbook(r.flags.out.Name)
	if !r.flags.spreadsheet && !r.flags.join && !workbook {
		return r.client.EachResult(ctx, id, out, s.count)
	}
	w, err := list.NewWriter(out, workbook)
	if err != nil {
		return err
	}
	put := w.Put
	if r.flags.spreadsheet && !workbook { // in a workbook each cell has the type text
		put = func(row []string) error {
			guarded := make([]string, len(row))
			for i, cell := range row {
				guarded[i] = asText(cell)
			}
			return w.Put(guarded)
		}
	}
	if r.flags.join {
		err = r.joinRows(ctx, id, s, put)
	} else if err = put(resultHeadings); err == nil {
		err = r.client.EachResult(ctx, id, io.Discard, func(row []string) error {
			return errors.Join(s.count(row), put(row))
		})
	}
	return errors.Join(err, w.Close())
}

// joinRows writes each row of the list followed by the result of its address.
func (r *verifyRun) joinRows(ctx context.Context, id string, s *verifySummary, put func([]string) error) error {
	results := map[string][]string{}
	err := r.client.EachResult(ctx, id, io.Discard, func(row []string) error {
		text, f := smtp.CutFlags(row[2])
		results[addressKey(row[0])] = []string{row[1], text, yesIf(f.Role), yesIf(f.Free), yesIf(f.Disposable), f.Suggest,
			f.Operator, row[3]}
		return s.count(row)
	})
	if err != nil {
		return err
	}
	of := func(text string) []string { return results[addressKey(text)] }
	return r.list.Join(joinHeadings, of, r.flags.mend, put)
}

// joinHeadings are the columns that --join appends to those of a list.
var joinHeadings = []string{"result", "message", "role", "free", "disposable", "suggest", "operator", "checked_at"}

func yesIf(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// addressKey returns the same key for different spellings of one address.
func addressKey(text string) string {
	if a, err := smtp.ParseAddress(text); err == nil {
		return a.String()
	}
	return text
}

var resultHeadings = []string{"email", "result", "message", "checked_at"}

// asText puts a quote before a cell that a spreadsheet would run as a formula (OWASP, CSV injection). Addresses may
// begin with any of these characters.
func asText(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// toJSON writes the opening of the JSON object with the results; close writes the rest.
func (r *verifyRun) toJSON(ctx context.Context, id string, s *verifySummary) error {
	out := bufio.NewWriter(r.stdout)
	out.WriteString(`{"results":[`)
	separator := "\n"
	err := r.client.EachResult(ctx, id, io.Discard, func(row []string) error {
		text, err := json.Marshal(resultOf(row))
		if err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		out.WriteString(separator)
		out.Write(text)
		separator = ",\n"
		return s.count(row)
	})
	out.WriteString("],\n")
	return errors.Join(err, out.Flush())
}

// close prints the closing table, or with --json the summary.
func (r *verifyRun) close(s verifySummary) error {
	if r.flags.json {
		text, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		if s.Out == nil {
			text = text[1:] // toJSON has opened the object
		}
		_, err = r.stdout.Write(append(text, '\n'))
		return err
	}
	return r.view.closing(s)
}
