package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

func newAuditCorrect(from *ledgerFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "correct SUBJECT --reason TEXT",
		Short: "Set right what an audit found about a workspace or a verification, by entries and a note",
		Long: "Audit the ledger and set right what is found about SUBJECT, as `rollcall audit` names it.\n\n" +
			"Nothing that is there is changed or deleted. The account of a workspace becomes what its entries make, and\n" +
			"holds what its verifications hold: one part of the correction enters what had moved the account without an\n" +
			"entry, the other moves the credits back. With --keep-account they stay where they are, and are entered.\n" +
			"What is wrong with a verification that is over stays as it is and is noted as known, word for word: an audit\n" +
			"finds it no more, and names the correction instead. If credits are owed to the customer, grant them.\n\n" +
			"A violation that can be mended is refused, such as bytes that should be erased. Understand the cause first: see\n" +
			"docs/operators/operations.md. The correction stands in `rollcall log` too.",
		Example: "  rollcall audit correct 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b --reason 'credits added by hand on 3 March'",
		Args:    wantArgs("SUBJECT"), ValidArgsFunction: completeFinding(from.node),
	}
	asJSON, call := jsonFlag(c), admin.CorrectionCall{ID: uuid.NewString()}
	c.Flags().StringVar(&call.Reason, "reason", "", "why, for the book and the operator log; required")
	c.Flags().BoolVar(&call.Keep, "keep-account", false, "leave the account of the workspace as it is")
	c.RunE = func(c *cobra.Command, args []string) error {
		if call.Reason == "" {
			return term.UsageError("--reason is missing: write what happened, for whoever reads the book later")
		}
		call.Subject = args[0]
		done, err := correct(c.Context(), from, call)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), done)
		}
		return done.print(c.OutOrStdout())
	}
	return c
}

// correctionView is what a correction tells.
type correctionView struct {
	Read reading `json:"read"`
	ledger.Correction
}

// correct has a correction made, by the node or in the ledger itself.
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

// print writes the correction, within 80 columns.
func (c correctionView) print(w io.Writer) error {
	fmt.Fprintf(w, "in %s\n\ncorrection %s of %s\n\n", c.Read, c.ID, term.Printable(c.Subject))
	for _, v := range c.Findings {
		fmt.Fprintf(w, "%-11s  %s\n", v.Invariant, term.Wrapped(v.Detail, 13))
	}
	if len(c.Entries) == 0 {
		_, err := fmt.Fprintf(w, "\nnoted as known; no credits moved\n")
		return err
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, e := range c.Entries {
		what := "found in the account"
		if e.Number == ledger.CorrectionMoved {
			what = "moved now"
		}
		rows = append(rows, []string{string(e.Kind), term.Grouped(int64(e.Amount)), what})
	}
	return term.PrintTable(w, []string{"ENTRY", "CREDITS", "WHAT"}, rows)
}

// completeFinding offers what an audit finds something about, if it is quick.
func completeFinding(node *adminFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (subjects []string, _ cobra.ShellCompDirective) {
		client, err := node.client()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		var report ledger.AuditReport
		told := map[string]bool{}
		if err := client.Call(ctx, "GET", "/v1/audit", nil, &report); err == nil {
			for _, v := range report.Violations {
				if !told[v.Subject] {
					subjects = append(subjects, v.Subject+"\t"+v.Invariant)
				}
				told[v.Subject] = true
			}
		}
		return subjects, cobra.ShellCompDirectiveNoFileComp
	}
}

// printCorrections names what was set right.
func (a auditView) printCorrections(w io.Writer) {
	if len(a.Corrections) > 0 {
		fmt.Fprintf(w, "\nCORRECTED, newest first\n")
	}
	for _, c := range a.Corrections {
		by := ""
		if c.Author != "" {
			by = " by " + term.Printable(c.Author)
		}
		text := fmt.Sprintf("findings: %d; corrected %s%s: %s", len(c.Findings), c.At.UTC().Format(time.RFC3339), by,
			term.Printable(c.Reason))
		fmt.Fprintf(w, "    %s\n        %s\n", term.Printable(c.Subject), term.Wrapped(text, 8))
	}
}
