package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
)

// ofVerification runs a command for the verification that its first argument names.
func (f *customerFlags) ofVerification(
	do func(c *cobra.Command, client *client.API, id string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		client, err := f.client(c)
		if err != nil {
			return err
		}
		id, err := client.VerificationID(c.Context(), args[0])
		if err != nil {
			return err
		}
		return do(c, client, id)
	}
}

// completeVerification offers the ids of the newest verifications.
func completeVerification(service *customerFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		const nothing = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, nothing
		}
		customer, err := service.client(c)
		if err != nil {
			return nil, nothing
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		customer.Notice = func(string) {}
		page, err := customer.History(ctx, client.HistoryPageMax, nil)
		if err != nil {
			return nil, nothing
		}
		var ids []string
		for _, v := range page.Verifications {
			ids = append(ids, fmt.Sprintf("%s\t%s, %s", v.ID, v.Status, client.FileName(v.Filename)))
		}
		return ids, nothing
	}
}
