package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
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
	c.AddCommand(newClusterMembers(node), newClusterDrain(node), newClusterUndrain(node), newClusterForget(node),
		newClusterKeys(node), newClusterCert())
	return c
}

// drainEvery is how often a drain is checked. Guess: often enough not to look stuck.
const drainEvery = time.Second

// deafMax is how many requests in a row may fail while the command waits for a drain. A ledger that moves to another
// host is back by then. Guess.
const deafMax = 30

var errLostDraining = errors.New("was lost while it drained")

var errUndrained = errors.New("takes work again: somebody undrained it")

var errDeaf = errors.New("its progress is unknown")

func newClusterDrain(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Make a node give its work away and take no more",
		Long: "Make a node give its work away and take no more. --yes instead of NODE means the node that is asked.\n\n" +
			"It gives back its leases and receivers; other nodes take them over within seconds. Its /readyz then\n" +
			"answers 503. When no other node serves, all files wait. It keeps running: stop it when it has no work left.\n" +
			"It takes work again when it is started again, or after `rollcall cluster undrain NODE`.",
		Example: "  rollcall cluster drain node-2 --wait && ssh node-2 systemctl restart rollcall\n" +
			"  rollcall cluster drain --yes --wait",
	}
	return nodeChange{what: "drain", missing: " It takes no more work until it is started again or undrained",
		asked: "%s is asked to drain: it gives its work away and takes no more until it is started again\n" +
			"or undrained. See `rollcall cluster members`.\n",
		waits: "return when it has no leases and no receivers left", ended: untilDrained,
		done: "%s has no leases and no receivers left: it can be stopped.\n"}.newCommand(node, c)
}

// nodeChange is a command that asks a node to drain or to take work again.
type nodeChange struct {
	what    string // drain or undrain
	missing string // added to the error if no node is named
	asked   string // printed after the request; with --wait done is printed
	waits   string // the help of --wait
	ended   func() func(m admin.Member) (done bool, err error)
	done    string
}

func (n nodeChange) newCommand(node *adminFlags, c *cobra.Command) *cobra.Command {
	wait := c.Flags().Bool("wait", false, n.waits)
	yes := c.Flags().Bool("yes", false, "instead of NODE: the node that is asked")
	return adminCommand(node, c, func(to *client.Admin, args []string) (m admin.Member, err error) {
		if len(args) == 0 && !*yes {
			return m, term.UsageError("NODE is missing: name one of `rollcall cluster members`, or give --yes for the node " +
				"that is asked." + n.missing)
		}
		call := admin.NodeCall{Node: cmp.Or(args...)}
		if err := to.Ask(c.Context(), "POST", "/v1/cluster/"+n.what, call, &m); err != nil {
			return m, err
		}
		if n.what == "drain" {
			warnIfLast(c.Context(), to, c.ErrOrStderr(), m)
		}
		if *wait {
			return watchNode(c.Context(), to, c.ErrOrStderr(), m, drainEvery, n.what, n.ended())
		}
		return m, nil
	}, func(b *term.Page, m admin.Member) {
		text := n.asked
		if *wait {
			text = n.done
		}
		fmt.Fprintf(b, text, nodeTitle(m))
	})
}

// warnIfLast warns if no other node is left to work.
func warnIfLast(ctx context.Context, to *client.Admin, tell io.Writer, m admin.Member) {
	known, err := to.Members(ctx)
	if err == nil && !slices.ContainsFunc(known.Members, func(o admin.Member) bool {
		return o.Node != m.Node && o.State == admin.StateServing
	}) {
		fmt.Fprintln(tell, "No other node is serving: verifications wait until one is.")
	}
}

