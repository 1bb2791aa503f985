package cluster_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster"
	"rollcall/cluster/clustertest"
	"rollcall/config/effort"
	"rollcall/ledger"
)

// leaves ends node-2 of three. The others know that at once and need not find it lost, unless the machine is so slow
// that its message comes after its last heartbeat is too old.
func leaves(t *testing.T, w *clustertest.World) {
	resolveAll(w, 0, ownersOf(w, 0, 1, 2))
	lost := func() (n int) {
		for _, i := range []int{0, 1} {
			n += strings.Count(w.Node(i).Log.String(), "node lost")
		}
		return n
	}
	before, began := lost(), time.Now()
	w.Leave(2)
	awaitAll(w, 0, 1)
	row := rowOf(w, 0, 2)
	effort.ErrorIf(t, row == nil || row.Status != ledger.NodeLeft, "the row of a node that left: %+v", row)
	if times := clustertest.Times(); lost() != before && time.Since(began) < times.Lost-times.Heartbeat {
		t.Error("a node that left was taken for lost")
	}
	resolveAll(w, 0, ownersOf(w, 0, 1))
}

// drained drains node-1 of the two remaining nodes: it gives away what it has, and stays a member.
func drained(t *testing.T, w *clustertest.World) {
	var told atomic.Int32
	w.Node(1).OnDrain(func(draining bool) {
		if draining {
			told.Add(1)
		}
	})
	resolveAll(w, 0, ownersOf(w, 0, 1))
	effort.ErrIs(t, w.Node(0).Drain(w.Context(), uuid.New()), ledger.ErrNoSuchNode, "drain of a node that is none")
	for range 2 {
		effort.OK(t, w.Node(0).Drain(w.Context(), w.Node(1).ID))
	}
	w.AwaitShared(w.Node(0))
	w.Await("node-1 uses nothing", func() bool { return w.Use.Total(1) == 0 })
	awaitUsed(w)
	effort.ErrorIf(t, !w.Node(1).Draining() || told.Load() != 1,
		"draining is %v, and was told %d times", w.Node(1).Draining(), told.Load())
	w.Await("it is in and drains", func() bool {
		row := rowOf(w, 0, 1)
		return row != nil && row.Status == ledger.NodeIn && row.Draining
	})
	resolveAll(w, 1, ownersOf(w, 0)) // it still can ask
}

// undrained undrains node-1 twice: after a drain and in the middle of one. Each time the node gets its work back.
func undrained(t *testing.T, w *clustertest.World) {
	told := make(chan bool, 100)
	w.Node(1).OnDrain(func(draining bool) { told <- draining })
	effort.ErrIs(t, w.Node(0).Undrain(w.Context(), uuid.New()), ledger.ErrNoSuchNode, "undrain of a node that is none")
	undrain := func(by int) {
		effort.OK(t, w.Node(by).Undrain(w.Context(), w.Node(1).ID))
		// The node may have read the request before it was taken back. Then it drains until it reads again.
		w.Await("it has its share and takes work", func() bool {
			awaitAll(w, 0, 1)
			resolveAll(w, 0, ownersOf(w, 0, 1))
			return !w.Node(1).Draining()
		})
	}
	undrain(0)
	if first, second := <-told, <-told; !first || second || len(told) > 0 {
		t.Errorf("OnDrain was called with %v, %v and %d more values; want true, then false", first, second, len(told))
	}
	for i, far := range []func() bool{ // states of the drain at which it is taken back
		func() bool { return true }, // the drain was only asked for
		func() bool { return w.Node(1).Draining() },
		func() bool { return w.Use.Total(1) == 0 },
	} {
		effort.OK(t, w.Node(1).Drain(w.Context(), w.Node(1).ID))
		w.Await("the drain has come so far", far)
		undrain(i % 2)
	}
	w.Await("its row says that it takes work", func() bool {
		row := rowOf(w, 0, 1)
		return row != nil && row.Status == ledger.NodeIn && !row.Draining && !row.DrainAsked
	})
}

