package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cluster"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

type backupView struct {
	Read  reading `json:"read"`
	File  string  `json:"file"`
	Bytes int64   `json:"bytes"`
	Took  float64 `json:"took_seconds"`
}

func newBackup(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the embedded ledger to FILE while the node works",
		Long: "Copy the embedded ledger to FILE while the node works. docs/operators/operations.md has the restore.\n\n" +
			"The ledger of the configuration is copied, or the named one. The first line says which.\n" +
			"FILE is made here, for you alone to read, and gets its name only when it is complete and checked; nothing\n" +
			"is overwritten. It holds addresses and the key of upload URLs: keep it as safe as the ledger itself.",
	}
	from := addLedgerFlags(c, e)
	return answerWith(c, func(args []string) (view backupView, err error) {
		began := time.Now()
		read, err := backup(c, from, args[0])
		if err != nil {
			return view, err
		}
		info, err := os.Stat(args[0])
		if err != nil {
			return view, fmt.Errorf("look at the backup: %w", err)
		}
		return backupView{Read: read, File: args[0], Bytes: info.Size(), Took: time.Since(began).Seconds()}, nil
	}, func(b *term.Page, view backupView) {
		fmt.Fprintf(b, "copied %s\n%s: %s bytes in %.1f s, checked\n", view.Read, view.File,
			term.Grouped(view.Bytes), view.Took)
	})
}

// backup makes path.part and renames it to path when it is complete. It returns the ledger that it copied.
func backup(c *cobra.Command, from *ledgerFlags, path string) (read reading, err error) {
	part := path + ".part"
	if _, err := os.Lstat(path); err == nil {
		return read, fmt.Errorf("%s: %w", path, sqlstore.ErrBackupExists)
	}
	if _, err := os.Lstat(part); err == nil {
		return read, fmt.Errorf("%s exists: another backup is writing it; if that was interrupted, delete the file", part)
	}
	err = from.fromLedger(c, func(book *sqlstore.Store, _ config.Config, at reading) error {
		read = at
		return book.Backup(c.Context(), part)
	})
	if err != nil {
		return read, err
	}
	if err := nameOnce(part, path); err != nil {
		return read, errors.Join(err, os.Remove(part))
	}
	return read, syncFolder(filepath.Dir(path))
}

// nameOnce gives the file part its name. A mere rename would replace a file that appeared at path during the backup,
// so nameOnce first reserves the name with an empty file.
func nameOnce(part, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", path, sqlstore.ErrBackupExists)
	}
	if err == nil {
		err = errors.Join(f.Close(), os.Rename(part, path))
	}
	return ledger.Wrap(err, "give the backup its name")
}

// syncFolder makes the names in a folder durable.
func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err == nil {
		err = errors.Join(folder.Sync(), folder.Close())
	}
	return ledger.Wrap(err, "sync %s", name)
}

var errNotRenewed = errors.New("nothing was renewed")

func newLedger(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "ledger", Short: "Give a copy of a ledger an identity of its own"})
	c.AddCommand(newLedgerRenew(e))
	return c
}

type renewalView struct {
	Ledger string    `json:"ledger"` // its URL, without a password
	Was    uuid.UUID `json:"was"`
	Is     uuid.UUID `json:"is"`
}