// untilDrained returns a function that reports whether a process has no work left. Its error wraps errLostDraining if
// the process was retired before, and errUndrained if it takes work again.
func untilDrained() func(admin.Member) (bool, error) {
	drains := false
	return func(m admin.Member) (done bool, err error) {
		switch {
		case m.State == admin.StateLeft, m.State == admin.StateDraining && m.Leases == 0 && m.Receivers == 0:
			return true, nil
		case m.State == admin.StateLost:
			return true, fmt.Errorf("%s %w: other nodes take its work over by themselves; if its process is dead, run: "+
				"rollcall cluster forget %s", nodeTitle(m), errLostDraining, m.Node)
		case drains && (m.State == admin.StateServing || m.State == admin.StateIneligible):
			return true, fmt.Errorf("%s %w", nodeTitle(m), errUndrained)
		}
		drains = drains || m.State == admin.StateDraining
		return false, nil
	}
}

// watchNode watches a process and prints its changes until ended returns true. It returns the last state; a process
// that is no longer listed has left. Its error wraps errDeaf if nodes do not answer.
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
			if text := fmt.Sprintf("%s: leases %s, addresses %s, receivers %s", m.State, term.Grouped(m.Leases),
				term.Grouped(m.Addresses), term.Grouped(m.Receivers)); text != told {
				told = text
				fmt.Fprintln(tell, text)
			}
		} else if deaf++; deaf >= deafMax {
			return m, fmt.Errorf("the %s was asked for, but %w: %w", what, errDeaf, err)
		}
		if term.Sleep(ctx, every) != nil {
			return m, fmt.Errorf("no longer waiting (%w); the request stays in effect", ctx.Err())
		}
	}
}

var errNotForgotten = errors.New("nothing was forgotten")

func newClusterForget(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "forget NODE",
		Short: "State that a lost node is dead",
		Long: "State that a lost node is dead.\n\n" +
			"Nobody in the cluster can tell a dead node from one behind a broken network, which may still speak to\n" +
			"receivers. Receivers it was connected to are paused for up to 5 minutes, so that no limit is exceeded.\n" +
			"When you have seen its process or its machine dead, say so: its receivers are used in full at once. If it\n" +
			"is alive after all, limits of receivers may be exceeded. A node with heartbeats can't be forgotten.",
		Example: "  rollcall cluster forget node-3\n" +
			"  rollcall cluster forget node-3 --yes     # in a script that has seen it dead",
	}
	yes := c.Flags().Bool("yes", false, "do not ask: I know that it is dead")
	return adminCommand(node, c, func(client *client.Admin, args []string) (m admin.Member, err error) {
		known, err := client.Members(c.Context())
		if err != nil {
			return m, err
		}
		m, err = admin.FindNode(known.Members, args[0], func(m admin.Member) bool { return m.State.Ended() })
		if err != nil {
			return m, err
		}
		if !*yes {
			if !term.IsTerminal(c.InOrStdin()) {
				return m, term.UsageError("there is no terminal to ask at: give --yes if you know that " + nodeTitle(m) +
					" is dead")
			}
			if err := confirmForget(c.InOrStdin(), c.ErrOrStderr(), m); err != nil {
				return m, err
			}
		}
		return m, client.Ask(c.Context(), "POST", "/v1/cluster/forget", admin.NodeCall{Node: m.Node.String()}, &m)
	}, func(b *term.Page, m admin.Member) { fmt.Fprintln(b, nodeTitle(m), "is forgotten.") })
}

func confirmForget(in io.Reader, out io.Writer, m admin.Member) error {
	return term.Confirm(in, out, fmt.Sprintf("%s, id %s, is %s for %s.\nTo forget it says: I know that its process is "+
		"dead. If it is not, "+
		"limits of\nreceivers may be exceeded.\nForget it? [y/N] ", term.Printable(m.Name), m.Node, m.State,
		term.Span(time.Since(time.Time(m.Since)))), errNotForgotten)
}

// watchEvery is how often a watched table is refreshed. Nodes write heartbeats every 3 s; gossip sees most changes
// sooner.
const watchEvery = 2 * time.Second

