package cluster_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster/clustertest"
	"rollcall/config/effort"
	"rollcall/ledger"
)

// ownersOf returns which node has the whole of each key, and waits until one has. Shares may move for a moment, as
// after a drain that was taken back.
func ownersOf(w *clustertest.World, nodes ...int) map[string]int {
	owners := map[string]int{}
	for _, key := range w.Use.Keys() {
		w.Await("a node may use the whole of "+key, func() bool {
			i := slices.IndexFunc(nodes, func(i int) bool { k, n := w.Node(i).Share(key); return k == n })
			if i >= 0 {
				owners[key] = nodes[i]
			}
			return i >= 0
		})
	}
	return owners
}

func nodesOf(w *clustertest.World, numbers ...int) (nodes []*clustertest.Node) {
	for _, i := range numbers {
		nodes = append(nodes, w.Node(i))
	}
	return nodes
}

// awaitUsed waits until nodes use every key wholly, so that ApplyShares has been called too.
func awaitUsed(w *clustertest.World) {
	for key := range w.Use.Keys() {
		w.Await("every key is used wholly", func() bool { _, sum := w.Use.Of(key); return sum == 1 })
	}
}

// awaitAll waits until some nodes together may use everything, and do use it.
func awaitAll(w *clustertest.World, numbers ...int) {
	w.AwaitShared(nodesOf(w, numbers...)...)
	awaitUsed(w)
}

// wantOwners expects each key at the node that had it before.
func wantOwners(t *testing.T, before, after map[string]int) {
	t.Helper()
	for key, owner := range after {
		effort.Is(t, owner, before[key], key, "now with node-, and was with node- before")
	}
}

// rowOf returns the row of node of, as node by has read it.
func rowOf(w *clustertest.World, by, of int) *ledger.NodeRow {
	for _, row := range w.Node(by).Snapshot().Nodes {
		if row.Session == w.Node(of).Meta().Session {
			return &row
		}
	}
	return nil
}

func stands(w *clustertest.World, by, of int, want ledger.NodeStatus) func() bool {
	return func() bool { row := rowOf(w, by, of); return row != nil && row.Status == want }
}

// resolveAll finds, from one node, a virtual actor for each key. Each must live once, on the node that owns its key.
func resolveAll(w *clustertest.World, from int, owners map[string]int) {
	for key, owner := range owners {
		w.Await(fmt.Sprintf("%s lives on node-%d alone", key, owner), func() bool {
			pid := w.Node(from).Resolve(clustertest.EchoKind, key)
			return pid != nil && pid.Address == w.Node(owner).Meta().Actors && slices.Equal(w.Echo.Living(key), []int{owner})
		})
	}
}

// TestNodesComeAndDie: a new node gets its part when the others have reduced theirs, a killed process is counted out,
// and a process started again in its place has the same part as before.
func TestNodesComeAndDie(t *testing.T) {
	effort.NotShort(t, "a whole story of five nodes takes seconds")
	var third uuid.UUID
	w := clustertest.New(t, 5, func(i int, o *clustertest.Options) {
		switch i {
		case 2:
			third = o.Node
		case 4:
			o.Node = third
		}
	})
	for i := range 3 {
		w.MustJoin(i)
	}
	awaitAll(w, 0, 1, 2)
	before := ownersOf(w, 0, 1, 2)
	w.Story("a new node gets its part", func(t *testing.T) { newNode(t, w, before) })
	w.Story("a killed process is counted out", func(t *testing.T) {
		w.Crash(3)
		w.Await("it is known to be dead", func() bool { row := rowOf(w, 0, 3); return row != nil && row.Dead })
		awaitAll(w, 0, 1, 2)
		wantOwners(t, before, ownersOf(w, 0, 1, 2))
	})
	w.Story("a killed node that is started again has what it had", func(t *testing.T) {
		w.Crash(2)
		w.MustJoin(4)
		awaitAll(w, 0, 1, 4)
		after := ownersOf(w, 0, 1, 4)
		for key, owner := range after {
			if owner == 4 {
				after[key] = 2
			}
		}
		wantOwners(t, before, after)
		effort.Is(t, len(w.Node(0).Members()), 5, "3 processes and two dead ones")
	})
}

