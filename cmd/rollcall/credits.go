package main

import (
	"fmt"
	"rollcall/ledger"
	"strconv"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
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
	c := &cobra.Command{Use: "show --workspace NAME", Short: "Show a workspace's balance"}
	workspace := workspaceFlag(c, node)
	return adminCommand(node, c, func(to *client.Admin, _ []string) (ledger.Balance, error) {
		return to.Balance(c.Context(), *workspace)
	}, printBalance)
}

func printBalance(b *term.Page, of ledger.Balance) {
	b.Rows([]string{"GRANTED", "AVAILABLE", "HELD", "SPENT"},
		[][]string{{term.Grouped(int64(of.Granted)), term.Grouped(int64(of.Available)), term.Grouped(int64(of.Held)),
			term.Grouped(int64(of.Spent))}})
}
