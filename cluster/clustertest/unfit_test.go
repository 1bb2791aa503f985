package clustertest_test

import (
	"testing"

	"rollcall/cluster/clustertest"
	"rollcall/ledger"
)

// TestANodeGivesAwayWhatItHas: while it is not fit to probe, when it leaves, and when
// an operator drains it.
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
		if pid := w.Node(i).Resolve(clustertest.EchoKind, key); pid != nil {
			t.Errorf("a receiver lives at %v", pid)
		}
	}
	w.Node(1).SetIneligible("")
	w.AwaitShared(w.Node(1))
	resolveAll(w, 0, ownersOf(w, 1))
}