func newClusterMembers(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "members",
		Short: "Show the nodes: state, version, load, and since when",
		Long: "Show the nodes as known to the asked node, which is marked with *.\n\n" +
			"SINCE is how long a node has been in its state. LEASES are the verifications it works on, ADDRESSES their\n" +
			"open addresses, RECEIVERS the receivers that it asks. Problems are listed below the table, with what to do.",
		Example: "  rollcall cluster members --watch\n" +
			"  rollcall cluster members --json",
	}
	return watchCommand(node, c, watchEvery, func(ctx context.Context, to *client.Admin, _ []string) (admin.Membership,
		error) {
		return to.Members(ctx)
	}, func(b *term.Page, known admin.Membership, _ int) { membersTable{known, time.Now()}.print(b) })
}

type membersTable struct {
	admin.Membership
	now time.Time
}

const (
	nameLeast   = 6
	versionMost = 10
	nameMost    = 40 // in a sentence
)

func (t membersTable) print(b *term.Page) {
	by := "a node"
	g := term.Table{Columns: []term.Column{{Name: "  NODE"}, {Name: "NAME", Least: nameLeast}, {Name: "STATE"},
		{Name: "VERSION"}, {Name: "SINCE"}, {Name: "LEASES", Right: true}, {Name: "ADDRESSES", Right: true},
		{Name: "RECEIVERS", Right: true}}}
	for _, m := range t.Members {
		mark := "  "
		if m.This {
			mark, by = "* ", term.Clipped(m.Name, 30)
		}
		g.Add(mark+m.Node.String()[:8], term.Printable(m.Name), string(m.State), term.Middle(m.Version, versionMost),
			term.Span(t.now.Sub(time.Time(m.Since))), term.Short(m.Leases), term.Short(m.Addresses),
			term.Short(m.Receivers))
	}
	fmt.Fprintf(b, "cluster %s as %s sees it\n\n", term.Clipped(t.Cluster, 30), by)
	b.Table(&g)
	b.Notes(t.notes()...)
}

// Limits above which a note about a member is shown.
const (
	heartbeatLate = 8 * time.Second // since its last heartbeat; later the fence stops the node
	clockOffset   = time.Second     // between its clock and the ledger's
	ledgerOld     = 8 * time.Second // since the ledger was read
)

type trouble struct {
	of   func(m admin.Member) (detail string, there bool)
	what string // a name for it
	do   string // what it means, and what to do
}

func stands(state admin.State) func(admin.Member) (string, bool) {
	return func(m admin.Member) (string, bool) { return "", m.State == state }
}

// troubles are all possible problems, the worst first.
var troubles = []trouble{
	{stands(admin.StateLost), "Lost", "No heartbeat in time. Receivers with which it may still have SMTP sessions are " +
		"paused for 5 minutes, or until it is back. When you know that its process is dead: rollcall cluster forget NODE"},
	{stands(admin.StateUnseen), "Unseen", "Writes heartbeats, but gossip does not see it: check that " +
		"cluster.gossip_listen can be reached by TCP and UDP in both directions, and that the gossip keys are the same."},
	{stands(admin.StateUnlinked), "Unlinked", "Seen by gossip, but actor traffic gets no answer: check that " +
		"cluster.actor_listen can be reached by TCP in both directions, and the certificates."},
	{stands(admin.StateSuspect), "Suspect", "No answer to gossip: a node that stays so counts as dead within seconds."},
	{stands(admin.StateDraining), "Draining", "Can be stopped when LEASES and RECEIVERS are 0."},
	{stands(admin.StateIneligible), "Ineligible", "Its address, names or port 25 fail a check, so receivers would " +
		"refuse it, and other nodes probe: run `rollcall doctor` there."},
	{heartbeatsLate, "No heartbeat", "A node that does not reach the ledger asks no receiver until it does: check " +
		"[ledger] url, the network and the database."},
	{clockDiffers, "Clock is off", "Compared with the ledger's. No limit depends on it, but times in logs and " +
		"certificates do."},
	{disagrees, "Views differ", "The view of a node differs from the answering node's, or is not settled yet. " +
		"Until then receivers claimed by two nodes get only a part of their limits."},
}

