package clustertest_test

import (
	"math"
	"testing"

	"rollcall/cluster/clustertest"
	"rollcall/ledger"
)

// split cuts node-2 off from the two others in some way, which leaves all of them
// the ledger, wants the sides to share by votes, and then all to be one again.
func split(t *testing.T, cut func(w *clustertest.World)) {
	t.Helper()
	w := clustertest.Start(t, 3)
	before := ownersOf(w, 0, 1, 2)
	cut(w)
	w.Await("two sides have 2/3 and 1/3 of every key", func() bool {
		for key := range w.Use.Keys() {
			parts, _ := w.Use.Of(key)
			if !near(max(parts[0], parts[1]), 2./3) || !near(min(parts[0], parts[1]), 0) || !near(parts[2], 1./3) {
				return false
			}
		}
		return true
	})
	for _, i := range []int{0, 1, 2} {
		if row := rowOf(w, 0, i); row == nil || row.Standing != ledger.NodeIn {
			t.Errorf("node-%d is counted out, but it has the ledger: %+v", i, row)
		}
	}
	w.Heal()
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	awaitUsed(t, w)
	for key, owner := range ownersOf(w, 0, 1, 2) {
		if owner != before[key] {
			t.Errorf("%s is now with node-%d, and was with node-%d before", key, owner, before[key])
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestSidesShareByVotesWithoutGossip(t *testing.T) {
	split(t, func(w *clustertest.World) { w.IsolateGossip(2) })
}

func TestSidesShareByVotesWhenOneIsNotHeard(t *testing.T) {
	split(t, func(w *clustertest.World) {
		w.CutGossip(2, 0)
		w.CutGossip(2, 1)
	})
}

func TestSidesShareByVotesWhenOneHearsNothing(t *testing.T) {
	split(t, func(w *clustertest.World) {
		w.CutGossip(0, 2)
		w.CutGossip(1, 2)
	})
}

func TestSidesShareByVotesWithoutActorTraffic(t *testing.T) {
	split(t, func(w *clustertest.World) { w.CutActors(2) })
}

// TestOneWayBetweenTwoOfThreeChangesNothing: the third passes pings on.
func TestOneWayBetweenTwoOfThreeChangesNothing(t *testing.T) {
	w := clustertest.Start(t, 3)
	before, sent := ownersOf(w, 0, 1, 2), w.Node(0).Metric("rollcall_gossip_units_total")
	views := w.Node(1).Metric("rollcall_cluster_views_total")
	w.CutGossip(0, 2)
	w.Await("much was said", func() bool { return w.Node(0).Metric("rollcall_gossip_units_total") > sent+80 })
	for key, owner := range ownersOf(w, 0, 1, 2) {
		if owner != before[key] {
			t.Errorf("%s is now with node-%d, and was with node-%d before", key, owner, before[key])
		}
	}
	if now := w.Node(1).Metric("rollcall_cluster_views_total"); now != views {
		t.Errorf("node-1 changed its view %v times", now-views)
	}
}

func TestANodeWithoutTheLedgerRestsAndOthersTakeOver(t *testing.T) {
	w := clustertest.Start(t, 3)
	w.CutLedger(2)
	w.Await("the fence is up", w.Node(2).Fenced)
	if err := w.Node(2).Ready(w.Context()); err == nil {
		t.Error("node-2 has no ledger for so long and says it is ready")
	}
	w.Await("node-2 uses nothing", func() bool { return w.Use.Total(2) == 0 })
	w.Await("it is known to rest", func() bool { row := rowOf(w, 0, 2); return row != nil && row.Dead })
	w.AwaitShared(nodesOf(w, 0, 1)...)
	awaitUsed(t, w)
}

func TestANodeThatHasTheLedgerAgainGoesOn(t *testing.T) {
	w := clustertest.Start(t, 3)
	w.CutLedger(2)
	w.Await("the fence is up", w.Node(2).Fenced)
	w.Heal()
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	awaitUsed(t, w)
	if err := w.Node(2).Ready(w.Context()); err != nil {
		t.Errorf("node-2 is back and says %v", err)
	}
}
