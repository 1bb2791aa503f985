package clustertest_test

import (
	"context"
	"testing"

	"rollcall/cluster/clustertest"
	"rollcall/config/effort"
)

// TestANodeOnACopyOfTheLedgerIsRefused by both of the nodes that it has joined, and refuses
// them; those two stay what they are to each other.
func TestANodeOnACopyOfTheLedgerIsRefused(t *testing.T) {
	effort.NotShort(t, "a copy is told from its original when a lost node would be counted out")
	w := clustertest.New(t, 3, func(i int, o *clustertest.Options) {
		if i == 2 { // what it uses is by another ledger, and not counted here
			o.Comply = func(context.Context, func(string) (int, int)) error { return nil }
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
		if !sees(i, 1-i) || w.Node(i).Metric("rollcall_gossip_refused_total") < 1 {
			t.Errorf("node-%d sees the other: %v", i, sees(i, 1-i))
		}
		if row := rowOf(w, i, 2); row != nil {
			t.Errorf("node-%d knows a row of the node on the copy: %+v", i, row)
		}
	}
}