func heartbeatsLate(m admin.Member) (string, bool) {
	if m.HeartbeatAge == nil || m.State.Ended() || term.Seconds(*m.HeartbeatAge) < heartbeatLate {
		return "", false
	}
	return "for " + term.Span(term.Seconds(*m.HeartbeatAge)), true
}

func clockDiffers(m admin.Member) (string, bool) {
	if m.ClockOffset == nil {
		return "", false
	}
	off := time.Duration(*m.ClockOffset) * time.Millisecond
	side := "ahead"
	if off < 0 {
		side = "behind"
	}
	return term.Span(off.Abs()) + " " + side, off.Abs() >= clockOffset
}

func disagrees(m admin.Member) (string, bool) { return "", !m.Agreed && !m.State.Ended() }

func (t membersTable) notes() (notes []string) {
	if age := term.Seconds(t.LedgerAge); age >= ledgerOld {
		notes = append(notes, fmt.Sprintf("This node has not read the ledger for %s: heartbeats, loads and ended "+
			"nodes are that old. Check [ledger] url and the database.", term.Span(age)))
	}
	for _, x := range troubles {
		var names []string
		for _, m := range t.Members {
			if detail, there := x.of(m); there {
				names = append(names, strings.TrimSpace(nodeTitle(m)+" "+detail))
			}
		}
		if len(names) > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s. %s", x.what, term.Some(names), x.do))
		}
	}
	if runs := t.versions(); len(runs) > 1 {
		notes = append(notes, fmt.Sprintf("Several versions run: %s.", term.Some(runs)))
	}
	return notes
}

func (t membersTable) versions() (runs []string) {
	count := map[string]int{}
	for _, m := range t.Members {
		if !m.State.Ended() {
			count[term.Printable(m.Version)]++
		}
	}
	for _, version := range slices.Sorted(maps.Keys(count)) {
		runs = append(runs, fmt.Sprintf("%s (%d)", version, count[version]))
	}
	return runs
}

func nodeTitle(m admin.Member) string {
	return fmt.Sprintf("%s (%.8s)", term.Clipped(m.Name, nameMost), m.Node)
}

var errNotServing = errors.New("takes no work")

func newClusterUndrain(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "undrain [NODE]",
		Short: "Make a drained node take work again",
		Long: "Make a drained node take work again. --yes instead of NODE means the node that is asked.\n\n" +
			"Within seconds it takes verifications and receivers again, and its /readyz answers 200. You can run it at\n" +
			"any time during a drain. It ends only what `rollcall cluster drain` began: a node that is shutting down\n" +
			"still shuts down. A node that nobody drained stays as it is.",
		Example: "  rollcall cluster undrain node-2 --wait\n" +
			"  rollcall cluster undrain --yes",
	}
	return nodeChange{what: "undrain", asked: "%s is asked to take work again. See `rollcall cluster members`.\n",
		waits: "return when it takes work", ended: untilServing, done: "%s takes work.\n"}.newCommand(node, c)
}

// ineligibleLooks is how many looks in a row must find a node ineligible. Until its next heartbeat, an undrained node
// looks the same, because its view still lacks the node itself.
const ineligibleLooks = 5

// untilServing returns a function that reports whether a process takes work. Its error wraps errNotServing if that
// needs an operator.
func untilServing() func(admin.Member) (bool, error) {
	ineligible := 0
	return func(m admin.Member) (bool, error) {
		switch m.State {
		case admin.StateServing:
			return true, nil
		case admin.StateLeft, admin.StateLost:
			return true, fmt.Errorf("%s %w: it has ended (%s). Start it, and it takes work", nodeTitle(m), errNotServing,
				m.State)
		case admin.StateIneligible:
			if ineligible++; ineligible < ineligibleLooks {
				return false, nil
			}
			return true, fmt.Errorf("%s %w: it does not drain, but its identity fails a check: run `rollcall doctor` there",
				nodeTitle(m), errNotServing)
		}
		return false, nil
	}
}