func newLedgerRenew(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "renew --reason TEXT",
		Short: "Give a ledger a new identity, so that its nodes stay apart from those of the original",
		Long: "Give a ledger a new identity, so that its nodes stay apart from those of the original.\n\n" +
			"A copy of a ledger has the identity of the original. Nodes tell ledgers apart by it: those of the copy\n" +
			"would join the cluster of the original. Renew a copy that runs beside the original, before its\n" +
			"first node starts. A copy in the place of a lost original needs no new identity; a new one does no harm.\n\n" +
			"It asks no node, and works on the ledger of the configuration with its owner's URL, as `rollcall migrate` does.\n" +
			"It also removes the rows of nodes. It refuses while a node works on the ledger, and for 10\n" +
			"seconds after one did. Nodes of a renewed ledger must not have run before: stop them first.",
		Example: "  ROLLCALL_LEDGER_URL=postgres://rollcall_owner@db/rehearsal rollcall ledger renew --reason 'copy for a " +
			"rehearsal'",
	}
	file := configFlag(c)
	reason := c.Flags().String("reason", "", "why, for the operator log; required")
	yes := c.Flags().Bool("yes", false, "do not ask")
	return answerWith(c, func([]string) (view renewalView, err error) {
		if *reason == "" {
			return view, term.UsageError("--reason is missing: say why, for readers of the operator log")
		}
		loaded, err := config.Load(*file, e)
		if err != nil {
			return view, err
		}
		author, err := (&adminFlags{environ: e}).author()
		if err != nil {
			return view, err
		}
		name := ledgerName(loaded.Ledger.URL)
		if !*yes {
			if !term.IsTerminal(c.InOrStdin()) {
				return view, term.UsageError("there is no terminal to ask at: give --yes to renew the ledger " + name)
			}
			question := fmt.Sprintf("The ledger %s gets a new identity. Nodes that know the old one are refused.\nRenew it? "+
				"[y/N] ", name)
			if err := term.Confirm(c.InOrStdin(), c.ErrOrStderr(), question, errNotRenewed); err != nil {
				return view, err
			}
		}
		view.Ledger = name
		view.Was, view.Is, err = renew(ledger.WithAuthor(c.Context(), author), loaded.Ledger.URL, *reason)
		return view, err
	}, func(b *term.Page, view renewalView) {
		fmt.Fprintf(b, "the ledger %s has a new identity:\n%s, was %s\n", view.Ledger, view.Is, view.Was)
	})
}

func renew(ctx context.Context, url, reason string) (was, is uuid.UUID, err error) {
	book, err := sqlstore.Open(ctx, url, sqlstore.Options{})
	if err != nil {
		return was, is, err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	if book.Embedded() {
		return was, is, errors.New("an embedded ledger has only one node: there is " +
			"nothing to renew")
	}
	was, is, err = book.RenewIdentity(ctx, cluster.DefaultTimes().Lost, reason)
	if errors.Is(err, ledger.ErrNodeAlive) {
		err = fmt.Errorf("%w. Stop all nodes of this ledger, wait for 10 seconds, and renew it again", err)
	}
	return was, is, err
}

func newMigrate(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the ledger's schema up to date; safe to run again",
	}
	file := configFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := config.Load(*file, e)
		if err != nil {
			return err
		}
		tell := func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
		if err := sqlstore.Migrate(c.Context(), loaded.Ledger.URL, tell); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), "the ledger's schema is up to date")
		return nil
	}
	return c
}

var errViolations = errors.New("the ledger breaks its invariants")

func newAudit(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Recompute every invariant of the ledger; exit 1 and list the violations",
		Long: "Recompute every invariant of the ledger; exit 1 and list the violations.\n\n" +
			"A ledger named by --ledger, --config or ROLLCALL_LEDGER_URL is read directly. Without one the node of this\n" +
			"machine is asked or, when it does not run, its ledger is read. The first line says which.\n" +
			"An audit reads one moment of the ledger, changes nothing and keeps no one waiting. `rollcall audit correct`\n" +
			"corrects findings, once you understand them.",
		Example: "  rollcall audit\n" +
			"  rollcall audit --ledger sqlite:/restore/ledger.db\n" +
			"  rollcall audit --config /etc/rollcall/rollcall.toml --json",
	}
	from := addLedgerFlags(c, e)
	c.AddCommand(newAuditCorrect(from))
	return answerWith(c, func([]string) (auditView, error) {
		began := time.Now()
		report, read, err := audit(c.Context(), from)
		return newAuditView(report, read, time.Since(began)), err
	}, func(b *term.Page, view auditView) { view.print(b) })
}

func (a auditView) failsWith() error {
	if a.Found == 0 {
		return nil
	}
	return fmt.Errorf("%w (violations: %s): stop granting and selling credits until this is understood", errViolations,
		term.Grouped(a.Found))
}

