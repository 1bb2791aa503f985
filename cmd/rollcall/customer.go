package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
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
	return cmp.Or(f.url, f.environ.value("ROLLCALL_API"), apiDefault)
}

// client makes a client from flags and environment, which tells what makes it wait on standard error.
func (f *customerFlags) client(c *cobra.Command) (*client.API, error) {
	key := cmp.Or(f.key, f.environ.value("ROLLCALL_KEY"))
	if key == "" {
		return nil, term.UsageError("the API key is missing: set ROLLCALL_KEY or give --key")
	}
	if err := checkBase("--api", f.base(), apiDefault); err != nil {
		return nil, err
	}
	return client.NewAPI(f.base(), key, func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) }), nil
}
