package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

// watchEvery is how often a watched table is renewed: nodes beat every 3 s, and
// gossip sees most changes sooner.
const watchEvery = 2 * time.Second

func newClusterMembers(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "members",
		Short: "Show the nodes: state, version, load, and since when",
		Long: "Show the nodes as the one that is asked knows them; * is that one.\n\n" +
			"SINCE is for how long a node is in its state. LEASES are the verifications it works on, ADDRESSES\n" +
			"what is left to do of them, RECEIVERS those that live there. What is not as it should be stands below\n" +
			"the table, with what to do.",
		Example: "  rollcall cluster members --watch\n" +
			"  rollcall cluster members --json",
		Args: wantArgs(),
	}
	asJSON := jsonFlag(c)
	watch := c.Flags().Bool("watch", false, fmt.Sprintf("show them again every %d s, until Ctrl-C",
		int(watchEvery.Seconds())))
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := node.client()
		if err != nil {
			return err
		}
		v := membersScreen{client: client, out: c.OutOrStdout(), asJSON: *asJSON,
			redraw: term.IsTerminal(c.OutOrStdout()) && !*asJSON}
		if *watch {
			return v.watch(c.Context(), watchEvery)
		}
		known, err := client.Members(c.Context())
		if err != nil {
			return err
		}
		return v.print(known)
	}
	return c
}

// membersScreen shows the members of a cluster, once or again and again.
type membersScreen struct {
	client *client.Admin
	out    io.Writer
	asJSON bool
	redraw bool // on the screen, in place of what is there
}

func (v membersScreen) print(known admin.Membership) error {
	if v.asJSON {
		return term.PrintJSON(v.out, known)
	}
	return membersTable{known, time.Now()}.print(v.out, term.TableWidth(v.out))
}

// clearScreen takes the cursor home and clears what a terminal shows (ECMA-48).
const clearScreen = "\x1b[H\x1b[2J"

// watch shows them every so often until ctx ends, which is no error. A node that
// has answered once may go away and come back.
func (v membersScreen) watch(ctx context.Context, every time.Duration) error {
	for first := true; ; first = false {
		known, err := v.client.Members(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		if err = v.frame(known, err); err != nil {
			return err
		}
		if term.Sleep(ctx, every) != nil {
			return nil
		}
	}
}

// frame shows what a node said, or why it said nothing.
func (v membersScreen) frame(known admin.Membership, failed error) error {
	if v.asJSON {
		if failed != nil {
			return term.PrintJSON(v.out, map[string]string{"error": failed.Error()})
		}
		return v.print(known)
	}
	before, after := "", "\n"
	if v.redraw {
		before, after = clearScreen, ""
	}
	_, err := fmt.Fprintf(v.out, "%s%s\n", before, time.Now().Format(time.TimeOnly))
	switch {
	case err != nil:
	case failed != nil:
		_, err = fmt.Fprintln(v.out, term.Wrapped(failed.Error(), 0))
	default:
		err = v.print(known)
	}
	if err == nil {
		_, err = io.WriteString(v.out, after)
	}
	if err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
