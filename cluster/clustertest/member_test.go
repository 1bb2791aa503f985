package clustertest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"rollcall/cluster"
	"rollcall/cluster/clustertest"
	"rollcall/cluster/gossip"
	"rollcall/cluster/wire"
	"rollcall/ledger"
)

func TestALeaveIsKnownAtOnce(t *testing.T) {
	w := clustertest.Start(t, 3)
	resolveAll(w, 0, ownersOf(w, 0, 1, 2))
	w.Leave(2)
	w.AwaitShared(nodesOf(w, 0, 1)...)
	awaitUsed(t, w)
	if row := rowOf(w, 0, 2); row == nil || row.Standing != ledger.NodeLeft {
		t.Errorf("the row of a node that left: %+v", row)
	}
	for _, i := range []int{0, 1} {
		if w.Node(i).Log.Has("node lost") {
			t.Errorf("node-%d took a node that left for lost", i)
		}
	}
	resolveAll(w, 0, ownersOf(w, 0, 1))
}

func TestADrainedNodeGivesAwayWhatItHasAndStays(t *testing.T) {
	w := clustertest.New(t, 3, nil)
	var told atomic.Int32
	for i := range 3 {
		w.MustJoin(i)
	}
	w.Node(2).OnDrain(func() { told.Add(1) })
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	resolveAll(w, 0, ownersOf(w, 0, 1, 2))
	if err := w.Node(0).Drain(w.Context(), uuid.New()); !errors.Is(err, ledger.ErrNoSuchNode) {
		t.Errorf("drain of a node that is none: got %v", err)
	}
	for range 2 {
		if err := w.Node(0).Drain(w.Context(), w.Node(2).ID); err != nil {
			t.Fatal(err)
		}
	}
	w.AwaitShared(nodesOf(w, 0, 1)...)
	w.Await("node-2 uses nothing", func() bool { return w.Use.Total(2) == 0 })
	awaitUsed(t, w)
	if !w.Node(2).Draining() || told.Load() != 1 {
		t.Errorf("draining is %v, and was told %d times", w.Node(2).Draining(), told.Load())
	}
	if row := rowOf(w, 0, 2); row == nil || row.Standing != ledger.NodeIn || !row.Draining {
		t.Errorf("the row of a node that drains: %+v", row)
	}
	resolveAll(w, 2, ownersOf(w, 0, 1)) // it still can ask
}

func TestTheOlderOfTwoProcessesOfANodeMustEnd(t *testing.T) {
	var first *cluster.Options
	w := clustertest.New(t, 3, func(i int, o *cluster.Options) {
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
			if !errors.Is(err, cluster.ErrDisplaced) {
				t.Errorf("node-1 failed with %v, want ErrDisplaced", err)
			}
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
	w.AwaitShared(nodesOf(w, 0, 2)...)
	awaitUsed(t, w)
}

// otherLedger is the way to a ledger with another identity.
type otherLedger struct{ ledger.Nodes }

func (l otherLedger) Identity(ctx context.Context) (uuid.UUID, error) {
	if _, err := l.Nodes.Identity(ctx); err != nil {
		return uuid.Nil, err
	}
	return uuid.New(), nil
}

func TestAStrangerIsRefusedOnBothSides(t *testing.T) {
	strangers := []struct {
		change    func(o *cluster.Options)
		want      error
		says, log string // in the error, and in the log of the member
	}{
		{}, {},
		{func(o *cluster.Options) { o.Name, o.Peers.Gossip.Cluster = "second", "second" }, cluster.ErrRefused,
			"cluster.name", "its_cluster=second"},
		{func(o *cluster.Options) { o.Peers.Book = otherLedger{o.Peers.Book} }, cluster.ErrRefused,
			"ledger.url", "ledger.url"},
		{func(o *cluster.Options) { o.Wire = 2 }, cluster.ErrRefused, "wire version", "wire version 2"},
		// It meets nobody in gossip, and the ledger is in use by another cluster.
		{func(o *cluster.Options) { o.Name, o.Peers.Gossip.Join = "third", nil }, ledger.ErrOtherCluster,
			"nodes of a cluster with another name", ""},
	}
	w := clustertest.New(t, len(strangers), func(i int, o *cluster.Options) {
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
		if !errors.Is(err, s.want) || !strings.Contains(err.Error(), s.says) {
			t.Errorf("stranger %d: got %v, want %v and %q in it", i, err, s.want, s.says)
		}
		if s.log != "" {
			w.Await("node-0 says "+s.log, func() bool { return w.Node(0).Log.Has(s.log) })
		}
	}
	if roll := w.Node(0).Roll(); len(roll.Nodes) != 2 {
		t.Errorf("%d processes are in the ledger, want 2", len(roll.Nodes))
	}
	w.AwaitShared(nodesOf(w, 0, 1)...)
}

func TestGossipKeysAreChangedUnderTraffic(t *testing.T) {
	first, second := gossip.NewKey(), gossip.NewKey()
	w := clustertest.New(t, 3, func(_ int, o *cluster.Options) {
		path := filepath.Join(t.TempDir(), "gossip.key")
		err := os.WriteFile(path, []byte(first+"\n"), 0o600)
		if err == nil {
			o.Peers.Gossip.Keys, err = gossip.LoadKeyring(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	for i := range 3 {
		w.MustJoin(i)
	}
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	views := w.Node(0).Metric("rollcall_cluster_views_total")
	raw, err := base64.StdEncoding.DecodeString(second)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(by int, m *wire.KeysAsk) (prints []string) {
		t.Helper()
		rings, err := w.Node(by).Keys(w.Context(), m)
		if err != nil || len(rings) != 3 {
			t.Fatalf("%v: %d rings and %v, want 3", m, len(rings), err)
		}
		for _, r := range rings {
			if r.Refused != "" {
				t.Fatalf("%v: %s says %q", m, r.Name, r.Refused)
			}
		}
		sent := w.Node(1).Metric("rollcall_gossip_units_total")
		w.Await("gossip goes on", func() bool { return w.Node(1).Metric("rollcall_gossip_units_total") > sent+50 })
		return rings[0].Fingerprints
	}
	old := ask(0, &wire.KeysAsk{})[0]
	next := ask(0, &wire.KeysAsk{Operation: wire.KeysAsk_ADD, Key: raw})[1]
	if got := ask(1, &wire.KeysAsk{Operation: wire.KeysAsk_USE, Fingerprint: next}); got[0] != next {
		t.Errorf("the first key is %s, want %s", got[0], next)
	}
	got := ask(2, &wire.KeysAsk{Operation: wire.KeysAsk_REMOVE, Fingerprint: old})
	if len(got) != 1 || got[0] != next {
		t.Errorf("keys are %v, want %s alone", got, next)
	}
	if now := w.Node(0).Metric("rollcall_cluster_views_total"); now != views {
		t.Errorf("node-0 changed its view %v times", now-views)
	}
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
}
