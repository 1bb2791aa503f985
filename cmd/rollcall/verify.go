package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/api"
	"rollcall/ledger"
)

// pollLocal is how often the node in this process is looked at: often enough
// for a live bar, and a tenth of what one key may ask.
const pollLocal = 500 * time.Millisecond

// verifyFlags are the flags of verify.
type verifyFlags struct {
	lab, json        bool
	spreadsheet      bool
	api, key, config string
	again            string
	out              term.OutFile
}

func newVerify(e environment) *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify one CSV file and print the results",
		Long: "Verify one CSV file and print the results as CSV, with progress and a closing table on " +
			"standard error.\n\n" +
			"Without --api the whole work is done in this process, which needs the open Internet with outgoing " +
			"port 25;\n" +
			"with --lab it asks simulated receivers instead. With --api a running service does it.\n" +
			"The service charges the same content once for a workspace: a repeat, from any folder, goes on with the first\n" +
			"verification or gives its results. --again NAME has it verified anew.\n\n" +
			"Stopped half-way (Ctrl-C), it ends with exit code 1, and the same command goes on where it stopped. With " +
			"--api\nonly this program stops: the service goes on, and charges. `rollcall cancel ID` ends that.",
		Args: wantArgs("FILE"),
	}
	c.Flags().BoolVar(&f.lab, "lab", false, "ask simulated receivers on this machine instead of real ones")
	addOutFlags(c, &f.out)
	c.Flags().StringVar(&f.api, "api", "", "the URL of a running service")
	c.Flags().StringVar(&f.key, "key", "", "with --api: the API key; better ROLLCALL_KEY, which other "+
		"users can't see")
	addAgainFlag(c, &f.again)
	c.Flags().StringVar(&f.config, "config", "", "without --api: a configuration file, for [dns], [smtp], "+
		"[retry], [throttle]")
	addFormFlags(c, &f)
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.api == "" && f.key != "" {
			return term.UsageError("--key needs --api URL")
		}
		f.key = cmp.Or(f.key, e.value("ROLLCALL_KEY"))
		if err := f.check(); err != nil {
			return err
		}
		loaded, err := config.Load(f.config, e)
		if err != nil {
			return err
		}
		in, err := openInput(args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		if err := f.out.Check(in.File, c.OutOrStdout()); err != nil {
			return err
		}
		r := &verifyRun{environ: e, flags: f, input: in, view: newProgressView(c.ErrOrStderr()), stdout: c.OutOrStdout()}
		if header := in.doubtfulHeader(); header != "" {
			r.view.notice(fmt.Sprintf("%s: row 1, %q, is no address: it is taken for the header and not checked", in.name,
				header))
		}
		if f.api != "" {
			err = verifyRemote(c.Context(), r)
		} else {
			err = verifyLocal(c.Context(), r, loaded)
		}
		r.view.stop()
		return r.left(err)
	}
	return c
}

// addAgainFlag adds --again to a command.
func addAgainFlag(c *cobra.Command, again *string) {
	c.Flags().StringVar(again, "again", "", "with --api: have the same content verified once more, and charged once "+
		"more, under "+
		"a\n`NAME` of yours, such as a date; the same NAME is the same verification")
}

// addFormFlags adds the flags for the form of results to a command.
func addFormFlags(c *cobra.Command, f *verifyFlags) {
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object for programs")
	c.Flags().BoolVar(&f.spreadsheet, "spreadsheet", false, "put ' before cells that a spreadsheet would run as a "+
		"formula (= + - @, tab, CR)")
}

// checkForm refuses flags for the form of results that don't go together.
func (f verifyFlags) checkForm() error {
	if f.spreadsheet && f.json && f.out.Name == "" {
		return term.UsageError("--spreadsheet and --json don't go together: JSON has no formulas; give --out for the results")
	}
	return nil
}

// check refuses flags that don't go together.
func (f verifyFlags) check() error {
	switch {
	case f.again != "" && f.api == "":
		return term.UsageError("--again needs --api URL: in this process every run after the end of the last begins anew")
	case f.api != "" && f.lab:
		return term.UsageError("--lab and --api don't go together: the service has its own receivers")
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

// verifyRun is one run of verify.
type verifyRun struct {
	environ environment
	flags   verifyFlags
	input   *input
	view    *progressView
	stdout  io.Writer
	client  *client.API
	memory  *memory
	poll    time.Duration // longest wait between two looks; 0: as long as the service says

	id    string      // of the verification, as soon as the service has said it
	known bool        // it was there before this run, and nobody has been told
	stage verifyStage // how far it is
}

// verifyRemote has the file verified by a running service.
func verifyRemote(ctx context.Context, r *verifyRun) error {
	r.client = client.NewAPI(r.flags.api, r.flags.key, r.view.notice)
	return r.run(ctx)
}

// run has the verification done and writes the results.
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
		err = fmt.Errorf("%s: somebody cancelled the verification; these are the results until then%s", r.input.name,
			r.anew("to have the rest checked too"))
	}
	return err
}

// finish creates or recovers the verification, uploads, and waits until it is over; one that
// failed is an error.
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

// remote says whether a running service does the work, whose credits are real.
func (r *verifyRun) remote() bool { return r.flags.api != "" }

// identity is the idempotency key: at a service that of the content, and in this process the one
// of the last run if that was stopped.
func (r *verifyRun) identity() (uuid.UUID, error) {
	if r.remote() {
		return r.input.identity(r.flags.again), nil
	}
	return r.memory.identity()
}

// forget has the next run in this process begin anew.
func (r *verifyRun) forget() error {
	if r.remote() {
		return nil
	}
	return r.memory.forget()
}

// failure says why a file was refused or given up.
func (r *verifyRun) failure(d api.Detail) error {
	if d.Issue == nil {
		return fmt.Errorf("%s: the verification failed", r.input.name)
	}
	hint := ""
	if !strings.HasPrefix(string(d.Issue.Code), "csv_") { // no other content would help
		hint = r.anew("to have it verified after all")
	}
	return fmt.Errorf("%s: %s (%s)%s", r.input.name, client.IssueText(d.Issue), d.Issue.Code, hint)
}

// wait looks at the verification until it is final.
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
		if err := term.Sleep(ctx, wait-time.Since(answered)); err != nil { // counting takes long in a large file
			return d, err
		}
	}
}
