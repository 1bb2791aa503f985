package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// errLost: the ledger did what it was asked, and nobody heard that.
var errLost = errors.New("answer lost")

// table is a ledger with the row of one process, and of another one that reads when
// it is told to.
type table struct {
	ledger.Nodes // nil: nothing else is called
	row          ledger.NodeRow
	turn         int64
	otherRead    int64
	lose         bool // the next answer
	beats        []ledger.Heartbeat
}

// WriteHeartbeat implements ledger.Nodes.
func (l *table) WriteHeartbeat(_ context.Context, b ledger.Heartbeat) (ledger.NodeSnapshot, error) {
	if len(l.beats) == 0 || !slices.Equal(l.row.View, b.View) {
		l.turn++
		l.row.Before, l.row.Generation = l.row.View, l.turn
	}
	l.row.Heartbeat = b
	l.beats = append(l.beats, b)
	if l.lose {
		l.lose = false
		return ledger.NodeSnapshot{}, errLost
	}
	other := ledger.NodeRow{Heartbeat: ledger.Heartbeat{Incarnation: process(2), View: []ledger.Incarnation{process(2)},
		Read: l.otherRead}}
	now := time.Now()
	l.row.Seen, other.Seen = now, now
	return ledger.NodeSnapshot{Now: now, Generation: l.turn, Nodes: []ledger.NodeRow{l.row, other}}, nil
}

func process(session byte) ledger.Incarnation {
	c := card(session)
	return ledger.Incarnation{Session: c.Session, Node: c.Node}
}

// newBeating makes a node that beats when it is told to.
func newBeating(l *table, comply func(ctx context.Context, of func(string) (int, int)) error) *Node {
	n := &Node{log: slog.New(slog.NewTextHandler(io.Discard, nil)), peers: &Peers{Book: l}, meta: card(1),
		lookup: &lookup{view: newCurrent()}, options: Options{Comply: comply, Load: func() Load { return Load{Leases: 3} }},
		times: DefaultTimes()}
	n.heartbeats = newHeartbeats(n)
	return n
}

func sees(n *Node, sessions ...byte) {
	v := &view{addresses: map[uuid.UUID]string{}}
	for _, s := range sessions {
		v.members = append(v.members, process(s))
	}
	n.lookup.view.Store(v)
}

func obey(context.Context, func(string) (int, int)) error { return nil }

func TestAVoteStandsUntilItIsKnownThatAllHaveReadIt(t *testing.T) {
	l := &table{}
	n := newBeating(l, obey)
	for _, step := range []struct {
		name string
		sees []byte
		read int64 // up to which the other process has read
		lose bool
		want []byte // the view that is voted for
	}{
		{"the first vote", []byte{1}, 1, false, []byte{1}},
		{"not before this node has said that it has read the first", []byte{1, 2}, 1, false, []byte{1}},
		{"a change when all is read", []byte{1, 2}, 1, false, []byte{1, 2}},
		{"not while the other has not read", []byte{1}, 1, false, []byte{1, 2}},
		{"not in the heartbeat that shows that it has", []byte{1}, 2, false, []byte{1, 2}},
		{"but after that, and the answer is lost", []byte{1}, 2, true, []byte{1}},
		{"not when the fate of the last vote is unknown", []byte{1, 2, 3}, 2, false, []byte{1}},
		{"nor when it turns out to have been taken and not read", []byte{1, 2, 3}, 3, false, []byte{1}},
		{"but now", []byte{1, 2, 3}, 3, false, []byte{1, 2, 3}},
	} {
		sees(n, step.sees...)
		l.otherRead, l.lose = step.read, step.lose
		if err := n.heartbeats.writeHeartbeat(t.Context()); (err != nil) != step.lose {
			t.Fatalf("%s: got %v", step.name, err)
		}
		var got []byte
		for _, p := range l.beats[len(l.beats)-1].View {
			got = append(got, p.Session[0])
		}
		if string(got) != string(step.want) {
			t.Errorf("%s: the vote is for %v, want %v", step.name, got, step.want)
		}
	}
}

