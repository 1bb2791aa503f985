package main

import (
	"context"

	"github.com/spf13/cobra"
)

// workspaceView is a workspace as the admin listener shows it.
type workspaceView struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Created string `json:"created_at,omitempty"`
}

func newWorkspace(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "workspace", Short: "Create and list workspaces, the paying tenants"})
	admin := addAdminFlags(c, e)
	c.AddCommand(newWorkspaceCreate(admin), newWorkspaceList(admin))
	return c
}

func newWorkspaceCreate(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "create NAME", Short: "Create a workspace", Args: wantArgs("NAME")}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := admin.client()
		if err != nil {
			return err
		}
		w, err := client.createWorkspace(c.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.OutOrStdout(), workspaceView{ID: w.ID, Name: w.Name})
		}
		return printTable(c.OutOrStdout(), []string{"WORKSPACE", "NAME"}, [][]string{{w.ID, w.Name}})
	}
	return c
}

func newWorkspaceList(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the workspaces", Args: wantArgs()}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := admin.client()
		if err != nil {
			return err
		}
		var list struct {
			Workspaces []workspaceView `json:"workspaces"`
		}
		if err := client.ask(c.Context(), "GET", "/v1/workspaces", nil, &list); err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.OutOrStdout(), list)
		}
		rows := make([][]string, len(list.Workspaces))
		for i, w := range list.Workspaces {
			rows[i] = []string{w.ID, w.Name, w.Created}
		}
		return printTable(c.OutOrStdout(), []string{"WORKSPACE", "NAME", "CREATED"}, rows)
	}
	return c
}

func (c *adminClient) createWorkspace(ctx context.Context, name string) (w workspaceView, err error) {
	return w, c.ask(ctx, "POST", "/v1/workspaces", map[string]string{"name": name}, &w)
}

// ask is call with the bound adminTimeout.
func (c *adminClient) ask(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	return c.call(ctx, method, path, in, out)
}
