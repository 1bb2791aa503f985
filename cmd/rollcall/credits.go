package main

import (
	"fmt"
	"io"
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
		Example: "  rollcall credits --api https://rollcall.example\n  rollcall credits show --workspace ID",
	})
	tenantCredits(c, e)
	admin := addAdminFlags(c, e)
	c.AddCommand(newCreditsGrant(admin), newCreditsShow(admin))
	return c
}

func newCreditsGrant(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "grant --workspace ID N",
		Short: "Give a workspace N credits; files that wait for credits go on",
		Args:  wantArgs("N"),
	}
	workspace, asJSON := workspaceFlag(c), jsonFlag(c)
	reason := c.Flags().String("reason", "", "why, for the book")
	c.RunE = func(c *cobra.Command, args []string) error {
		n, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || n < 1 {
			return term.UsageError(fmt.Sprintf("%q is not a number of credits: write a whole number from 1", args[0]))
		}
		client, err := admin.client()
		if err != nil {
			return err
		}
		b, err := client.Grant(c.Context(), *workspace, n, *reason)
		if err != nil {
			return err
		}
		return printBalance(c.OutOrStdout(), b, *asJSON)
	}
	return c
}

func newCreditsShow(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "show --workspace ID",
		Short: "Show a workspace's balance, or how one verification moved it",
		Args:  wantArgs(),
	}
	workspace, asJSON := workspaceFlag(c), jsonFlag(c)
	verification := c.Flags().String("verification", "", "show the entries of this verification")
	all := c.Flags().Bool("all", false, fmt.Sprintf("all its entries, not only the newest %d", entriesShown))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *all && *verification == "" {
			return term.UsageError("--all is for the entries of a verification: give --verification")
		}
		client, err := admin.client()
		if err != nil {
			return err
		}
		if *verification != "" {
			list := entriesList{client: client, workspace: *workspace, verification: *verification, all: *all}
			return list.print(c.Context(), c.OutOrStdout(), *asJSON)
		}
		b, err := client.Balance(c.Context(), *workspace)
		if err != nil {
			return err
		}
		return printBalance(c.OutOrStdout(), b, *asJSON)
	}
	return c
}

func printBalance(w io.Writer, b client.Balance, asJSON bool) error {
	if asJSON {
		return term.PrintJSON(w, b)
	}
	return term.PrintTable(w, []string{"GRANTED", "AVAILABLE", "HELD", "SPENT"},
		[][]string{{term.Grouped(b.Granted), term.Grouped(b.Available), term.Grouped(b.Held), term.Grouped(b.Spent)}})
}
