package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cluster"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// errNotRenewed ends a renewal that was not confirmed.
var errNotRenewed = errors.New("nothing was renewed")

func newLedger(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "ledger",
		Short: "Give a copy of a ledger an identity of its own",
		Long:  "Give a copy of a ledger an identity of its own.",
	})
	c.AddCommand(newLedgerRenew(e))
	return c
}

// renewalView is what a renewal tells programs.
type renewalView struct {
	Ledger string    `json:"ledger"` // its URL, without a password
	Was    uuid.UUID `json:"was"`
	Is     uuid.UUID `json:"is"`
}

func newLedgerRenew(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "renew --reason TEXT",
		Short: "Give a ledger a new identity, so that its nodes and those of the original are apart",
		Long: "Give a ledger a new identity, so that its nodes and those of the original are apart.\n\n" +
			"A copy of a ledger has the identity of the original. Nodes tell ledgers apart by it: those of the copy\n" +
			"would be taken into the cluster of the original. Renew a copy that runs beside the original, before its\n" +
			"first node starts. A copy in the place of a lost original needs no new identity; a new one does no harm.\n\n" +
			"It asks no node, but the ledger of the configuration, with the URL of its owner, as `rollcall migrate` does.\n" +
			"It also removes what the ledger says of nodes. It refuses while a node works on the ledger, and for 10\n" +
			"seconds after one did. Nodes of a renewed ledger must not have run before: stop them first.",
		Example: "  ROLLCALL_LEDGER_URL=postgres://rollcall_owner@db/rehearsal rollcall ledger renew --reason 'copy for a " +
			"rehearsal'",
		Args: wantArgs(),
	}
	file, asJSON := configFlag(c), jsonFlag(c)
	reason := c.Flags().String("reason", "", "why, for the operator log; required")
	yes := c.Flags().Bool("yes", false, "do not ask")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *reason == "" {
			return term.UsageError("--reason is missing: write why, for whoever reads the operator log later")
		}
		loaded, err := config.Load(*file, e)
		if err != nil {
			return err
		}
		author, err := (&adminFlags{environ: e}).author()
		if err != nil {
			return err
		}
		name := ledgerName(loaded.Ledger.URL)
		if !*yes {
			if !term.IsTerminal(c.InOrStdin()) {
				return term.UsageError("there is no terminal to ask at: give --yes to renew the ledger " + name)
			}
			question := fmt.Sprintf("The ledger %s gets a new identity. Nodes that know the old one are refused.\nRenew it? "+
				"[y/N] ", name)
			if err := term.Confirm(c.InOrStdin(), c.ErrOrStderr(), question, errNotRenewed); err != nil {
				return err
			}
		}
		view := renewalView{Ledger: name}
		view.Was, view.Is, err = renew(ledger.WithAuthor(c.Context(), author), loaded.Ledger.URL, *reason)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), view)
		}
		fmt.Fprintf(c.OutOrStdout(), "the ledger %s has a new identity:\n%s, was %s\n", name, view.Is, view.Was)
		return nil
	}
	return c
}

// renew gives the ledger at a URL a new identity.
func renew(ctx context.Context, url, reason string) (was, is uuid.UUID, err error) {
	book, err := sqlstore.Open(ctx, url, sqlstore.Options{})
	if err != nil {
		return was, is, err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	if book.Embedded() {
		return was, is, errors.New("an embedded ledger has one node, which compares its identity with nobody: there is " +
			"nothing to renew")
	}
	was, is, err = book.RenewIdentity(ctx, cluster.DefaultTimes().Lost, reason)
	if errors.Is(err, ledger.ErrNodeAlive) {
		err = fmt.Errorf("%w. Stop all nodes of this ledger, wait for 10 seconds, and renew it again", err)
	}
	return was, is, err
}