func TestATurnIsAcknowledgedWhenTheNodeKeepsToIt(t *testing.T) {
	l, slow := &table{otherRead: 1}, errors.New("a receiver has a session too many")
	result := error(nil)
	n := newBeating(l, func(context.Context, func(string) (int, int)) error { return result })
	sees(n, 1)
	for i, step := range []struct {
		comply error
		want   int64 // read, as the heartbeat says
	}{{slow, 0}, {slow, 0}, {nil, 0}, {slow, 1}, {nil, 1}} {
		result = step.comply
		if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := l.beats[i]; b.Read != step.want || b.Leases != 3 || b.Session != process(1).Session {
			t.Errorf("beat %d says %+v, want read %d", i, b, step.want)
		}
	}
}

func TestANodeRestsBehindItsFence(t *testing.T) {
	l, given := &table{otherRead: 1}, 1
	n := newBeating(l, func(_ context.Context, of func(string) (int, int)) error {
		given, _ = of("example.net")
		return nil
	})
	sees(n, 1)
	if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil || n.rested.Load() {
		t.Fatalf("heartbeat: %v, rested %v", err, n.rested.Load())
	}
	n.heartbeats.fence.beaten(time.Now().Add(-n.times.Fence))
	if k, _ := n.Share("example.net"); k != 0 || !n.Fenced() {
		t.Errorf("behind its fence the node may use %d parts", k)
	}
	given = 1
	if !n.heartbeats.rest(t.Context()) || given != 0 || !n.rested.Load() {
		t.Errorf("rested is %v with %d parts, want true with none", n.rested.Load(), given)
	}
	if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil || n.rested.Load() || n.Fenced() {
		t.Errorf("after a good heartbeat: %v, rested %v, fenced %v", err, n.rested.Load(), n.Fenced())
	}
}

func TestANodeThatCannotRestIsNotTakenForResting(t *testing.T) {
	n := newBeating(&table{}, func(context.Context, func(string) (int, int)) error { return errLost })
	if n.heartbeats.rest(t.Context()) || n.rested.Load() {
		t.Error("a node that still has SMTP sessions says that it rests")
	}
}

// TestSharesThatWereKeptToInPartAreKeptToAgain: a table that could not be kept to in
// time may have been adopted by some receivers; when the one before it is in force
// again, they have to hear of that.
func TestSharesThatWereKeptToInPartAreKeptToAgain(t *testing.T) {
	l, calls, slow := &table{}, 0, false
	n := newBeating(l, func(context.Context, func(string) (int, int)) error {
		calls++
		if slow {
			return context.DeadlineExceeded
		}
		return nil
	})
	beat := func(want int) {
		t.Helper()
		if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil || calls != want {
			t.Fatalf("receivers were told %d times, %v; want %d", calls, err, want)
		}
	}
	sees(n, 1)
	beat(1)
	l.otherRead = l.turn
	read := n.heartbeats.complied
	beat(2) // settled now
	beat(2) // the same
	slow, l.otherRead = true, 0
	beat(3)
	if n.heartbeats.complied != read {
		t.Fatal("a turn was acknowledged that was not kept to")
	}
	slow, l.otherRead = false, l.turn
	beat(4)
}

// TestTheFirstHeartbeatMayTakeItsTime: a node whose first one fails does not start, and
// it uses nothing yet. Later ones end before the fence goes up.
func TestTheFirstHeartbeatMayTakeItsTime(t *testing.T) {
	n := newBeating(&table{}, obey)
	n.times = DefaultTimes().Scaled(0.1)
	n.heartbeats = newHeartbeats(n)
	now := time.Now()
	if got := n.heartbeats.heartbeatTime(now); got != startTimeout {
		t.Errorf("the first heartbeat may take %s, want %s", got, startTimeout)
	}
	n.heartbeats.fence.beaten(now)
	if got := n.heartbeats.heartbeatTime(now); got != n.times.HeartbeatWithin {
		t.Errorf("the next one may take %s, want %s", got, n.times.HeartbeatWithin)
	}
	late := now.Add(n.times.Fence - n.times.HeartbeatWithin/2)
	if got := n.heartbeats.heartbeatTime(late); got != n.times.HeartbeatWithin/2 {
		t.Errorf("just before the fence one may take %s, want %s", got, n.times.HeartbeatWithin/2)
	}
}
