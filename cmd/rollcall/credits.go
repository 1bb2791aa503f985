package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
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
	reason := c.Flags().String("reason", "", "why, for the book")
	return adminCommand(node, c, func(to *client.Admin, args []string) (b admin.Balance, err error) {
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
	workspace, asJSON := workspaceFlag(c, node), jsonFlag(c)
	verification := c.Flags().String("verification", "", "show the entries of this verification (its id, or the "+
		"beginning of it)")
	must(c.RegisterFlagCompletionFunc("verification", completeVerificationAt(node)))
	all := c.Flags().Bool("all", false, fmt.Sprintf("all its entries, not only the newest %d", entriesShown))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *all && *verification == "" {
			return term.UsageError("--all is for the entries of a verification: give --verification")
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		if *verification != "" {
			id, err := verificationAt(c.Context(), client, *verification)
			if err != nil {
				return err
			}
			list := entriesList{client: client, workspace: *workspace, verification: id.String(), all: *all}
			return list.print(c.Context(), c.OutOrStdout(), *asJSON)
		}
		b, err := client.Balance(c.Context(), *workspace)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), b)
		}
		return printBalance(c.OutOrStdout(), b)
	}
	return c
}

func printBalance(w io.Writer, b admin.Balance) error {
	return term.PrintTable(w, []string{"GRANTED", "AVAILABLE", "HELD", "SPENT"},
		[][]string{{term.Grouped(int64(b.Granted)), term.Grouped(int64(b.Available)), term.Grouped(int64(b.Held)),
			term.Grouped(int64(b.Spent))}})
}

const (
	// entriesShown is how many entries are shown without --all: a screen.
	entriesShown = 50
	// entriesPage is how many are requested at once with --all: the largest page of the admin listener.
	entriesPage = 1000
)

// errOff ends a statement that does not add up.
var errOff = errors.New("the credits of this verification do not add up")

// entriesList reads the entries of one verification.
type entriesList struct {
	client                  *client.Admin
	workspace, verification string
	all                     bool
}

// page reads the entries after a cursor, "" for the newest.
func (l entriesList) page(ctx context.Context, after string) (s admin.Statement, err error) {
	limit := entriesShown
	if l.all {
		limit = entriesPage
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("after", after)
	}
	path := "/v1/workspaces/" + url.PathEscape(l.workspace) + "/verifications/" +
		url.PathEscape(l.verification) + "/entries?" + query.Encode()
	return s, l.client.Ask(ctx, "GET", path, nil, &s)
}

// print shows the entries as a table, page by page, or as JSON.
func (l entriesList) print(ctx context.Context, w io.Writer, asJSON bool) error {
	first, err := l.page(ctx, "")
	if err != nil {
		return err
	}
	if asJSON {
		for l.all && err == nil && first.Next != nil {
			var more admin.Statement
			more, err = l.page(ctx, *first.Next)
			first.Entries, first.Next = append(first.Entries, more.Entries...), more.Next
		}
		if err != nil {
			return err
		}
		return errors.Join(term.PrintJSON(w, first), checkStatement(first))
	}
	if err := printStatement(w, first); err != nil {
		return err
	}
	shown := int64(len(first.Entries))
	for page := first; l.all && page.Next != nil; shown += int64(len(page.Entries)) {
		if page, err = l.page(ctx, *page.Next); err == nil {
			err = printEntries(w, nil, page.Entries)
		}
		if err != nil {
			return err
		}
	}
	if shown < first.Count {
		fmt.Fprintf(w, "\nthe newest %s of %s entries; --all shows all\n", term.Grouped(shown), term.Grouped(first.Count))
	}
	return checkStatement(first)
}

// checkStatement is errOff unless a statement adds up.
func checkStatement(s admin.Statement) error {
	if s.AddsUp() {
		return nil
	}
	return fmt.Errorf("%w: run `rollcall audit`, and do as it says", errOff)
}

// printStatement shows the sums, how they add up, and the first page.
func printStatement(w io.Writer, s admin.Statement) error {
	addresses := "not counted yet"
	if s.Addresses >= 0 {
		addresses = term.Grouped(s.Addresses)
	}
	err := term.PrintTable(w, []string{"VERIFICATION", "STATUS", "ADDRESSES"},
		[][]string{{s.Verification.String(), string(s.Status), addresses}})
	if err != nil {
		return err
	}
	sign := "="
	if !s.AddsUp() {
		sign = "is not"
	}
	fmt.Fprintf(w, "\nheld %s %s charged %s + released %s + still held %s\n\n", term.Grouped(int64(s.Held)), sign,
		term.Grouped(int64(s.Charged)), term.Grouped(int64(s.Released)), term.Grouped(int64(s.StillHeld)))
	if s.Count == 0 {
		fmt.Fprintln(w, "there are no entries: nothing was held")
		return nil
	}
	return printEntries(w, []string{"TIME", "ENTRY", "SETTLEMENT", "CREDITS"}, s.Entries)
}

// entryColumns are as wide as their widest content, so that pages fit under each other.
const entryColumns = "%-24s  %-7s  %10s  %15s\n"

// printEntries shows one page; no headings for a further one.
func printEntries(w io.Writer, headings []string, list []admin.Entry) error {
	if headings != nil {
		fmt.Fprintf(w, entryColumns, headings[0], headings[1], headings[2], headings[3])
	}
	for _, e := range list {
		settlement := "-"
		if e.Settlement != nil {
			settlement = term.Grouped(*e.Settlement)
		}
		if _, err := fmt.Fprintf(w, entryColumns, e.At, e.Kind, settlement, term.Grouped(int64(e.Credits))); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
	}
	return nil
}
