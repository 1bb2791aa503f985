package main

import (
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
)

// addOutFlags adds --out and --force to a command.
func addOutFlags(c *cobra.Command, o *term.OutFile) {
	c.Flags().StringVar(&o.Name, "out", "", "write the results to this `FILE` instead of standard output; it must not "+
		"exist")
	c.Flags().BoolVar(&o.Force, "force", false, "with --out: replace the file if it exists; never the input")
}

// jsonFlag adds --json to a command and gives where its value will be.
func jsonFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("json", false, "print JSON for programs")
}