// audit asks for a report. It also returns which node or ledger gave the report.
func audit(ctx context.Context, from *ledgerFlags) (report ledger.AuditReport, read reading, err error) {
	err = from.read(ctx, func(client *client.Admin, at reading) error {
		read = at
		return client.Call(ctx, "GET", "/v1/audit", nil, &report)
	}, func(book *sqlstore.Store, _ config.Config, at reading) (err error) {
		read = at
		report, err = book.Audit(ctx)
		return err
	})
	return report, read, err
}

type auditView struct {
	Read reading `json:"read"`
	ledger.AuditReport
	Took       float64         `json:"took_seconds"`
	Invariants []invariantView `json:"invariants"`
}

type invariantView struct {
	ledger.Invariant
	Violations int `json:"violations"` // that are listed
}

func newAuditView(r ledger.AuditReport, read reading, took time.Duration) auditView {
	r.Violations = append([]ledger.Violation{}, r.Violations...) // never null in JSON
	r.Corrections = append([]ledger.Correction{}, r.Corrections...)
	view := auditView{Read: read, AuditReport: r, Took: took.Seconds()}
	for _, i := range ledger.Invariants() {
		broken := 0
		for _, v := range r.Violations {
			if v.Invariant == i.ID {
				broken++
			}
		}
		view.Invariants = append(view.Invariants, invariantView{i, broken})
	}
	return view
}

func (a auditView) print(b *term.Page) {
	fmt.Fprintf(b, "audit of %s\n\n", a.Read)
	b.Rows([]string{"READ", "NUMBER"}, [][]string{
		{"workspaces", term.Grouped(a.Workspaces)}, {"verifications", term.Grouped(a.Verifications)},
		{"upload chunks", term.Grouped(a.Chunks)}, {"settlements", term.Grouped(a.Settlements)},
		{"outcomes", term.Grouped(a.Outcomes)}, {"entries", term.Grouped(a.Entries)}})
	if !a.Newest.IsZero() {
		fmt.Fprintf(b, "the newest entry is from %s\n", a.Newest.UTC().Format(time.RFC3339))
	}
	g := &term.Table{Columns: []term.Column{{Name: "INVARIANT"}, {Name: "HOLDS"}, {Name: "WHAT", Least: 20, Wrap: true}}}
	for _, i := range a.Invariants {
		holds := "yes"
		if i.Violations > 0 {
			holds = "NO: " + term.Grouped(i.Violations)
		}
		g.Add(i.ID, holds, i.Holds)
	}
	b.Section(g)
	a.printCorrections(b)
	if a.Found == 0 {
		fmt.Fprintf(b, "\nevery invariant holds; read in %.1f s\n", a.Took)
	} else {
		a.printViolations(b)
	}
}

func (a auditView) printViolations(b *term.Page) {
	for _, i := range a.Invariants {
		if i.Violations == 0 {
			continue
		}
		b.WriteByte('\n')
		b.Behind(i.ID+": ", "%s", i.Holds)
		b.WriteByte('\n')
		b.Behind("    To do: ", "%s", i.Do)
		b.WriteByte('\n')
		for _, v := range a.Violations {
			if v.Invariant == i.ID {
				fmt.Fprintf(b, "    %s\n", v.Subject)
				b.Para(8, "%s", v.Detail)
			}
		}
	}
	fmt.Fprintf(b, "\n%s violations were found, %s are listed; read in %.1f s\n", term.Grouped(a.Found),
		term.Grouped(len(a.Violations)), a.Took)
}