// newNode lets node-3 join three nodes that agree. About a quarter of the keys must move, all of them to node-3.
func newNode(t *testing.T, w *clustertest.World, before map[string]int) {
	resolveAll(w, 0, before)
	w.MustJoin(3)
	awaitAll(w, 0, 1, 2, 3)
	after, moved := ownersOf(w, 0, 1, 2, 3), 0
	for key, owner := range after {
		if owner != before[key] {
			moved++
		}
		effort.ErrorIf(t, owner != before[key] && owner != 3,
			"%s went from node-%d to node-%d, which was there before", key, before[key], owner)
	}
	effort.ErrorIf(t, moved < len(after)/16 || moved > len(after)/2,
		"%d of %d keys went to the new node, want about a quarter", moved, len(after))
	resolveAll(w, 3, after)
	w.Await("all see all, and that they agree", func() bool {
		for _, n := range nodesOf(w, 0, 1, 2, 3) {
			for _, m := range n.Members() {
				if !m.Agreed || !m.Linked || !m.Seen || m.Row == nil {
					return false
				}
			}
		}
		return true
	})
	steps, most := w.Use.Steps()
	effort.ErrorIf(t, steps < 8 || most != 1, "the most that was used of a key is %v in %d steps, want 1", most, steps)
}

// TestALostMachine: a machine was cut off from everything, and nobody knows whether it still has SMTP sessions.
func TestALostMachine(t *testing.T) {
	w := clustertest.Start(t, 3)
	before := ownersOf(w, 0, 1, 2)
	lose := func(t *testing.T) {
		w.Cut(2)
		w.Await("it is counted out", stands(w, 0, 2, ledger.NodeLost))
		effort.ErrorIf(t, !w.Node(2).Fenced(), "node-2 was counted out while its fence is down")
	}
	w.Story("comes back before anybody knows better", func(t *testing.T) {
		lose(t)
		w.Heal()
		awaitAll(w, 0, 1, 2)
		wantOwners(t, before, ownersOf(w, 0, 1, 2))
	})
	w.Story("had what rests until an operator says that it is dead", func(t *testing.T) {
		lose(t)
		w.Await("others have the rest", func() bool {
			for key, owner := range before {
				_, sum := w.Use.Of(slices.Index(w.Use.Keys(), key))
				if owner == 2 && sum != 0 || owner != 2 && sum != 1 {
					return false
				}
			}
			return true
		})
		effort.Not(t, w.Node(0).Forget(w.Context(), w.Node(1).ID), nil, "a node that lives was forgotten")
		effort.OK(t, w.Node(0).Forget(w.Context(), w.Node(2).ID))
		awaitAll(w, 0, 1)
	})
}

// TestMain lets several worlds run at the same time, because they mostly wait for heartbeats.
func TestMain(m *testing.M) {
	effort.AtOnce(clustertest.AtOnce())
	os.Exit(m.Run())
}

