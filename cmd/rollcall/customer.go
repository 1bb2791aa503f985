package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
)

const apiDefault = "http://127.0.0.1:8080"

// customerFlags are the flags of every command that asks the API as a customer does.
type customerFlags struct {
	environ environment
	url     string
	key     string
}

func addCustomerFlags(c *cobra.Command, e environment) *customerFlags {
	f := &customerFlags{environ: e}
	c.Flags().StringVar(&f.url, "api", "", "the URL of the service; also ROLLCALL_API (default "+apiDefault+")")
	c.Flags().StringVar(&f.key, "key", "", "the API key; better ROLLCALL_KEY, which other users can't see")
	return f
}

func (f *customerFlags) base() string {
	return cmp.Or(f.url, f.environ.value("ROLLCALL_API"), apiDefault)
}

// client makes a client from flags and environment. It reports waits on standard error.
func (f *customerFlags) client(c *cobra.Command) (*client.API, error) {
	key := cmp.Or(f.key, f.environ.value("ROLLCALL_KEY"))
	if key == "" {
		return nil, term.UsageError("the API key is missing: set ROLLCALL_KEY or give --key")
	}
	if err := checkBase("--api", f.base(), apiDefault); err != nil {
		return nil, err
	}
	return client.NewAPI(f.base(), key, func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }), nil
}

func newCancel(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel ID",
		Short: "End one of your verifications; what is not checked yet is given back",
		Long: "End one of your verifications. Addresses that have their outcome stay charged, and `rollcall results` has\n" +
			"them; what is not checked yet is given back. A finished verification stays as it is.",
		Example: "  rollcall cancel 0b6f2c9e --api https://rollcall.example",
	}
	return verificationCommand(addCustomerFlags(c, e), c, func(to *client.API, id string) (api.Cancellation, error) {
		return to.Cancel(c.Context(), id)
	}, func(b *term.Page, done api.Cancellation) { fmt.Fprintln(b, cancelText(done)) })
}

func cancelText(done api.Cancellation) string {
	switch status := ledger.Status(done.Status); {
	case status == ledger.Cancelled:
		return fmt.Sprintf("%s is cancelled: what was not checked is given back", done.ID)
	case status.Final():
		return fmt.Sprintf("%s is %s already: there is nothing to cancel", done.ID, done.Status)
	}
	return fmt.Sprintf("%s is %s: what is not checked yet is given back", done.ID, done.Status)
}

type checkedView struct {
	ID string `json:"id"`
	resultView
}

func newCheck(e environment) *cobra.Command {
	var again string
	c := &cobra.Command{
		Use:   "check ADDRESS",
		Short: "Verify one address through a service, wait for its outcome and print it",
		Long: "Verify one address through a service, wait for its outcome and print it. The address becomes a file of\n" +
			"one row in the history. An address that was checked before gives the earlier outcome\n" +
			"and costs nothing, unless --again checks it anew. The exit code is 0 whatever the outcome is.",
		Example: "  rollcall check anna@example.com --api https://rollcall.example",
	}
	service := addCustomerFlags(c, e)
	addAgainFlag(c, &again)
	return answerWith(c, func(args []string) (found checkedView, err error) {
		if _, err := smtp.ParseAddress(args[0]); err != nil {
			return found, term.UsageError(fmt.Sprintf("%q is no email address", args[0]))
		}
		client, err := service.client(c)
		if err != nil {
			return found, err
		}
		in, err := addressInput(args[0])
		if err != nil {
			return found, err
		}
		defer in.Close()
		r := &verifyRun{flags: verifyFlags{api: service.base(), again: again}, input: in,
			view: newProgressView(c.ErrOrStderr()), stdout: c.OutOrStdout(), client: client}
		client.Notice = r.view.notice
		found, err = r.one(c.Context())
		r.view.stop()
		if err != nil {
			err = r.left(err)
		}
		return found, err
	}, func(b *term.Page, found checkedView) {
		fmt.Fprintf(b, "%s: %s: %s\n", term.Printable(found.Email), found.Result, found.Message)
	})
}

