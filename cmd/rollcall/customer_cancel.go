package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
	"rollcall/ledger"
)

func newCancel(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel ID",
		Short: "End one of your verifications; what is not checked yet is given back",
		Long: "End one of your verifications. Addresses that have their outcome stay charged, and `rollcall results` has\n" +
			"them; what is not checked yet is given back. A verification that is over stays as it is.",
		Example: "  rollcall cancel 0b6f2c9e --api https://rollcall.example",
		Args:    wantArgs("ID"),
	}
	service, asJSON := addCustomerFlags(c, e), jsonFlag(c)
	c.ValidArgsFunction = completeVerification(service)
	c.RunE = service.ofVerification(func(c *cobra.Command, client *client.API, id string) error {
		done, err := client.Cancel(c.Context(), id)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), done)
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), cancelText(done))
		return err
	})
	return c
}

// cancelText says what became of a request to cancel.
func cancelText(done api.Cancellation) string {
	switch status := ledger.Status(done.Status); {
	case status == ledger.Cancelled:
		return fmt.Sprintf("%s is cancelled: what was not checked is given back", done.ID)
	case status.Final():
		return fmt.Sprintf("%s is %s already: there is nothing to cancel", done.ID, done.Status)
	}
	return fmt.Sprintf("%s is %s: what is not checked yet is given back", done.ID, done.Status)
}