// TestANodeThatStopsIsNotUndrained: the node's virtual actors have gone, and do not come back.
func TestANodeThatStopsIsNotUndrained(t *testing.T) {
	w := clustertest.Start(t, 2)
	effort.OK(t, w.Node(1).Drain(w.Context(), w.Node(1).ID))
	w.Await("it drains", func() bool { return w.Node(1).Draining() })
	w.Leave(1)
	effort.ErrIs(t, w.Node(0).Undrain(w.Context(), w.Node(1).ID), ledger.ErrNoSuchNode, "undrain of a node that has left")
	effort.ErrorIf(t, !w.Node(1).Draining(), "a node that has stopped takes work")
}

func TestTheOlderOfTwoProcessesOfANodeMustEnd(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	var first *clustertest.Options
	w := clustertest.New(t, 3, func(i int, o *clustertest.Options) {
		if i == 1 {
			first = o
		}
		if i == 2 { // a copy of the data folder of node-1
			o.Node = first.Node
		}
	})
	for i := range 3 {
		w.MustJoin(i)
	}
	w.Await("node-1 fails", func() bool {
		select {
		case err := <-w.Node(1).Failed():
			effort.ErrIs(t, err, cluster.ErrDisplaced, "node-1 failed with")
			return true
		default:
			return false
		}
	})
	for _, i := range []int{0, 2} {
		select {
		case err := <-w.Node(i).Failed():
			t.Errorf("node-%d failed too: %v", i, err)
		default:
		}
	}
	w.Leave(1)
	awaitAll(w, 0, 2)
}

// otherLedger returns another identity for the same ledger.
type otherLedger struct{ ledger.Nodes }

func (l otherLedger) Identity(ctx context.Context) (uuid.UUID, error) {
	if _, err := l.Nodes.Identity(ctx); err != nil {
		return uuid.Nil, err
	}
	return uuid.New(), nil
}

func TestAStrangerIsRefusedOnBothSides(t *testing.T) {
	strangers := []struct {
		change    func(o *clustertest.Options)
		want      error
		says, log string // in the error, and in the log of the member
	}{
		{}, {},
		{func(o *clustertest.Options) { o.Name, o.Peers.Gossip.Cluster = "second", "second" }, cluster.ErrRefused,
			"cluster.name", "its_cluster=second"},
		{func(o *clustertest.Options) { o.Peers.Book = otherLedger{o.Peers.Book} }, cluster.ErrRefused,
			"ledger.url", "ledger.url"},
		{func(o *clustertest.Options) { o.Wire = 2 }, cluster.ErrRefused, "wire version", "wire version 2"},
		// The node meets nobody in gossip, and another cluster uses the ledger.
		{func(o *clustertest.Options) { o.Name, o.Peers.Gossip.Join = "third", nil }, ledger.ErrOtherCluster,
			"nodes of a cluster with another name", ""},
	}
	w := clustertest.New(t, len(strangers), func(i int, o *clustertest.Options) {
		o.Peers.Gossip.Timing.StreamTimeout = time.Minute // so that a slow answer still counts
		if change := strangers[i].change; change != nil {
			change(o)
		}
	})
	w.MustJoin(0)
	w.MustJoin(1)
	w.AwaitShared(nodesOf(w, 0, 1)...)
	for i, s := range strangers {
		if s.change == nil {
			continue
		}
		err := w.Join(i)
		effort.ErrorIf(t, !errors.Is(err, s.want) || !strings.Contains(err.Error(), s.says),
			"stranger %d: got %v, want %v and %q in it", i, err, s.want, s.says)
		if s.log != "" {
			w.Await("node-0 says "+s.log, func() bool { return w.Node(0).Log.Has(s.log) })
		}
	}
	effort.Is(t, len(w.Node(0).Snapshot().Nodes), 2, "processes are in the ledger")
	w.AwaitShared(nodesOf(w, 0, 1)...)
}