// addressInput returns a nameless file with one address.
func addressInput(address string) (*input, error) {
	var row bytes.Buffer
	w := csv.NewWriter(&row)
	err := w.Write([]string{address})
	w.Flush()
	if err != nil || w.Error() != nil {
		return nil, errors.Join(err, w.Error())
	}
	name := strings.NewReplacer("/", "_", `\`, "_").Replace(address) // a file name in the history contains no folder
	return keepInput(name, func(w io.Writer) error {
		_, err := row.WriteTo(w)
		return err
	})
}

// one verifies a file of one row and returns the result of that row.
func (r *verifyRun) one(ctx context.Context) (checkedView, error) {
	d, err := r.finish(ctx)
	if err != nil {
		return checkedView{}, err
	}
	var found *checkedView
	err = r.client.EachResult(ctx, d.ID, io.Discard, func(row []string) error {
		found = &checkedView{d.ID, resultOf(row)}
		return nil
	})
	switch {
	case err != nil:
		return checkedView{}, r.expired(err)
	case found == nil && d.Status == string(ledger.Cancelled):
		return checkedView{}, fmt.Errorf("somebody cancelled the verification%s", r.anew("to have it checked after all"))
	case found == nil:
		return checkedView{}, fmt.Errorf("verification %s is %s without an outcome", d.ID, d.Status)
	}
	return *found, nil
}

// verificationCommand makes c a command about the verification that its first argument names. It shows the answer as
// answerWith does.
func verificationCommand[T any](service *customerFlags, c *cobra.Command,
	find func(to *client.API, id string) (T, error), show func(b *term.Page, answer T)) *cobra.Command {
	return answerWith(c, func(args []string) (answer T, err error) {
		to, id, err := service.findVerification(c, args[0])
		if err != nil {
			return answer, err
		}
		return find(to, id)
	}, show)
}

// findVerification makes a client, and returns the id of the verification that an argument names.
func (f *customerFlags) findVerification(c *cobra.Command, arg string) (to *client.API, id string, err error) {
	if to, err = f.client(c); err != nil {
		return nil, "", err
	}
	id, err = to.VerificationID(c.Context(), arg)
	return to, id, err
}

const listShown = 20

func newList(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List your verifications, newest first",
		Long: "List your verifications, newest first. A terminal shows the beginnings of ids, which are enough for\n" +
			"`rollcall status`, `results` and `cancel`. Files and pipes get whole ids.",
		Example: "  rollcall list --api https://rollcall.example\n  rollcall list --limit 0 --json",
	}
	service := addCustomerFlags(c, e)
	limit := c.Flags().Int("limit", listShown, "list at most this many; 0: all")
	var to *client.API
	return answerWith(c, func([]string) (all api.History, err error) {
		if *limit < 0 {
			return all, term.UsageError("--limit must not be below 0")
		}
		if to, err = service.client(c); err != nil {
			return all, err
		}
		all.Verifications = []api.Summary{}
		size := api.HistoryPageMax
		if *limit > 0 {
			size = min(*limit, size)
		}
		for page, err := range to.Pages(c.Context(), size) {
			if err != nil {
				return all, err
			}
			all.Verifications = append(all.Verifications, page.Verifications...)
			all.Limits, all.NextCursor = page.Limits, page.NextCursor
			if *limit > 0 && len(all.Verifications) >= *limit {
				break
			}
		}
		if *limit > 0 && len(all.Verifications) > *limit {
			all.Verifications, all.NextCursor = all.Verifications[:*limit], nil // the cursor points behind the whole page
		}
		return all, nil
	}, func(b *term.Page, all api.History) {
		printHistory(b, all.Verifications, to.Waiting(c.Context(), all.Verifications), time.Now())
	})
}

func historyGrid(list []api.Summary, now time.Time) *term.Table {
	g := &term.Table{Columns: []term.Column{{Name: "ID", Least: 9}, {Name: "STATUS", Least: 9}, {Name: "CREATED"},
		{Name: "DONE", Right: true}, {Name: "FILE", Least: 10}}}
	for _, v := range list {
		g.Add(v.ID, v.Status, term.Clock(time.Time(v.CreatedAt), now), doneText(v.Progress), client.FileName(v.Filename))
	}
	return g
}

func printHistory(b *term.Page, list []api.Summary, waiting []api.Detail, now time.Time) {
	b.Table(historyGrid(list, now))
	for _, d := range waiting {
		if d.Issue != nil { // nil if the file no longer waits
			b.Para(0, "%s waits: %s", d.ID, api.IssueText(d.Issue))
		}
	}
	if len(list) == 0 {
		b.WriteString("There is no verification yet.\n")
	}
}

// doneText is how many addresses are final, as "12 of 62".
func doneText(p api.Progress) string {
	if p.Total == nil {
		return "-"
	}
	return term.Grouped(p.Completed+p.Errors+p.Cancelled) + " of " + term.Grouped(*p.Total)
}

func newStatus(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "status ID",
		Short: "Show how far one of your verifications is",
		Long: "Show how far one of your verifications is, and what it needs of you. The first 4 characters of " +
			"the id are enough\nif no other verification has them.",
		Example: "  rollcall status 0b6f2c9e --api https://rollcall.example",
	}
	return verificationCommand(addCustomerFlags(c, e), c, func(to *client.API, id string) (d api.Detail, err error) {
		d, _, err = to.Detail(c.Context(), id)
		return d, err
	}, func(b *term.Page, d api.Detail) { printDetail(b, d, time.Now()) })
}

func printDetail(b *term.Page, d api.Detail, now time.Time) {
	line := b.Field
	line("verification", "%s", d.ID)
	line("status", "%s", d.Status)
	if d.Issue != nil {
		line("issue", "%s (%s)", api.IssueText(d.Issue), d.Issue.Code)
	}
	line("file", "%s", client.FileName(d.Filename))
	if d.Input != nil {
		line("input", "%s, %s", term.Counted(d.Input.Rows, "row"), term.Counted(d.Input.Duplicates, "duplicate"))
	}
	if d.Progress.Total != nil {
		line("done", "%s: %s completed, %s with an error, %s cancelled", doneText(d.Progress),
			term.Grouped(d.Progress.Completed), term.Grouped(d.Progress.Errors), term.Grouped(d.Progress.Cancelled))
	}
	line("created", "%s", term.Clock(time.Time(d.CreatedAt), now))
	if d.CompletedAt != nil {
		line("over", "%s", term.Clock(time.Time(*d.CompletedAt), now))
	}
	if d.Upload != nil {
		line("upload", "bytes are missing; `rollcall verify` with the same file goes on until %s",
			term.Clock(time.Time(d.Upload.ExpiresAt), now))
	}
}

func newResults(e environment) *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "results ID",
		Short: "Get the results of one of your verifications, also while it goes on",
		Long: "Get the results of one of your verifications as CSV, with a closing table on standard error. While it goes " +
			"on\n" +
			"they are the final ones so far, and a line says so. Reading results costs nothing.",
		Example: "  rollcall results 0b6f2c9e --api https://rollcall.example --out results.csv",
	}
	service := addCustomerFlags(c, e)
	addOutFlags(c, &f.out)
	addFormFlags(c, &f)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.checkForm(); err != nil {
			return err
		}
		if err := f.out.Check(nil, c.OutOrStdout()); err != nil {
			return err
		}
		to, id, err := service.findVerification(c, args[0])
		if err != nil {
			return err
		}
		d, _, err := to.Detail(c.Context(), id)
		if err != nil {
			return err
		}
		r := &verifyRun{flags: f, view: newProgressView(c.ErrOrStderr()), stdout: c.OutOrStdout(), client: to}
		summary, err := r.deliver(c.Context(), d)
		if err != nil {
			return err
		}
		return r.close(summary)
	}
	return c
}

// tenantCredits makes `rollcall credits` without a subcommand show the balance of the API key's workspace.
func tenantCredits(group *cobra.Command, e environment) *cobra.Command {
	service, asJSON := addCustomerFlags(group, e), jsonFlag(group)
	unknown := group.RunE
	group.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(c, args)
		}
		client, err := service.client(c)
		if err != nil {
			return fmt.Errorf("%w; an operator asks for a workspace with `rollcall credits show --workspace ID`", err)
		}
		balance, err := client.Credits(c.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), balance)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s available\n", term.Counted(balance.Credits, "credit"))
		return err
	}
	return group
}
