package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rollcall/http/admin"
)

func newCluster(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "cluster",
		Short: "See the nodes, drain, undrain or forget one, change the gossip keys",
		Long: "See the nodes, drain, undrain or forget one, change the gossip keys.\n\n" +
			"Every node answers for the whole cluster. A NODE is its name, its id, or the beginning of its id, as\n" +
			"`rollcall cluster members` shows them.",
	})
	node := addAdminFlags(c, e)
	c.AddCommand(newClusterMembers(node), newClusterDrain(node), newClusterUndrain(node), newClusterForget(node), newClusterKeys(node),
		newClusterCert(e))
	return c
}

// members asks a node who is in the cluster.
func (c *adminClient) members(ctx context.Context) (m admin.Membership, err error) {
	return m, c.ask(ctx, "GET", "/v1/cluster/members", nil, &m)
}

// nodeBody is the body of a call about one node; "" is the node that is asked.
type nodeBody struct {
	Node string `json:"node"`
}

// completionTimeout bounds what a shell waits for the names of nodes. Guess: what
// a person at a prompt bears.
const completionTimeout = 2 * time.Second

// completeNode offers the names of nodes to a shell, for the first argument.
func completeNode(node *adminFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		client, err := node.client()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		known, err := client.members(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, m := range known.Members {
			names = append(names, fmt.Sprintf("%s\t%s, %s", m.Name, m.State, m.Node))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// isTerminal says whether a stream is a person's.
func isTerminal(stream any) bool {
	f, ok := fileOf(stream)
	return ok && term.IsTerminal(int(f.Fd()))
}

// waitFor waits, and says whether it waited to the end.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
