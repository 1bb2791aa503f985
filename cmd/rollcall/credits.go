package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// balanceView is a workspace's account: granted = available + held + spent.
type balanceView struct {
	Granted   int64 `json:"granted"`
	Available int64 `json:"available"`
	Held      int64 `json:"held"`
	Spent     int64 `json:"spent"`
}

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
			return usageError{fmt.Sprintf("%q is not a number of credits: write a whole number from 1", args[0])}
		}
		client, err := admin.client()
		if err != nil {
			return err
		}
		b, err := client.grant(c.Context(), *workspace, n, *reason)
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
			return usageError{"--all is for the entries of a verification: give --verification"}
		}
		client, err := admin.client()
		if err != nil {
			return err
		}
		if *verification != "" {
			list := entriesList{client: client, workspace: *workspace, verification: *verification, all: *all}
			return list.print(c.Context(), c.OutOrStdout(), *asJSON)
		}
		b, err := client.balance(c.Context(), *workspace)
		if err != nil {
			return err
		}
		return printBalance(c.OutOrStdout(), b, *asJSON)
	}
	return c
}

func printBalance(w io.Writer, b balanceView, asJSON bool) error {
	if asJSON {
		return printJSON(w, b)
	}
	return printTable(w, []string{"GRANTED", "AVAILABLE", "HELD", "SPENT"},
		[][]string{{grouped(b.Granted), grouped(b.Available), grouped(b.Held), grouped(b.Spent)}})
}

// grant gives credits; the id of the grant makes sure that a proxy that repeats
// the request grants once.
func (c *adminClient) grant(ctx context.Context, workspace string, n int64, reason string) (b balanceView,
	err error) {
	body := map[string]any{"id": uuid.NewString(), "credits": n, "reason": reason}
	return b, c.ask(ctx, "POST", "/v1/workspaces/"+workspace+"/credits", body, &b)
}

func (c *adminClient) balance(ctx context.Context, workspace string) (b balanceView, err error) {
	return b, c.ask(ctx, "GET", "/v1/workspaces/"+workspace+"/credits", nil, &b)
}