func newAuditCorrect(from *ledgerFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "correct SUBJECT --reason TEXT",
		Short: "Correct an audit's findings about a workspace or a verification, by entries and a note",
		Long: "Audit the ledger and correct the findings about SUBJECT, as named by `rollcall audit`.\n\n" +
			"No entry is changed or deleted. The account of a workspace is made equal to its entries and to the holds of\n" +
			"its verifications: one part of the correction enters the movement that had no entry, the other moves the\n" +
			"credits back. With --keep-account the movement is only entered, and the credits stay where they are.\n" +
			"Errors of a finished verification stay, and are noted as known, word for word: later audits list the\n" +
			"correction instead. If credits are owed to the customer, grant them.\n\n" +
			"A violation that can be repaired is refused, such as bytes that should be erased. Understand the cause first:\n" +
			"see docs/operators/operations.md. `rollcall log` shows the correction, too.",
		Example: "  rollcall audit correct 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b --reason 'credits added by hand on 3 March'",
	}
	call := admin.CorrectionCall{ID: uuid.NewString()}
	c.Flags().StringVar(&call.Reason, "reason", "", "why, for the ledger and the operator log; required")
	c.Flags().BoolVar(&call.Keep, "keep-account", false, "leave the account of the workspace as it is")
	return answerWith(c, func(args []string) (done correctionView, err error) {
		if call.Reason == "" {
			return done, term.UsageError("--reason is missing: say what happened, for later readers of the ledger")
		}
		if call.Subject, err = findingOf(c.Context(), from, args[0]); err != nil {
			return done, err
		}
		return correct(c.Context(), from, call)
	}, func(b *term.Page, done correctionView) { done.print(b) })
}

type correctionView struct {
	Read reading `json:"read"`
	ledger.Correction
}

func correct(ctx context.Context, from *ledgerFlags, call admin.CorrectionCall) (done correctionView, err error) {
	err = from.at(func(client *client.Admin, at reading) error {
		done.Read = at
		return client.Call(ctx, "POST", "/v1/audit/corrections", call, &done.Correction)
	}, func(c config.Config, at reading) error {
		author, err := from.node.author()
		if err != nil {
			return err
		}
		book, err := sqlstore.Open(ctx, c.Ledger.URL, sqlstore.Options{})
		if err != nil {
			return err
		}
		done.Read = at
		done.Correction, err = book.Correct(ledger.WithAuthor(ctx, author), ledger.CorrectionCall{
			ID: uuid.MustParse(call.ID), Subject: call.Subject, Reason: call.Reason, Keep: call.Keep})
		return errors.Join(err, book.Close())
	})
	return done, err
}

func (c correctionView) print(b *term.Page) {
	fmt.Fprintf(b, "in %s\n\ncorrection %s of %s\n\n", c.Read, c.ID, term.Printable(c.Subject))
	for _, v := range c.Findings {
		b.Behind(fmt.Sprintf("%-11s  ", v.Invariant), "%s", v.Detail)
	}
	b.WriteByte('\n')
	if len(c.Entries) == 0 {
		b.WriteString("noted as known; no credits moved\n")
		return
	}
	g := &term.Table{Columns: []term.Column{{Name: "ENTRY"}, {Name: "CREDITS"}, {Name: "WHAT"}}}
	for _, e := range c.Entries {
		what := "found in the account"
		if e.Number == ledger.CorrectionMoved {
			what = "moved now"
		}
		g.Add(string(e.Kind), term.Grouped(e.Amount), what)
	}
	b.Table(g)
}

// findingOf returns the subject of a finding that the operator typed; the beginning of an id is enough.
func findingOf(ctx context.Context, from *ledgerFlags, typed string) (string, error) {
	if ids, ok := admin.RangeOf(typed); !ok || ids.From == ids.To {
		return typed, nil
	}
	report, _, err := audit(ctx, from)
	if err != nil {
		return "", err
	}
	var found []client.Named
	for _, v := range report.Violations {
		if one := (client.Named{ID: v.Subject}); !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return client.Pick("finding", "rollcall audit", typed, found)
}

func (a auditView) printCorrections(b *term.Page) {
	if len(a.Corrections) > 0 {
		b.WriteString("\nCORRECTED, newest first\n")
	}
	for _, c := range a.Corrections {
		fmt.Fprintf(b, "    %s\n", term.Printable(c.Subject))
		b.Para(8, "findings: %d; corrected %s%s: %s", len(c.Findings), c.At.UTC().Format(time.RFC3339),
			after(" by ", c.Author), c.Reason)
	}
}
