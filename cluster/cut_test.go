package cluster_test

import (
	"context"
	"math"
	"testing"
	"time"

	"rollcall/cluster/clustertest"
	"rollcall/config/effort"
	"rollcall/ledger"
)

// split cuts node-2 off from the two others in some way, which leaves all of them
// the ledger, wants the sides to share by votes, and then all to be one again.
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
		for _, i := range []int{0, 1, 2} { // a slow machine may count one out for a moment
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

// TestOneWayBetweenTwoOfThreeChangesNothing: the third passes pings on. A machine that is busy may lose a member for a
// moment all the same, so it is enough that nothing changes once for as long as it takes to lose somebody: with a
// member that the cut keeps losing there is no such time.
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

// TestANodeGivesAwayWhatItHas: while it is not fit to probe, when it leaves, and when an operator drains it.
func TestANodeGivesAwayWhatItHas(t *testing.T) {
	w := clustertest.Start(t, 3)
	w.Story("not fit, and fit again", func(t *testing.T) { unfit(t, w) })
	w.Story("leaving", func(t *testing.T) { leaves(t, w) })
	w.Story("draining", func(t *testing.T) { drained(t, w) })
	w.Story("taking work again", func(t *testing.T) { undrained(t, w) })
}

// unfit takes what node-2 has and gives it back.
func unfit(t *testing.T, w *clustertest.World) {
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
	w.Await("it alone is shown as not fit", func() bool {
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
			t.Errorf("node-%d may use %d of %d, and uses %v in all", i, k, n, w.Use.Total(i))
		}
		pid := w.Node(i).Resolve(clustertest.EchoKind, key)
		effort.ErrorIf(t, pid != nil, "a receiver lives at %v", pid)
	}
	w.Node(1).SetIneligible("")
	w.AwaitShared(w.Node(1))
	resolveAll(w, 0, ownersOf(w, 1))
}

// TestANodeOnACopyOfTheLedgerIsRefused by both of the nodes that it has joined, and refuses
// them; those two stay what they are to each other.
func TestANodeOnACopyOfTheLedgerIsRefused(t *testing.T) {
	effort.NotShort(t, "a copy is told from its original when a lost node would be counted out")
	w := clustertest.New(t, 3, func(i int, o *clustertest.Options) {
		if i == 2 { // what it uses is by another ledger, and not counted here
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
