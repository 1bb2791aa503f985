package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

// errNotForgotten ends a forget that was not confirmed.
var errNotForgotten = errors.New("nothing was forgotten")

func newClusterForget(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "forget NODE",
		Short: "Say that you know that a lost node is dead",
		Long: "Say that you know that a lost node is dead.\n\n" +
			"Nobody in the cluster can tell a dead node from one behind a broken network, which may still speak to\n" +
			"receivers. So those that it was speaking to rest, for 5 minutes at most, so that no limit is exceeded.\n" +
			"When you have seen its process or its machine dead, say so: its receivers are used in full at once. If it\n" +
			"is alive after all, limits of receivers may be exceeded. A node that beats in the ledger cannot be forgotten.",
		Example: "  rollcall cluster forget node-3\n" +
			"  rollcall cluster forget node-3 --yes     # in a script that has seen it dead",
		Args:              wantArgs("NODE"),
		ValidArgsFunction: completeNode(node),
	}
	asJSON := jsonFlag(c)
	yes := c.Flags().Bool("yes", false, "do not ask: I know that it is dead")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := node.client()
		if err != nil {
			return err
		}
		known, err := client.Members(c.Context())
		if err != nil {
			return err
		}
		m, err := admin.FindNode(known.Members, args[0], func(m admin.Member) bool { return m.State.Ended() })
		if err != nil {
			return err
		}
		if !*yes {
			if !term.IsTerminal(c.InOrStdin()) {
				return term.UsageError("there is no terminal to ask at: give --yes if you know that " + nodeTitle(m) + " is dead")
			}
			if err := confirmForget(c.InOrStdin(), c.ErrOrStderr(), m); err != nil {
				return err
			}
		}
		if err := client.Ask(c.Context(), "POST", "/v1/cluster/forget", nodeBody{m.Node.String()}, &m); err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), m)
		}
		fmt.Fprintln(c.OutOrStdout(), nodeTitle(m), "is forgotten.")
		return nil
	}
	return c
}

// confirmForget asks a person; errNotForgotten is any answer but yes.
func confirmForget(in io.Reader, out io.Writer, m admin.Member) error {
	return term.Confirm(in, out, fmt.Sprintf("%s, id %s, is %s for %s.\nTo forget it says: I know that its process is "+
		"dead. If it is not, "+
		"limits of\nreceivers may be exceeded.\nForget it? [y/N] ", term.Printable(m.Name), m.Node, m.State,
		term.Span(time.Since(time.Time(m.Since)))), errNotForgotten)
}
