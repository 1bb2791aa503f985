package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
)

func newResults(e environment) *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "results ID",
		Short: "Get the results of one of your verifications, also while it goes on",
		Long: "Get the results of one of your verifications as CSV, with a closing table on standard error. While it goes " +
			"on\n" +
			"they are those that are final so far, and a line says so. Reading results costs nothing.",
		Example: "  rollcall results 0b6f2c9e --api https://rollcall.example --out results.csv",
		Args:    wantArgs("ID"),
	}
	service := addCustomerFlags(c, e)
	addOutFlags(c, &f.out)
	addFormFlags(c, &f)
	c.ValidArgsFunction = completeVerification(service)
	get := service.ofVerification(func(c *cobra.Command, client *client.API, id string) error {
		d, _, err := client.Detail(c.Context(), id)
		if err != nil {
			return err
		}
		r := &verifyRun{flags: f, view: newProgressView(c.ErrOrStderr()), stdout: c.OutOrStdout(), client: client}
		summary, err := r.deliver(c.Context(), d)
		if err != nil {
			return err
		}
		return r.close(summary)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.checkForm(); err != nil {
			return err
		}
		if err := f.out.Check(nil, c.OutOrStdout()); err != nil {
			return err
		}
		return get(c, args)
	}
	return c
}

// tenantCredits has `rollcall credits` without a subcommand show the balance of the API key's workspace.
func tenantCredits(group *cobra.Command, e environment) *cobra.Command {
	service, asJSON := addCustomerFlags(group, e), jsonFlag(group)
	unknown := group.RunE
	group.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(c, args)
		}
		client, err := service.client(c)
		if err != nil {
			return fmt.Errorf("%w; an operator asks for a workspace with `rollcall credits show --workspace ID`", err)
		}
		var balance api.Credits
		if _, err := client.AskJSON(c.Context(), http.MethodGet, "/v1/credits", nil, &balance); err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), balance)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s available\n", term.Counted(balance.Credits, "credit"))
		return err
	}
	return group
}