// split cuts node-2 off from the two others; all of them still reach the ledger. Each side must use its share by
// votes, and after the cut is healed all nodes must agree again.
func split(w *clustertest.World, name string, cut func()) {
	w.Story(name, func(t *testing.T) {
		before := ownersOf(w, 0, 1, 2)
		cut()
		w.Await("two sides have 2/3 and 1/3 of every key", func() bool {
			for key := range w.Use.Keys() {
				parts, _ := w.Use.Of(key)
				if !near(max(parts[0], parts[1]), 2./3) || !near(min(parts[0], parts[1]), 0) || !near(parts[2], 1./3) {
					return false
				}
			}
			return true
		})
		for _, i := range []int{0, 1, 2} { // on a slow machine one may be counted out for a moment
			w.Await("who has the ledger is counted in", stands(w, 0, i, ledger.NodeIn))
		}
		w.Heal()
		awaitAll(w, 0, 1, 2)
		wantOwners(t, before, ownersOf(w, 0, 1, 2))
	})
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestSidesShareByVotes(t *testing.T) {
	w := clustertest.Start(t, 3)
	split(w, "without gossip", func() { w.IsolateGossip(2) })
	split(w, "without actor traffic", func() { w.CutActors(2) })
}

func TestSidesShareByVotesWhenOneWayIsCut(t *testing.T) {
	w := clustertest.Start(t, 3)
	split(w, "one is not heard", func() {
		w.CutGossip(2, 0)
		w.CutGossip(2, 1)
	})
	split(w, "one hears nothing", func() {
		w.CutGossip(0, 2)
		w.CutGossip(1, 2)
	})
}

// TestOneWayBetweenTwoOfThreeChangesNothing: the third node passes pings on, so nobody is lost. On a busy machine a
// member may be lost for a moment all the same. So the test passes if nothing changes for once as long as it takes to
// lose a member; if the cut kept losing a member, there would be no such time.
func TestOneWayBetweenTwoOfThreeChangesNothing(t *testing.T) {
	w := clustertest.Start(t, 3)
	before := ownersOf(w, 0, 1, 2)
	w.CutGossip(0, 2)
	views := func() (sum float64) {
		for i := range 3 {
			sum += w.Node(i).Metric("rollcall_cluster_views_total")
		}
		return sum
	}
	timing := clustertest.Gossip()
	lose := 2 * time.Duration(timing.SuspicionMult*timing.SuspicionMaxTimeoutMult) * timing.ProbeInterval
	was, since := views(), time.Now()
	w.Await("nobody is lost for a while", func() bool {
		if now := views(); now != was {
			was, since = now, time.Now()
		}
		return time.Since(since) >= lose
	})
	awaitAll(w, 0, 1, 2)
	wantOwners(t, before, ownersOf(w, 0, 1, 2))
}

func TestANodeWithoutTheLedger(t *testing.T) {
	w := clustertest.Start(t, 3)
	before := ownersOf(w, 0, 1, 2)
	w.Story("rests, and others take over", func(t *testing.T) {
		w.CutLedger(2)
		w.Await("the fence is up", w.Node(2).Fenced)
		effort.Not(t, w.Node(2).Ready(w.Context()), nil, "node-2 has no ledger for so long and says it is ready")
		w.Await("node-2 uses nothing", func() bool { return w.Use.Total(2) == 0 })
		w.Await("it is known to rest", func() bool { row := rowOf(w, 0, 2); return row != nil && row.Dead })
		awaitAll(w, 0, 1)
	})
	w.Story("goes on when it has it again", func(t *testing.T) {
		w.Heal()
		awaitAll(w, 0, 1, 2)
		wantOwners(t, before, ownersOf(w, 0, 1, 2))
		w.Await("node-2 is ready", func() bool { return w.Node(2).Ready(w.Context()) == nil })
	})
	w.Story("or before it was counted out", func(t *testing.T) {
		w.CutLedger(2)
		w.Await("the fence is up", w.Node(2).Fenced)
		w.Heal()
		awaitAll(w, 0, 1, 2)
		w.Await("node-2 is ready", func() bool { return w.Node(2).Ready(w.Context()) == nil })
	})
}

// TestANodeGivesAwayWhatItHas: a node gives its work away if it may not probe, when it leaves, and when an operator
// drains it.
func TestANodeGivesAwayWhatItHas(t *testing.T) {
	w := clustertest.Start(t, 3)
	w.Story("ineligible, and eligible again", func(t *testing.T) { ineligible(t, w) })
	w.Story("leaving", func(t *testing.T) { leaves(t, w) })
	w.Story("draining", func(t *testing.T) { drained(t, w) })
	w.Story("taking work again", func(t *testing.T) { undrained(t, w) })
}

// ineligible makes node-2 lose what it has, and then gives it back.
func ineligible(t *testing.T, w *clustertest.World) {
	before := ownersOf(w, 0, 1, 2)
	resolveAll(w, 0, before)
	w.Node(2).SetIneligible("its address has no PTR")
	w.Await("node-2 uses nothing", func() bool { return w.Use.Total(2) == 0 })
	awaitAll(w, 0, 1)
	resolveAll(w, 2, ownersOf(w, 0, 1)) // it still can ask
	w.Await("it is in and not draining", func() bool {
		row := rowOf(w, 0, 2)
		return row != nil && row.Status == ledger.NodeIn && !row.Draining
	})
	w.Await("it alone is shown as ineligible", func() bool {
		for _, m := range w.Node(0).Members() {
			if m.Ineligible != (m.Meta.Node == w.Node(2).ID) {
				return false
			}
		}
		return true
	})
	w.Node(2).SetIneligible("")
	awaitAll(w, 0, 1, 2)
	resolveAll(w, 0, before)
}

func TestWhenNoNodeIsFitNobodyProbes(t *testing.T) {
	w := clustertest.New(t, 2, func(_ int, o *clustertest.Options) { o.Ineligible = "not checked yet" })
	w.MustJoin(0)
	w.MustJoin(1)
	key := w.Use.Keys()[0]
	w.Await("both are settled with nobody to count on", func() bool {
		for i := range 2 {
			if row := rowOf(w, 0, i); row == nil || row.Status != ledger.NodeIn || len(row.View) != 0 {
				return false
			}
		}
		return w.Node(0).Metric("rollcall_cluster_settled") == 1 && w.Node(1).Metric("rollcall_cluster_settled") == 1
	})
	for i := range 2 {
		if k, n := w.Node(i).Share(key); k != 0 || w.Use.Total(i) != 0 {
			t.Errorf("node-%d may use %d of %d of one key, and uses %v of all keys", i, k, n, w.Use.Total(i))
		}
		pid := w.Node(i).Resolve(clustertest.EchoKind, key)
		effort.ErrorIf(t, pid != nil, "a receiver lives at %v", pid)
	}
	w.Node(1).SetIneligible("")
	w.AwaitShared(w.Node(1))
	resolveAll(w, 0, ownersOf(w, 1))
}

// TestANodeOnACopyOfTheLedgerIsRefused: the node joined two members. Both refuse it, it refuses them, and the two
// stay members to each other.
func TestANodeOnACopyOfTheLedgerIsRefused(t *testing.T) {
	effort.NotShort(t, "a copy is told from its original when a lost node would be counted out")
	w := clustertest.New(t, 3, func(i int, o *clustertest.Options) {
		if i == 2 { // its shares come from another ledger, so they don't count here
			o.ApplyShares = func(context.Context, func(string) (int, int)) error { return nil }
		}
	})
	w.MustJoin(0)
	w.MustJoin(1)
	awaitAll(w, 0, 1)
	w.OnCopy(2)
	w.MustJoin(2)
	const says = "so one is a copy of the other: stop all nodes of the copy, run `rollcall ledger renew` on it"
	sees := func(by, of int) bool {
		for _, m := range w.Node(by).Members() {
			if m.Meta.Node == w.Node(of).ID && m.Seen {
				return true
			}
		}
		return false
	}
	for _, pair := range [][2]int{{0, 2}, {1, 2}, {2, 0}, {2, 1}} {
		w.Await("both sides refuse each other and say why", func() bool {
			return !sees(pair[0], pair[1]) && w.Node(pair[0]).Log.Has(says)
		})
	}
	w.Await("the two of the original have everything", func() bool {
		return clustertest.Shared(w.Use.Keys(), nodesOf(w, 0, 1)...)
	})
	for _, i := range []int{0, 1} {
		effort.ErrorIf(t, !sees(i, 1-i) || w.Node(i).Metric("rollcall_gossip_refused_total") < 1,
			"node-%d sees the other: %v", i, sees(i, 1-i))
		row := rowOf(w, i, 2)
		effort.ErrorIf(t, row != nil, "node-%d knows a row of the node on the copy: %+v", i, row)
	}
}
