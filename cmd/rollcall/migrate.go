package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"rollcall/config"
	"rollcall/ledger/sqlstore"
)

func newMigrate(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the ledger's schema up to date; safe to run again",
		Args:  wantArgs(),
	}
	file := configFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := config.Load(*file, e)
		if err != nil {
			return err
		}
		tell := func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
		if err := sqlstore.Migrate(c.Context(), loaded.Ledger.URL, tell); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), "the ledger's schema is up to date")
		return nil
	}
	return c
}
