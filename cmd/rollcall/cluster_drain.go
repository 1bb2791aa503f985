package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

// drainEvery is how often a drain is looked at. Guess: what a person does not
// take for a standstill.
const drainEvery = time.Second

// deafMax is how many answers in a row may fail while a drain is waited for: a
// ledger that is moved to another host is back by then. Guess.
const deafMax = 30

// errLostDraining says that a node was retired before it had given all away.
var errLostDraining = errors.New("was lost while it drained")

// errUndrained says that an operator took back that a node drains.
var errUndrained = errors.New("takes work again: somebody undrained it")

// errDeaf says that nobody tells how a drain or an undrain goes on.
var errDeaf = errors.New("how it goes on is not known")

func newClusterDrain(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Have a node give its work away and take no more",
		Long: "Have a node give its work away and take no more. Without NODE, and with --yes, it is the one that is " +
			"asked.\n\n" +
			"It gives its leases back and its receivers to the other nodes, which go on within seconds, and its /readyz\n" +
			"answers 503. When no other node serves, all files wait. It goes on to run: stop it when it has nothing left.\n" +
			"It takes work again when it is started again, or after `rollcall cluster undrain NODE`.",
		Example: "  rollcall cluster drain node-2 --wait && ssh node-2 systemctl restart rollcall\n" +
			"  rollcall cluster drain --yes --wait",
		Args:              oneNodeAtMost,
		ValidArgsFunction: completeNode(node),
	}
	asJSON := jsonFlag(c)
	wait := c.Flags().Bool("wait", false, "return when it has no leases and no receivers left")
	yes := c.Flags().Bool("yes", false, "without NODE: yes, the node that is asked")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && !*yes {
			return term.UsageError("NODE is missing: name one of `rollcall cluster members`, or give --yes for the node that " +
				"is " +
				"asked. It takes no more work until it is started again or undrained")
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		d := drain{client: client, tell: c.ErrOrStderr()}
		m, err := d.ask(c.Context(), cmp.Or(args...))
		if err == nil && *wait {
			m, err = d.wait(c.Context(), m, drainEvery)
		}
		switch {
		case err != nil:
			return err
		case *asJSON:
			return term.PrintJSON(c.OutOrStdout(), m)
		case *wait:
			fmt.Fprintf(c.OutOrStdout(), "%s has no leases and no receivers left: it can be stopped.\n", nodeTitle(m))
		default:
			fmt.Fprintf(c.OutOrStdout(), "%s is asked to drain: it gives its work away and takes no more until it is started "+
				"again\nor undrained. See `rollcall cluster members`.\n", nodeTitle(m))
		}
		return nil
	}
	return c
}

// oneNodeAtMost takes a NODE, or nothing.
func oneNodeAtMost(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return wantArgs("NODE")(c, args)
}

// drain has a node drained and looks at it.
type drain struct {
	client *client.Admin
	tell   io.Writer
}

// ask asks for the drain, and tells when nobody is left to work.
func (d drain) ask(ctx context.Context, node string) (m admin.Member, err error) {
	if err := d.client.Ask(ctx, "POST", "/v1/cluster/drain", nodeBody{node}, &m); err != nil {
		return m, err
	}
	known, err := d.client.Members(ctx)
	if err != nil { // the drain is asked for all the same
		return m, nil
	}
	if !slices.ContainsFunc(known.Members, func(o admin.Member) bool {
		return o.Node != m.Node && o.State == admin.StateServing
	}) {
		fmt.Fprintln(d.tell, "No other node serves: verifications rest until one does.")
	}
	return m, nil
}

// wait returns when that process has nothing left, and gives it as it then is.
// Its error wraps
// errLostDraining when it was retired before, errUndrained when it takes work again, errDeaf
// when nodes do not answer.
func (d drain) wait(ctx context.Context, m admin.Member, every time.Duration) (admin.Member, error) {
	drains := false
	return watchNode(ctx, d.client, d.tell, m, every, "drain", func(m admin.Member) (done bool, err error) {
		switch {
		case m.State == admin.StateLeft, m.State == admin.StateDraining && m.Leases == 0 && m.Receivers == 0:
			return true, nil
		case m.State == admin.StateLost:
			return true, fmt.Errorf("%s %w: other nodes take its work over by themselves; if its process is dead, run: "+
				"rollcall cluster forget %s", nodeTitle(m), errLostDraining, m.Node)
		case drains && (m.State == admin.StateServing || m.State == admin.StateUnfit):
			return true, fmt.Errorf("%s %w", nodeTitle(m), errUndrained)
		}
		drains = drains || m.State == admin.StateDraining
		return false, nil
	})
}

// watchNode looks at a process until ended says that there is nothing more to wait for, and
// gives it as it then is. It tells what changes. A process whose end is so long ago that it is
// not shown any more has left. Its error wraps errDeaf when nodes do not answer.
func watchNode(ctx context.Context, client *client.Admin, tell io.Writer, m admin.Member, every time.Duration,
	what string, ended func(admin.Member) (bool, error)) (admin.Member, error) {
	deaf, told := 0, ""
	for {
		known, err := client.Members(ctx)
		if err == nil {
			deaf = 0
			i := slices.IndexFunc(known.Members, func(o admin.Member) bool { return o.Session == m.Session })
			if i >= 0 {
				m = known.Members[i]
			} else {
				m.State, m.Leases, m.Addresses, m.Receivers = admin.StateLeft, 0, 0, 0
			}
			if done, err := ended(m); done {
				return m, err
			}
			if text := fmt.Sprintf("%s: leases %s, addresses %s, receivers %s", m.State, term.Grouped(int64(m.Leases)),
				term.Grouped(m.Addresses), term.Grouped(int64(m.Receivers))); text != told {
				told = text
				fmt.Fprintln(tell, text)
			}
		} else if deaf++; deaf >= deafMax {
			return m, fmt.Errorf("the %s was asked for, but %w: %w", what, errDeaf, err)
		}
		if term.Sleep(ctx, every) != nil {
			return m, fmt.Errorf("no longer waiting (%w); what was asked for stays asked for", ctx.Err())
		}
	}
}
