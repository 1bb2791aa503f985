package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/ledger"
)

func newCredits(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use: "credits", Short: "Show your balance; operators grant credits and show the balance of a workspace",
		Long: "Without a subcommand: show how many credits the workspace of your API key has available (--api, --key).\n" +
			"The subcommands are for operators and ask the admin listener (--admin, --token).",
		Example: "  rollcall credits --api https://rollcall.example\n  rollcall credits show --workspace NAME",
	})
	tenantCredits(c, e)
	node := addAdminFlags(c, e)
	c.AddCommand(newCreditsGrant(node), newCreditsShow(node))
	return c
}

func newCreditsGrant(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "grant --workspace NAME N",
		Short: "Give a workspace N credits; files that wait for credits go on",
	}
	workspace := workspaceFlag(c, node)
	reason := c.Flags().String("reason", "", "why, for the ledger")
	return adminCommand(node, c, func(to *client.Admin, args []string) (b ledger.Balance, err error) {
		n, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || n < 1 {
			return b, term.UsageError(fmt.Sprintf("%q is not a number of credits: write a whole number from 1", args[0]))
		}
		return to.Grant(c.Context(), *workspace, n, *reason)
	}, printBalance)
}

func newCreditsShow(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "show --workspace NAME",
		Short: "Show a workspace's balance, or how one verification moved it",
	}
	workspace := workspaceFlag(c, node)
	verification := c.Flags().String("verification", "", "show the entries of this verification (its id, or the "+
		"beginning of it)")
	all := c.Flags().Bool("all", false, fmt.Sprintf("all its entries, not only the newest %d", entriesShown))
	return adminCommand(node, c, func(to *client.Admin, _ []string) (any, error) {
		switch {
		case *all && *verification == "":
			return nil, term.UsageError("--all is for the entries of a verification: give --verification")
		case *verification == "":
			return to.Balance(c.Context(), *workspace)
		}
		id, err := verificationAt(c.Context(), to, *verification)
		if err != nil {
			return nil, err
		}
		return readStatement(c.Context(), to, *workspace, id, *all)
	}, func(b *term.Page, answer any) {
		switch a := answer.(type) {
		case statement:
			printStatement(b, a)
		case ledger.Balance:
			printBalance(b, a)
		}
	})
}

func printBalance(b *term.Page, of ledger.Balance) {
	b.Rows([]string{"GRANTED", "AVAILABLE", "HELD", "SPENT"},
		[][]string{{term.Grouped(of.Granted), term.Grouped(of.Available), term.Grouped(of.Held),
			term.Grouped(of.Spent)}})
}

const (
	// entriesShown is how many entries are shown without --all: a screen.
	entriesShown = 50
	// entriesPage is how many entries one request gets with --all: the largest page of the admin listener.
	entriesPage = 1000
)

var errOff = errors.New("the credits of this verification do not add up")

// statement lists how the credits of one verification were held, charged and released.
type statement struct{ admin.Statement }

// readStatement reads the newest entries of a verification, or all entries.
func readStatement(ctx context.Context, to *client.Admin, workspace string, verification uuid.UUID,
	all bool) (s statement, err error) {
	limit := entriesShown
	if all {
		limit = entriesPage
	}
	path := fmt.Sprintf("/v1/workspaces/%s/verifications/%s/entries?limit=%d", url.PathEscape(workspace), verification,
		limit)
	err = to.Ask(ctx, "GET", path, nil, &s.Statement)
	for all && err == nil && s.Next != nil {
		var more admin.Statement
		err = to.Ask(ctx, "GET", path+"&after="+url.QueryEscape(*s.Next), nil, &more)
		s.Entries, s.Next = append(s.Entries, more.Entries...), more.Next
	}
	return s, err
}

func (s statement) failsWith() error {
	if s.AddsUp() {
		return nil
	}
	return fmt.Errorf("%w: run `rollcall audit`, and do as it says", errOff)
}

func printStatement(b *term.Page, s statement) {
	addresses := "not counted yet"
	if s.Addresses >= 0 {
		addresses = term.Grouped(s.Addresses)
	}
	b.Rows([]string{"VERIFICATION", "STATUS", "ADDRESSES"},
		[][]string{{s.Verification.String(), string(s.Status), addresses}})
	sign := "="
	if !s.AddsUp() {
		sign = "is not"
	}
	fmt.Fprintf(b, "\nheld %s %s charged %s + released %s + still held %s\n\n", term.Grouped(s.Held), sign,
		term.Grouped(s.Charged), term.Grouped(s.Released), term.Grouped(s.StillHeld))
	if s.Count == 0 {
		fmt.Fprintln(b, "there are no entries: nothing was held")
		return
	}
	const columns = "%-24s  %-7s  %10s  %15s\n" // as wide as their widest content
	fmt.Fprintf(b, columns, "TIME", "ENTRY", "SETTLEMENT", "CREDITS")
	for _, e := range s.Entries {
		settlement := "-"
		if e.Settlement != nil {
			settlement = term.Grouped(*e.Settlement)
		}
		fmt.Fprintf(b, columns, e.At, e.Kind, settlement, term.Grouped(e.Credits))
	}
	if shown := int64(len(s.Entries)); shown < s.Count {
		fmt.Fprintf(b, "\nthe newest %s of %s entries; --all shows all\n", term.Grouped(shown), term.Grouped(s.Count))
	}
}
