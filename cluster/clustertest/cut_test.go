package clustertest_test

import (
	"math"
	"testing"
	"time"

	"rollcall/cluster/clustertest"
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

// TestOneWayBetweenTwoOfThreeChangesNothing: the third passes pings on. A machine that
// is busy may lose a member for a moment all the same, so it is enough that nothing
// changes once for as long as it takes to lose somebody: with a member that the cut
// keeps losing there is no such time.
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
		if err := w.Node(2).Ready(w.Context()); err == nil {
			t.Error("node-2 has no ledger for so long and says it is ready")
		}
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
