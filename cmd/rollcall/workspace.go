package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/ledger"
)

func newWorkspace(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "workspace", Short: "Create and list workspaces, the paying tenants, weigh and " +
		"limit them"})
	admin := addAdminFlags(c, e)
	c.AddCommand(newWorkspaceCreate(admin), newWorkspaceList(admin), newWorkspaceWeight(admin),
		newWorkspaceLimits(admin))
	return c
}

func newWorkspaceCreate(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "create NAME", Short: "Create a workspace", Args: wantArgs("NAME")}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		operator, err := admin.client()
		if err != nil {
			return err
		}
		w, err := operator.CreateWorkspace(c.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), client.Workspace{ID: w.ID, Name: w.Name})
		}
		return term.PrintTable(c.OutOrStdout(), []string{"WORKSPACE", "NAME"}, [][]string{{w.ID, w.Name}})
	}
	return c
}

func newWorkspaceList(admin *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the workspaces", Args: wantArgs()}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		operator, err := admin.client()
		if err != nil {
			return err
		}
		var list struct {
			Workspaces []client.Workspace `json:"workspaces"`
		}
		if err := operator.Ask(c.Context(), "GET", "/v1/workspaces", nil, &list); err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), list)
		}
		rows := make([][]string, len(list.Workspaces))
		for i, w := range list.Workspaces {
			rows[i] = []string{w.ID, w.Name, fmt.Sprint(w.Weight), w.Created}
		}
		return term.PrintTable(c.OutOrStdout(), []string{"WORKSPACE", "NAME", "WEIGHT", "CREATED"}, rows)
	}
	return c
}

func newWorkspaceWeight(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "weight WORKSPACE N",
		Short: "Give a workspace N turns at each receiver for one of another",
		Long: "Give a workspace N turns at each receiver for one of a workspace of weight 1, on all nodes within two\n" +
			"seconds. Turns go round by workspace and then by verification, so that a small file does not wait for a\n" +
			"large one.",
		Example: "  rollcall workspace weight 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b 3",
		Args:    wantArgs("WORKSPACE", "N"), ValidArgsFunction: completeWorkspace(node),
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := uuid.Parse(args[0])
		if err != nil {
			return term.UsageError(fmt.Sprintf("WORKSPACE %q is no id: see `rollcall workspace list`", args[0]))
		}
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 || n > ledger.WeightMax {
			return term.UsageError(fmt.Sprintf("N %q: write a whole number from 1 to %d", args[1], ledger.WeightMax))
		}
		operator, err := node.client()
		if err != nil {
			return err
		}
		var w client.Workspace
		if err := operator.Ask(c.Context(), "POST", "/v1/workspaces/"+id.String()+"/weight", map[string]int{"weight": n},
			&w); err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), w)
		}
		return term.PrintTable(c.OutOrStdout(), []string{"WORKSPACE", "NAME", "WEIGHT"},
			[][]string{{w.ID, w.Name, fmt.Sprint(w.Weight)}})
	}
	return c
}

// completeWorkspace offers the ids of the workspaces, with their names.
func completeWorkspace(node *adminFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		operator, err := node.client()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		var list struct {
			Workspaces []client.Workspace `json:"workspaces"`
		}
		if err := operator.Ask(ctx, "GET", "/v1/workspaces", nil, &list); err == nil {
			for _, w := range list.Workspaces {
				ids = append(ids, w.ID+"\t"+term.Printable(w.Name))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
