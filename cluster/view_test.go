package cluster

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/remote"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/config/effort"
	"rollcall/ledger"
)

// card is the metadata of a process whose session id is one byte.
func card(session byte) gossip.NodeMeta {
	return gossip.NodeMeta{Session: uuid.UUID{session}, Node: uuid.UUID{session, 1},
		Actors: string('a'+rune(session)) + ":1"}
}

func TestWhomANodeCountsOn(t *testing.T) {
	all := func(uuid.UUID) bool { return true }
	none := func(uuid.UUID) bool { return false }
	row := func(session byte, s ledger.NodeStatus) ledger.NodeRow {
		self := ledger.Incarnation{Session: uuid.UUID{session}}
		return ledger.NodeRow{Status: s, Heartbeat: ledger.Heartbeat{Incarnation: self, View: []ledger.Incarnation{self}}}
	}
	unfit := row(2, ledger.NodeIn)
	unfit.View = []ledger.Incarnation{{Session: uuid.UUID{9}}}
	drains := gossip.Member{NodeMeta: card(2)}
	drains.Draining = true
	for _, c := range []struct {
		name    string
		members []gossip.Member
		rows    []ledger.NodeRow
		linked  func(uuid.UUID) bool
		away    bool
		want    []byte // sessions
	}{
		{"itself, before gossip sees even that", nil, nil, all, false, []byte{5}},
		{"itself once", []gossip.Member{{NodeMeta: card(5)}},
			[]ledger.NodeRow{row(5, ledger.NodeIn)}, none, false, []byte{5}},
		{"by session", []gossip.Member{{NodeMeta: card(9)}, {NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeIn), row(9, ledger.NodeIn)}, all, false, []byte{2, 5, 9}},
		{"one that is suspect", []gossip.Member{{NodeMeta: card(2), Suspect: true}},
			[]ledger.NodeRow{row(2, ledger.NodeIn)}, all, false, []byte{2, 5}},
		{"not one that does not answer", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeIn)}, none, false, []byte{5}},
		{"not one that the ledger does not know", []gossip.Member{{NodeMeta: card(2)}}, nil, all, false, []byte{5}},
		{"not one that left", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeLeft)}, all, false, []byte{5}},
		{"not one that was lost", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeLost)}, all, false, []byte{5}},
		{"not one that gossip does not see", nil, []ledger.NodeRow{row(2, ledger.NodeIn)}, all, false, []byte{5}},
		{"not one that drains", []gossip.Member{drains}, []ledger.NodeRow{row(2, ledger.NodeIn)}, all, false, []byte{5}},
		{"not one that does not count on itself", []gossip.Member{{NodeMeta: card(9)}, {NodeMeta: card(2)}},
			[]ledger.NodeRow{unfit, row(9, ledger.NodeIn)}, all, false, []byte{5, 9}},
		{"not itself when it drains or is not fit", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeIn)}, all, true, []byte{2}},
		{"nobody", nil, nil, all, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewInputs{self: card(5), members: c.members, linked: c.linked, snapshot: ledger.NodeSnapshot{Nodes: c.rows},
				away: c.away}.computeView()
			var got []byte
			for _, p := range v.members {
				got = append(got, p.Session[0])
				if want := card(p.Session[0]); p.Node != want.Node || v.addresses[p.Session] != want.Actors {
					t.Errorf("process %v is at %q, want %v", p, v.addresses[p.Session], want)
				}
			}
			effort.Is(t, string(got), string(c.want), "sessions", got, c.want)
			effort.Is(t, v.owner("example.net") == "", len(c.want) == 0, "no owner")
		})
	}
}

