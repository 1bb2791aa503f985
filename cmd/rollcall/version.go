package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
)

func newVersion() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Say which version this is", Args: wantArgs()}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		v := node.VersionOf(debug.ReadBuildInfo())
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), v)
		}
		_, err := fmt.Fprintln(c.OutOrStdout(), v)
		return err
	}
	return c
}
