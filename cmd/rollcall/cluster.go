package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
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
	c.AddCommand(newClusterMembers(node), newClusterDrain(node), newClusterUndrain(node), newClusterForget(node),
		newClusterKeys(node),
		newClusterCert(e))
	return c
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
		known, err := client.Members(ctx)
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