// TestWhoWorksOnACopy: each case has three snapshots in a row with one member. Only in the first case the member
// works on a copy; the others may happen on the ledger of this node.
func TestWhoWorksOnACopy(t *testing.T) {
	const never = -1                              // it has no row
	type viewInputs struct{ now, beat, seen int } // seconds by the ledger's clock
	session := uuid.UUID{7}
	for name, c := range map[string]struct {
		sights []viewInputs
		want   bool
	}{
		"it has no row and goes on to beat":   {[]viewInputs{{10, 9, never}, {15, 14, never}, {20, 19, never}}, true},
		"its row is as old as the copy":       {[]viewInputs{{10, 9, 1}, {15, 14, 1}, {20, 19, 1}}, true},
		"it beats here":                       {[]viewInputs{{10, 9, 9}, {15, 14, 14}, {20, 19, 19}}, false},
		"clocks of gateways differ":           {[]viewInputs{{10, 9, 8}, {15, 14, 13}, {20, 19, 18}}, false},
		"it has only begun":                   {[]viewInputs{{10, 0, never}, {15, 0, never}, {20, 0, never}}, false},
		"it reaches its ledger no more":       {[]viewInputs{{10, 9, never}, {15, 9, never}, {20, 9, never}}, false},
		"it was forgotten and beats again":    {[]viewInputs{{30, 9, never}, {35, 9, never}, {40, 39, 39}}, false},
		"a failover lost its row for once":    {[]viewInputs{{10, 9, never}, {15, 14, 14}, {20, 19, never}}, false},
		"the clock was set back":              {[]viewInputs{{10, 19, 9}, {15, 24, 14}, {20, 29, 19}}, false},
		"not for long enough":                 {[]viewInputs{{10, 9, never}, {12, 11, never}, {19, 18, never}}, false},
		"it was paused, and then this node":   {[]viewInputs{{10, 9, never}, {500, 9, never}, {900, 9, never}}, false},
		"it does not go on to beat meanwhile": {[]viewInputs{{10, 10, never}, {15, 10, never}, {20, 10, never}}, false},
	} {
		a := apart{lost: DefaultTimes().Lost}
		found := false
		for _, s := range c.sights {
			roll := ledger.NodeSnapshot{Now: time.Unix(int64(s.now), 0)}
			if s.seen != never {
				roll.Nodes = []ledger.NodeRow{{Heartbeat: ledger.Heartbeat{Incarnation: ledger.Incarnation{Session: session}},
					Seen: time.Unix(int64(s.seen), 0)}}
			}
			found = slices.Contains(a.compareViews(roll, map[uuid.UUID]int64{session: int64(s.beat) * 1000}), session) || found
		}
		effort.Is(t, found, c.want, fmt.Sprintf("%s: apart is", name))
	}
}

func TestFence(t *testing.T) {
	const near, after = time.Second, 8 * time.Second
	f := fence{after: after, ahead: 2 * near}
	effort.ErrorIf(t, !f.near() || !f.up() || !f.until().IsZero(), "the fence is down before the first heartbeat")
	now := time.Now()
	f.beaten(now)
	if f.up() || !f.until().Equal(now.Add(after)) {
		t.Errorf("after a heartbeat the fence is up or goes up at %s, want %s", f.until(), now.Add(after))
	}
	f.beaten(now.Add(near - after))
	effort.ErrorIf(t, f.up() || !f.near(), "a second before it goes up the fence is up, or not near")
	f.beaten(time.Now())
	effort.ErrorIf(t, f.near(), "right after a heartbeat the fence is near")
	f.beaten(now.Add(-after - near))
	effort.ErrorIf(t, !f.up() || !f.until().IsZero(),
		"the fence is down though the last heartbeat was sent too long ago")
}

// TestSinceIsTheLongerTime: a time without a reading of the monotonic clock counts by the wall clock. This happens
// after a machine slept or its clock was set.
func TestSinceIsTheLongerTime(t *testing.T) {
	then := time.Now()
	effort.Is(t, since(then, then.Add(3*time.Second)), 3*time.Second)
	effort.Is(t, since(then.Round(0).Add(-time.Hour), then), time.Hour)
}

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

// TestConnectionsToMembersThatLeftEnd: the library is told once of each member that left, even if another one has
// taken its address. It is never told of this node.
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
