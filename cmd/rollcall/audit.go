package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// errViolations ends an audit that found something.
var errViolations = errors.New("the ledger breaks its invariants")

func newAudit(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Recompute every invariant of the ledger; exit 1 and name what is off",
		Long: "Recompute every invariant of the ledger; exit 1 and name what is off.\n\n" +
			"A ledger that is named, by --ledger, --config or ROLLCALL_LEDGER_URL, is read itself. When none is, the node\n" +
			"of this machine is asked, and its ledger is read when it does not run. The first line says which it was.\n" +
			"An audit reads one moment of the ledger, changes nothing and keeps no one waiting. `rollcall audit correct`\n" +
			"sets right what was found, once it is understood.",
		Example: "  rollcall audit\n" +
			"  rollcall audit --ledger sqlite:/restore/ledger.db\n" +
			"  rollcall audit --config /etc/rollcall/rollcall.toml --json",
		Args: wantArgs(),
	}
	from, asJSON := addLedgerFlags(c, e), jsonFlag(c)
	c.AddCommand(newAuditCorrect(from))
	c.RunE = func(c *cobra.Command, _ []string) error {
		began := time.Now()
		report, read, err := audit(c.Context(), from)
		if err != nil {
			return err
		}
		view := newAuditView(report, read, time.Since(began))
		if *asJSON {
			err = term.PrintJSON(c.OutOrStdout(), view)
		} else {
			err = view.print(c.OutOrStdout())
		}
		if err == nil && report.Found > 0 {
			err = fmt.Errorf("%w (violations: %s): stop granting and selling credits until this is understood",
				errViolations, term.Grouped(report.Found))
		}
		return err
	}
	return c
}

// audit asks for a report, and says whom.
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

// auditView is what an audit tells: what was read, what holds, what does not.
type auditView struct {
	Read reading `json:"read"`
	ledger.AuditReport
	Took       float64         `json:"took_seconds"`
	Invariants []invariantView `json:"invariants"`
}

// invariantView is one invariant with how often it was found broken.
type invariantView struct {
	ledger.Invariant
	Violations int `json:"violations"` // that are listed
}

func newAuditView(r ledger.AuditReport, read reading, took time.Duration) auditView {
	if r.Violations == nil {
		r.Violations = []ledger.Violation{}
	}
	if r.Corrections == nil {
		r.Corrections = []ledger.Correction{}
	}
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

// print writes the tables, within 80 columns.
func (a auditView) print(w io.Writer) error {
	fmt.Fprintf(w, "audit of %s\n\n", a.Read)
	err := term.PrintTable(w, []string{"READ", "NUMBER"}, [][]string{
		{"workspaces", term.Grouped(a.Workspaces)}, {"verifications", term.Grouped(a.Verifications)},
		{"upload chunks", term.Grouped(a.Chunks)}, {"settlements", term.Grouped(a.Settlements)},
		{"outcomes", term.Grouped(a.Outcomes)}, {"entries", term.Grouped(a.Entries)}})
	if err != nil {
		return err
	}
	if !a.Newest.IsZero() {
		fmt.Fprintf(w, "the newest entry is of %s\n", a.Newest.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(w, "\n%-11s  %-9s  %s\n", "INVARIANT", "HOLDS", "WHAT")
	for _, i := range a.Invariants {
		holds := "yes"
		if i.Violations > 0 {
			holds = "NO: " + term.Grouped(int64(i.Violations))
		}
		fmt.Fprintf(w, "%-11s  %-9s  %s\n", i.ID, holds, term.Wrapped(i.Holds, 24))
	}
	a.printCorrections(w)
	if a.Found == 0 {
		_, err = fmt.Fprintf(w, "\nevery invariant holds; read in %.1f s\n", a.Took)
		return err
	}
	return a.printViolations(w)
}

// printViolations writes for each invariant that does not hold what to do, and where.
func (a auditView) printViolations(w io.Writer) error {
	for _, i := range a.Invariants {
		if i.Violations == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s: %s\n\n    To do: %s\n\n", i.ID, term.Wrapped(i.Holds, len(i.ID)+2), term.Wrapped(i.Do, 11))
		for _, v := range a.Violations {
			if v.Invariant == i.ID {
				fmt.Fprintf(w, "    %s\n        %s\n", v.Subject, term.Wrapped(v.Detail, 8))
			}
		}
	}
	_, err := fmt.Fprintf(w, "\n%s violations were found, %s are listed; read in %.1f s\n", term.Grouped(a.Found),
		term.Grouped(int64(len(a.Violations))), a.Took)
	return err
}
