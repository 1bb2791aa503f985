package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

// errNotServing says that a node does not take work though nobody wants it to drain.
var errNotServing = errors.New("takes no work")

func newClusterUndrain(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "undrain [NODE]",
		Short: "Have a node that was drained take work again",
		Long: "Have a node that was drained take work again. Without NODE, and with --yes, it is the one that is asked.\n\n" +
			"Within seconds it takes verifications and receivers again, and its /readyz answers 200. You can run it at\n" +
			"any time during a drain. It ends only what `rollcall cluster drain` began: a node that is shutting down\n" +
			"still shuts down. A node that nobody drained stays as it is.",
		Example: "  rollcall cluster undrain node-2 --wait\n" +
			"  rollcall cluster undrain --yes",
		Args:              oneNodeAtMost,
		ValidArgsFunction: completeNode(node),
	}
	asJSON := jsonFlag(c)
	wait := c.Flags().Bool("wait", false, "return when it takes work")
	yes := c.Flags().Bool("yes", false, "without NODE: yes, the node that is asked")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && !*yes {
			return term.UsageError("NODE is missing: name one of `rollcall cluster members`, or give --yes for the node that " +
				"is asked")
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		var m admin.Member
		err = client.Ask(c.Context(), "POST", "/v1/cluster/undrain", nodeBody{cmp.Or(args...)}, &m)
		if err == nil && *wait {
			m, err = waitServing(c.Context(), client, c.ErrOrStderr(), m, drainEvery)
		}
		switch {
		case err != nil:
			return err
		case *asJSON:
			return term.PrintJSON(c.OutOrStdout(), m)
		case *wait:
			fmt.Fprintf(c.OutOrStdout(), "%s takes work.\n", nodeTitle(m))
		default:
			fmt.Fprintf(c.OutOrStdout(), "%s is asked to take work again. See `rollcall cluster members`.\n", nodeTitle(m))
		}
		return nil
	}
	return c
}

// waitServing returns when a process takes work, and gives it as it then is. Its error
// wraps errNotServing when that will not be by itself, errDeaf when nodes do not answer.
func waitServing(ctx context.Context, client *client.Admin, tell io.Writer, m admin.Member,
	every time.Duration) (admin.Member, error) {
	return watchNode(ctx, client, tell, m, every, "undrain", func(m admin.Member) (bool, error) {
		switch m.State {
		case admin.StateServing:
			return true, nil
		case admin.StateLeft, admin.StateLost:
			return true, fmt.Errorf("%s %w: it has ended (%s). Start it, and it takes work", nodeTitle(m), errNotServing,
				m.State)
		case admin.StateUnfit:
			return true, fmt.Errorf("%s %w: it does not drain, but its identity fails a check: run `rollcall doctor` there",
				nodeTitle(m), errNotServing)
		}
		return false, nil
	})
}
