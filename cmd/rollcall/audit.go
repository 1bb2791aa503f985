package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

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
			"Asks the running node if one answers at the admin address, and otherwise reads the ledger itself.\n" +
			"It reads one moment of the ledger, changes nothing and keeps no one waiting. `rollcall audit correct` sets\n" +
			"right what was found, once it is understood.",
		Args: wantArgs(),
	}
	admin, file, asJSON := addAdminFlags(c, e), configFlag(c), jsonFlag(c)
	c.AddCommand(newAuditCorrect(admin))
	c.RunE = func(c *cobra.Command, _ []string) error {
		began := time.Now()
		report, err := audit(c.Context(), admin, *file)
		if err != nil {
			return err
		}
		view := newAuditView(report, time.Since(began))
		if *asJSON {
			err = printJSON(c.OutOrStdout(), view)
		} else {
			err = view.print(c.OutOrStdout())
		}
		if err == nil && report.Found > 0 {
			err = fmt.Errorf("%w (violations: %s): stop granting and selling credits until this is understood",
				errViolations, grouped(report.Found))
		}
		return err
	}
	return c
}

// audit asks the node, and reads the ledger itself when there is no node.
func audit(ctx context.Context, admin *adminFlags, file string) (ledger.AuditReport, error) {
	var report ledger.AuditReport
	client, err := admin.client()
	if err != nil {
		return report, err
	}
	nodeErr := client.call(ctx, "GET", "/v1/audit", nil, &report)
	if !errors.Is(nodeErr, errNoNode) || admin.named() {
		return report, nodeErr
	}
	loaded, err := config.Load(file, admin.environ)
	if err != nil {
		return report, err
	}
	book, err := sqlstore.OpenReadOnly(ctx, loaded.Ledger.URL, sqlstore.Options{})
	if err != nil {
		return report, err
	}
	report, err = book.Audit(ctx)
	return report, errors.Join(err, book.Close())
}

// auditView is what an audit tells: what was read, what holds, what does not.
type auditView struct {
	ledger.AuditReport
	Took       float64         `json:"took_seconds"`
	Invariants []invariantView `json:"invariants"`
}

// invariantView is one invariant with how often it was found broken.
type invariantView struct {
	ledger.Invariant
	Violations int `json:"violations"` // that are listed
}

func newAuditView(r ledger.AuditReport, took time.Duration) auditView {
	if r.Violations == nil {
		r.Violations = []ledger.Violation{}
	}
	if r.Corrections == nil {
		r.Corrections = []ledger.Correction{}
	}
	view := auditView{AuditReport: r, Took: took.Seconds()}
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
	err := printTable(w, []string{"READ", "NUMBER"}, [][]string{
		{"workspaces", grouped(a.Workspaces)}, {"verifications", grouped(a.Verifications)},
		{"upload chunks", grouped(a.Chunks)}, {"settlements", grouped(a.Settlements)},
		{"outcomes", grouped(a.Outcomes)}, {"entries", grouped(a.Entries)}})
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
			holds = "NO: " + grouped(int64(i.Violations))
		}
		fmt.Fprintf(w, "%-11s  %-9s  %s\n", i.ID, holds, wrapped(i.Holds, 24))
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
		fmt.Fprintf(w, "\n%s: %s\n\n    To do: %s\n\n", i.ID, wrapped(i.Holds, len(i.ID)+2), wrapped(i.Do, 11))
		for _, v := range a.Violations {
			if v.Invariant == i.ID {
				fmt.Fprintf(w, "    %s\n        %s\n", v.Subject, wrapped(v.Detail, 8))
			}
		}
	}
	_, err := fmt.Fprintf(w, "\n%s violations were found, %s are listed; read in %.1f s\n", grouped(a.Found),
		grouped(int64(len(a.Violations))), a.Took)
	return err
}

// columns is what a terminal has at least.
const columns = 80

// wrapped breaks a text into lines that fit beside an indent; the first line
// stands where it is written.
func wrapped(text string, indent int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		switch length := utf8.RuneCountInString(word); {
		case i == 0:
			at += length
		case at+1+length > columns:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent + length
		default:
			b.WriteByte(' ')
			at += 1 + length
		}
		b.WriteString(word)
	}
	return b.String()
}
