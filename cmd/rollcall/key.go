package main

import (
	"fmt"
	"net/url"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
)

func newKey(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "key", Short: "Create, list and revoke API keys"})
	admin := addAdminFlags(c, e)
	c.AddCommand(newKeyCreate(admin), newKeyList(admin), newKeyRevoke(admin))
	return c
}

// workspaceFlag adds --workspace, which must be given and be an id.
func workspaceFlag(c *cobra.Command) *string {
	id := c.Flags().String("workspace", "", "the workspace's id, from 'rollcall workspace list' (required)")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *id == "" {
			return term.UsageError("--workspace is missing: give the id from `rollcall workspace list`")
		}
		if _, err := uuid.Parse(*id); err != nil {
			return term.UsageError(fmt.Sprintf("--workspace %q is not an id: see `rollcall workspace list`", *id))
		}
		return nil
	}
	return id
}

func newKeyCreate(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "create --workspace ID", Short: "Create an API key and show it, once",
		Args: wantArgs()}
	workspace, asJSON := workspaceFlag(c), jsonFlag(c)
	label := c.Flags().String("label", "", "a name for people, such as the program that uses the key")
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := admin.client()
		if err != nil {
			return err
		}
		k, err := client.CreateKey(c.Context(), *workspace, *label)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), k)
		}
		fmt.Fprintln(c.ErrOrStderr(), "Keep the key now: it is not shown again.")
		return term.PrintTable(c.OutOrStdout(), []string{"ID", "KEY"}, [][]string{{k.ID, k.Key}})
	}
	return c
}

func newKeyList(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "list --workspace ID", Short: "List a workspace's API keys", Args: wantArgs()}
	workspace, asJSON := workspaceFlag(c), jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		node, err := admin.client()
		if err != nil {
			return err
		}
		var list struct {
			Keys []client.Key `json:"keys"`
		}
		if err := node.Ask(c.Context(), "GET", "/v1/workspaces/"+*workspace+"/keys", nil, &list); err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), list)
		}
		rows := make([][]string, len(list.Keys))
		for i, k := range list.Keys {
			revoked := "-"
			if k.Revoked != nil {
				revoked = *k.Revoked
			}
			rows[i] = []string{k.ID, k.Label, k.Created, revoked}
		}
		return term.PrintTable(c.OutOrStdout(), []string{"ID", "LABEL", "CREATED", "REVOKED"}, rows)
	}
	return c
}

func newKeyRevoke(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "revoke KEYID", Short: "Revoke an API key; it stops working within 5 seconds",
		Args: wantArgs("KEYID")}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := admin.client()
		if err != nil {
			return err
		}
		var revoked struct {
			ID      string `json:"id"`
			Revoked string `json:"revoked_at"`
		}
		if err := client.Ask(c.Context(), "POST", "/v1/keys/"+url.PathEscape(args[0])+"/revoke", nil,
			&revoked); err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), revoked)
		}
		return term.PrintTable(c.OutOrStdout(), []string{"ID", "REVOKED"}, [][]string{{revoked.ID, revoked.Revoked}})
	}
	return c
}
