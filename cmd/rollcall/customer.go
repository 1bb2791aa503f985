package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// apiDefault is where a node's API is when nothing else is said.
const apiDefault = "http://127.0.0.1:8080"

// customerFlags are the flags of every command that asks the API as a customer does.
type customerFlags struct {
	environ environment
	url     string
	key     string
}

// addCustomerFlags adds --api and --key to a command.
func addCustomerFlags(c *cobra.Command, e environment) *customerFlags {
	f := &customerFlags{environ: e}
	c.Flags().StringVar(&f.url, "api", "", "the URL of the service; also ROLLCALL_API (default "+apiDefault+")")
	c.Flags().StringVar(&f.key, "key", "", "the API key; better ROLLCALL_KEY, which other users can't see")
	return f
}

// base is the URL of the service.
func (f *customerFlags) base() string {
	return firstSet(f.url, f.environ.value("ROLLCALL_API"), apiDefault)
}

// client makes a client from flags and environment, which tells what makes it wait on standard error.
func (f *customerFlags) client(c *cobra.Command) (*apiClient, error) {
	key := firstSet(f.key, f.environ.value("ROLLCALL_KEY"))
	if key == "" {
		return nil, usageError{"the API key is missing: set ROLLCALL_KEY or give --key"}
	}
	if err := checkBase("--api", f.base(), apiDefault); err != nil {
		return nil, err
	}
	return newAPIClient(f.base(), key, func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }), nil
}
