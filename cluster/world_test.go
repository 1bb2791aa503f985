package cluster_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/uuid"

	"rollcall/cluster/clustertest"
	"rollcall/config/effort"
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

func nodesOf(w *clustertest.World, numbers ...int) (nodes []*clustertest.Node) {
	for _, i := range numbers {
		nodes = append(nodes, w.Node(i))
	}
	return nodes
}

// awaitUsed waits until every key is used wholly: nodes were told, too.
func awaitUsed(w *clustertest.World) {
	for key := range w.Use.Keys() {
		w.Await("every key is used wholly", func() bool { _, sum := w.Use.Of(key); return sum == 1 })
	}
}

// awaitAll waits until some nodes share everything, know it and use it.
func awaitAll(w *clustertest.World, numbers ...int) {
	w.AwaitShared(nodesOf(w, numbers...)...)
	awaitUsed(w)
}

// wantOwners wants every key to be with the node that it was with.
func wantOwners(t *testing.T, before, after map[string]int) {
	t.Helper()
	for key, owner := range after {
		effort.Is(t, owner, before[key], key, "now with node-, and was with node- before")
	}
}

// rowOf gives the row of a node as another one knows it.
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

// resolveAll finds a virtual actor for each key from one node and wants each to live once, where the key belongs.
func resolveAll(w *clustertest.World, from int, owners map[string]int) {
	for key, owner := range owners {
		w.Await(fmt.Sprintf("%s lives on node-%d alone", key, owner), func() bool {
			pid := w.Node(from).Resolve(clustertest.EchoKind, key)
			return pid != nil && pid.Address == w.Node(owner).Meta().Actors && slices.Equal(w.Echo.Living(key), []int{owner})
		})
	}
}

// TestNodesComeAndDie: a node that is new gets its part when the others have given way, a process that is killed is
// counted out, and one that is started again in its place has what it had.
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

// newNode lets node-3 join three that share everything.
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

// TestALostMachine: nobody knows whether a machine that was cut off from everything still has SMTP sessions.
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

// TestMain lets several worlds run at the same time: they mostly wait for the times of heartbeats.
func TestMain(m *testing.M) {
	effort.AtOnce(clustertest.AtOnce())
	os.Exit(m.Run())
}
