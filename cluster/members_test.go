package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/remote"

	"rollcall/cluster/gossip"
	"rollcall/config/effort"
	"rollcall/ledger"
)

func TestAhead(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	other := func(leases int, addresses int64, change func(*ledger.NodeRow)) ledger.NodeRow {
		row := ledger.NodeRow{Seen: now, Heartbeat: ledger.Heartbeat{Leases: leases, Addresses: addresses}}
		row.Session[0] = 9
		if change != nil {
			change(&row)
		}
		return row
	}
	for _, c := range []struct {
		name      string
		leases    int
		addresses int64
		rows      []ledger.NodeRow
		want      bool
	}{
		{"nobody else", 60, 1_000_000, nil, false},
		{"three small files more", 3, 30, []ledger.NodeRow{other(0, 0, nil)}, false},
		{"four small files more", 4, 0, []ledger.NodeRow{other(0, 0, nil)}, true},
		{"one large file more", 1, aheadBy, []ledger.NodeRow{other(0, 0, nil)}, true},
		{"as much as the other", 4, 9000, []ledger.NodeRow{other(4, 9000, nil)}, false},
		{"more than one of two", 5, 9000, []ledger.NodeRow{other(4, 9000, nil), other(0, 0, nil)}, true},
		{"the other drains", 9, 9000, []ledger.NodeRow{other(0, 0, func(r *ledger.NodeRow) { r.Draining = true })}, false},
		{"the other is lost", 9, 9000, []ledger.NodeRow{other(0, 0, func(r *ledger.NodeRow) {
			r.Status = ledger.NodeLost
		})}, false},
		{"the other is silent", 9, 9000, []ledger.NodeRow{other(0, 0, func(r *ledger.NodeRow) {
			r.Seen = now.Add(-DefaultTimes().Lost)
		})}, false},
		{"it is this node", 9, 9000, []ledger.NodeRow{other(0, 0, func(r *ledger.NodeRow) { r.Session[0] = 0 })}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &Node{times: DefaultTimes(), heartbeats: &heartbeats{}}
			effort.FatalIf(t, n.Ahead(c.leases, c.addresses), "ahead of nobody it knows")
			n.heartbeats.snapshot.Store(&ledger.NodeSnapshot{Now: now, Nodes: c.rows})
			effort.MustBe(t, n.Ahead(c.leases, c.addresses), c.want, "ahead")
		})
	}
}

// TestConnectionsToMembersThatLeftEnd: once for each time that a member left, also when
// another one has come in its place, and never to this node.
func TestConnectionsToMembersThatLeftEnd(t *testing.T) {
	n, _ := startEcho(t)
	var mu sync.Mutex
	var ended []string // guarded by mu
	n.system.EventStream.Subscribe(func(event any) {
		if e, ok := event.(*remote.EndpointTerminatedEvent); ok {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, e.Address)
		}
	})
	self := gossip.Member{NodeMeta: n.meta}
	first, second, third := gossip.Member{NodeMeta: card(7)}, gossip.Member{NodeMeta: card(8)},
		gossip.Member{NodeMeta: card(9)}
	first.Actors, second.Actors, third.Actors = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1" // nobody listens there
	for _, members := range [][]gossip.Member{
		{self}, {self, first}, {self, first}, {self, first, second}, {self, second, third}, {self, third}, {},
	} {
		n.topology.closeGone(members, n.meta.Session)
	}
	mu.Lock()
	defer mu.Unlock()
	effort.Equal(t, ended, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"}, "ended")
}
