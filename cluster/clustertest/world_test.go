package clustertest_test

import (
	"fmt"
	"slices"
	"testing"

	"rollcall/cluster"
	"rollcall/cluster/clustertest"
	"rollcall/ledger"
)

// ownersOf gives the node that has the whole of each key; -1: none has.
func ownersOf(w *clustertest.World, nodes ...int) map[string]int {
	owners := map[string]int{}
	for _, key := range w.Use.Keys() {
		owners[key] = -1
		for _, i := range nodes {
			if k, n := w.Node(i).Share(key); k == n {
				owners[key] = i
			}
		}
	}
	return owners
}

// nodesOf gives nodes by number.
func nodesOf(w *clustertest.World, numbers ...int) (nodes []*clustertest.Node) {
	for _, i := range numbers {
		nodes = append(nodes, w.Node(i))
	}
	return nodes
}

// awaitUsed waits until every key is used wholly: nodes were told, too.
func awaitUsed(t *testing.T, w *clustertest.World) {
	t.Helper()
	for key := range w.Use.Keys() {
		w.Await("every key is used wholly", func() bool { _, sum := w.Use.Of(key); return sum == 1 })
	}
}

// rowOf gives the row of a node as another one knows it.
func rowOf(w *clustertest.World, by, of int) *ledger.NodeRow {
	for _, row := range w.Node(by).Roll().Nodes {
		if row.Session == w.Node(of).Card().Session {
			return &row
		}
	}
	return nil
}

func stands(w *clustertest.World, by, of int, want ledger.Standing) func() bool {
	return func() bool { row := rowOf(w, by, of); return row != nil && row.Standing == want }
}

func TestANewNodeGetsItsPartWhenOthersHaveGivenWay(t *testing.T) {
	w := clustertest.New(t, 4, nil)
	for i := range 3 {
		w.MustJoin(i)
	}
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	awaitUsed(t, w)
	before := ownersOf(w, 0, 1, 2)
	resolveAll(w, 0, before)
	w.MustJoin(3)
	w.AwaitShared(nodesOf(w, 0, 1, 2, 3)...)
	awaitUsed(t, w)
	after, moved := ownersOf(w, 0, 1, 2, 3), 0
	for key, owner := range after {
		if owner != before[key] {
			moved++
		}
		if owner != before[key] && owner != 3 {
			t.Errorf("%s went from node-%d to node-%d, which was there before", key, before[key], owner)
		}
	}
	if moved < len(after)/8 || moved > len(after)/2 {
		t.Errorf("%d of %d keys went to the new node, want about a quarter", moved, len(after))
	}
	resolveAll(w, 3, after)
	for _, n := range nodesOf(w, 0, 1, 2, 3) {
		for _, m := range n.Members() {
			if !m.Agreed || !m.Linked || !m.Seen || m.Row == nil {
				t.Errorf("%s sees %s as %+v", n.Name, m.Card.Name, m)
			}
		}
	}
	if steps, most := w.Use.Steps(); steps < 8 || most != 1 {
		t.Errorf("the most that was used of a key is %v in %d steps, want 1", most, steps)
	}
}

// resolveAll finds a virtual actor for each key from one node and wants each to
// live once, where the key belongs.
func resolveAll(w *clustertest.World, from int, owners map[string]int) {
	for key, owner := range owners {
		w.Await(fmt.Sprintf("%s lives on node-%d alone", key, owner), func() bool {
			pid := w.Node(from).Resolve(clustertest.EchoKind, key)
			return pid != nil && pid.Address == w.Node(owner).Card().Actors &&
				slices.Equal(w.Echo.Living(key), []int{owner})
		})
	}
}

func TestAKilledProcessIsCountedOut(t *testing.T) {
	w := clustertest.Start(t, 3)
	w.Crash(2)
	w.Await("it is known to be dead", func() bool { row := rowOf(w, 0, 2); return row != nil && row.Dead })
	w.AwaitShared(nodesOf(w, 0, 1)...)
	awaitUsed(t, w)
}

func TestAKilledNodeThatIsStartedAgainHasWhatItHad(t *testing.T) {
	var first *cluster.Options
	w := clustertest.New(t, 4, func(i int, o *cluster.Options) {
		if i == 2 {
			first = o
		}
		if i == 3 {
			o.Node = first.Node
		}
	})
	for i := range 3 {
		w.MustJoin(i)
	}
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	before := ownersOf(w, 0, 1, 2)
	w.Crash(2)
	w.MustJoin(3)
	w.AwaitShared(nodesOf(w, 0, 1, 3)...)
	awaitUsed(t, w)
	for key, owner := range ownersOf(w, 0, 1, 3) {
		if owner == 3 {
			owner = 2
		}
		if owner != before[key] {
			t.Errorf("%s is now with node-%d, and was with node-%d before", key, owner, before[key])
		}
	}
	if m := w.Node(0).Members(); len(m) != 4 {
		t.Errorf("%d processes are known, want 3 and the dead one", len(m))
	}
}

func TestWhatALostMachineHadRestsUntilAnOperatorSaysThatItIsDead(t *testing.T) {
	w := clustertest.Start(t, 3)
	before := ownersOf(w, 0, 1, 2)
	w.Cut(2)
	w.Await("it is counted out", stands(w, 0, 2, ledger.NodeLost))
	if !w.Node(2).Fenced() {
		t.Error("node-2 was counted out while its fence is down")
	}
	w.Await("others have the rest", func() bool {
		for key, owner := range before {
			_, sum := w.Use.Of(slices.Index(w.Use.Keys(), key))
			if owner == 2 && sum != 0 || owner != 2 && sum != 1 {
				return false
			}
		}
		return true
	})
	if err := w.Node(0).Forget(w.Context(), w.Node(1).ID); err == nil {
		t.Error("a node that lives was forgotten")
	}
	if err := w.Node(0).Forget(w.Context(), w.Node(2).ID); err != nil {
		t.Fatal(err)
	}
	w.AwaitShared(nodesOf(w, 0, 1)...)
	awaitUsed(t, w)
}

func TestALostMachineComesBackBeforeAnybodyKnowsBetter(t *testing.T) {
	w := clustertest.Start(t, 3)
	before := ownersOf(w, 0, 1, 2)
	w.Cut(2)
	w.Await("it is counted out", stands(w, 0, 2, ledger.NodeLost))
	w.Heal()
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	awaitUsed(t, w)
	for key, owner := range ownersOf(w, 0, 1, 2) {
		if owner != before[key] {
			t.Errorf("%s is now with node-%d, and was with node-%d before", key, owner, before[key])
		}
	}
}
