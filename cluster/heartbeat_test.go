package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/config/effort"
	"rollcall/ledger"
)

// errLost: the ledger did what it was asked to do, but the answer was lost.
var errLost = errors.New("answer lost")

// table is a ledger with two rows: one of the tested process, one of another process that reads when the test says
// so.
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

// newBeating makes a node that sends a heartbeat when the test says so.
func newBeating(l *table, applyShares func(ctx context.Context, of func(string) (int, int)) error) *Node {
	n := &Node{log: slog.New(slog.NewTextHandler(io.Discard, nil)), peers: &Peers{Book: l}, meta: card(1),
		lookup: &lookup{}, options: Options{ApplyShares: applyShares,
			Load: func() Load { return Load{Leases: 3} }},
		times: DefaultTimes()}
	n.lookup.view.Store(&view{})
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
		read int64 // the generation up to which the other process has read
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
		effort.MustBe(t, n.heartbeats.writeHeartbeat(t.Context()) != nil, step.lose, step.name)
		var got []byte
		for _, p := range l.beats[len(l.beats)-1].View {
			got = append(got, p.Session[0])
		}
		effort.Is(t, string(got), string(step.want), step.name, "the vote is for", got, step.want)
	}
}

func TestATurnIsAcknowledgedWhenTheNodeKeepsToIt(t *testing.T) {
	l, slow := &table{otherRead: 1}, errors.New("a receiver has a session too many")
	result := error(nil)
	n := newBeating(l, func(context.Context, func(string) (int, int)) error { return result })
	sees(n, 1)
	for i, step := range []struct {
		applyShares error
		want        int64 // value of read in the heartbeat
	}{{slow, 0}, {slow, 0}, {nil, 0}, {slow, 1}, {nil, 1}} {
		result = step.applyShares
		effort.OK(t, n.heartbeats.writeHeartbeat(t.Context()))
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
	if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil || n.heartbeats.suspended.Load() {
		t.Fatalf("heartbeat: %v, rested %v", err, n.heartbeats.suspended.Load())
	}
	n.heartbeats.fence.beaten(time.Now().Add(-n.times.Fence))
	k, _ := n.Share("example.net")
	effort.ErrorIf(t, k != 0 || !n.Fenced(), "behind its fence the node may use %d parts", k)
	given = 1
	effort.ErrorIf(t, !n.heartbeats.suspend(t.Context()) || given != 0 || !n.heartbeats.suspended.Load(),
		"rested is %v with %d parts, want true with none", n.heartbeats.suspended.Load(), given)
	if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil || n.heartbeats.suspended.Load() || n.Fenced() {
		t.Errorf("after a good heartbeat: %v, rested %v, fenced %v", err, n.heartbeats.suspended.Load(), n.Fenced())
	}
}

func TestANodeThatCannotRestIsNotTakenForResting(t *testing.T) {
	n := newBeating(&table{}, func(context.Context, func(string) (int, int)) error { return errLost })
	effort.ErrorIf(t, n.heartbeats.suspend(t.Context()) || n.heartbeats.suspended.Load(),
		"a node that still has SMTP sessions says that it rests")
}

// TestSharesThatWereKeptToInPartAreKeptToAgain: if new shares could not be applied in time, some receivers may have
// applied them. When the earlier shares hold again, these receivers must get them again.
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
		err := n.heartbeats.writeHeartbeat(t.Context())
		effort.FatalIf(t, err != nil || calls != want, "receivers were told %d times, %v; want %d", calls, err, want)
	}
	sees(n, 1)
	beat(1)
	l.otherRead = l.turn
	read := n.heartbeats.applied
	beat(2) // settled now
	beat(2) // the same
	slow, l.otherRead = true, 0
	beat(3)
	effort.MustBe(t, n.heartbeats.applied, read, "the version complied with")
	slow, l.otherRead = false, l.turn
	beat(4)
}

// TestTheFirstHeartbeatMayTakeItsTime: a node uses nothing before its first heartbeat, so the first heartbeat may
// take as long as the start of the node. Later ones end before the fence goes up.
func TestTheFirstHeartbeatMayTakeItsTime(t *testing.T) {
	n := newBeating(&table{}, obey)
	n.times = effort.Scaled(DefaultTimes(), 0.1)
	n.heartbeats = newHeartbeats(n)
	now := time.Now()
	effort.Is(t, n.heartbeats.heartbeatTime(now), startTimeout, "the first heartbeat may take")
	n.heartbeats.fence.beaten(now)
	effort.Is(t, n.heartbeats.heartbeatTime(now), n.times.HeartbeatWithin, "the next one may take")
	late := now.Add(n.times.Fence - n.times.HeartbeatWithin/2)
	effort.Is(t, n.heartbeats.heartbeatTime(late), n.times.HeartbeatWithin/2, "just before the fence one may take")
}

// linkWait bounds how long a test waits for an expected event.
const linkWait = 3 * time.Minute

// linkLife is longer than even a slow machine takes.
const linkLife = time.Hour

// newLinked returns the links of a node that answers its own questions, and the channel that they signal.
func newLinked(t *testing.T) (*Node, *links, chan struct{}) {
	n, _ := startEcho(t)
	n.startAnswering()
	changes := make(chan struct{}, 100)
	return n, newLinks(n.system, Times{LinkLife: linkLife, Ask: linkWait}, func() int64 { return 4 }, func() { changes <- struct{}{} }), changes
}

func wantChange(t *testing.T, changes chan struct{}) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(linkWait):
		t.Fatal("a change of links was not told")
	}
}

func TestAMemberIsLinkedWhileItAnswers(t *testing.T) {
	n, l, changes := newLinked(t)
	self, other := n.meta.Session, card(7)
	there := gossip.Member{NodeMeta: n.meta} // the node asks itself, as if it were another member
	members := []gossip.Member{there, {NodeMeta: other}}
	effort.FatalIf(t, l.linked(self), "linked before it was asked")
	l.ask(members[:1], other.Session)
	wantChange(t, changes)
	effort.FatalIf(t, !l.linked(self), "it answered and is not linked")
	l.touch(self, n.meta.Actors)
	select {
	case <-changes:
		t.Fatal("a second answer was told as a change")
	default:
	}
	l.mu.Lock()
	l.answered[self] = time.Now().Add(-linkLife)
	l.mu.Unlock()
	effort.FatalIf(t, l.linked(self), "linked %s after its last answer", linkLife)
	l.touch(self, n.meta.Actors)
	wantChange(t, changes)
	l.ask(nil, other.Session)
	effort.FatalIf(t, l.linked(self), "linked when gossip does not see it")
}

func TestTheAnswerOfAnotherProcessIsNone(t *testing.T) {
	n, l, changes := newLinked(t)
	stranger := card(7) // this process now has the address of another session
	l.touch(stranger.Session, n.meta.Actors)
	effort.ErrorIf(t, l.linked(stranger.Session) || len(changes) != 0,
		"linked is %v after %d changes, want neither", l.linked(stranger.Session), len(changes))
	l.mu.Lock()
	l.answered[stranger.Session] = time.Now().Add(-linkLife)
	l.mu.Unlock()
	l.touch(stranger.Session, n.meta.Actors)
	wantChange(t, changes) // it is not linked any more
}

func TestANewerGenerationOfAMemberIsTold(t *testing.T) {
	n, l, changes := newLinked(t)
	l.touch(n.meta.Session, n.meta.Actors)
	wantChange(t, changes) // linked
	n.heartbeats.snapshot.Store(&ledger.NodeSnapshot{Generation: 4})
	l.touch(n.meta.Session, n.meta.Actors)
	effort.Is(t, len(changes), 0, "a turn that is known was told")
	n.heartbeats.snapshot.Store(&ledger.NodeSnapshot{Generation: 5})
	l.touch(n.meta.Session, n.meta.Actors)
	wantChange(t, changes)
}

func TestNobodyIsAskedTwiceAtATime(t *testing.T) {
	n, l, changes := newLinked(t)
	l.mu.Lock()
	l.asked[n.meta.Session] = true // a question is out
	l.mu.Unlock()
	l.ask([]gossip.Member{{NodeMeta: n.meta}}, card(7).Session)
	l.touch(n.meta.Session, n.meta.Actors) // the answer to the question above
	wantChange(t, changes)
	effort.Is(t, len(changes), 0, "asked again while a question was out")
}

// hashed returns silent receivers in the form that a row has.
func hashed(keys ...string) (out []uint64) {
	for _, key := range keys {
		out = append(out, Hash(key))
	}
	slices.Sort(out)
	return out
}

// TestAHeartbeatNamesWhatIsSilent: a heartbeat lists each silent receiver once, in order, with the generation that
// the node has applied.
func TestAHeartbeatNamesWhatIsSilent(t *testing.T) {
	l := &table{otherRead: 1}
	n := newBeating(l, obey)
	var keys []string
	n.options.Silent = func() []string { return keys }
	sees(n, 1)
	beat := func() ledger.Heartbeat {
		t.Helper()
		effort.OK(t, n.heartbeats.writeHeartbeat(t.Context()))
		return l.beats[len(l.beats)-1]
	}
	if b := beat(); len(b.Silent) != 0 {
		t.Errorf("silent are %v, want none", b.Silent)
	}
	keys = []string{"b.example", "a.example", "c.example", "a.example"}
	b := beat()
	if want := hashed("a.example", "b.example", "c.example"); !slices.Equal(b.Silent, want) || b.Read != 1 || b.Check() != nil {
		t.Errorf("silent are %v at turn %d, want %v; %v", b.Silent, b.Read, want, b.Check())
	}
	for i := range ledger.SilentMax + 1 {
		keys = append(keys, fmt.Sprintf("%d.example", i))
	}
	l.turn++ // of another process
	beat()
	if b = beat(); len(b.Silent) != ledger.SilentMax || b.Read != 1 || b.Check() != nil {
		t.Errorf("too many are silent, yet the row lists %d as all, at generation %d; %v", len(b.Silent), b.Read, b.Check())
	}
	keys = nil
	if b = beat(); len(b.Silent) != 0 || b.Read != 2 {
		t.Errorf("the row lists %d silent receivers at generation %d, want none at 2", len(b.Silent), b.Read)
	}
}

// TestANodeRestsWhenItsRowNamesAllThatIsSilent: other nodes believe the row, and use every receiver that it doesn't
// list.
func TestANodeRestsWhenItsRowNamesAllThatIsSilent(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then []string // in two heartbeats
		lost        bool     // the answer to the second heartbeat is lost
		now         []string // behind the fence
		rests       bool
	}{
		{"nothing is silent", nil, nil, false, nil, true},
		{"what was named", nil, []string{"a", "b"}, false, []string{"b"}, true},
		{"what was not named", nil, []string{"a"}, false, []string{"a", "b"}, false},
		{"what was named once", []string{"a"}, nil, false, []string{"a"}, false},
		{"what may not have been written", nil, []string{"a"}, true, []string{"a"}, false},
		{"what may have been written over", []string{"a"}, nil, true, []string{"a"}, false},
		{"what was named in any case", []string{"a", "b"}, []string{"a", "c"}, true, []string{"a"}, true},
	} {
		l := &table{otherRead: 1}
		n := newBeating(l, obey)
		keys := c.first
		n.options.Silent = func() []string { return keys }
		sees(n, 1)
		effort.OK(t, n.heartbeats.writeHeartbeat(t.Context()))
		keys, l.lose = c.then, c.lost
		effort.MustBe(t, (n.heartbeats.writeHeartbeat(t.Context()) != nil), c.lost)
		keys = c.now
		n.heartbeats.fence.beaten(time.Now().Add(-n.times.Fence))
		effort.ErrorIf(t, !n.heartbeats.suspend(t.Context()) || n.heartbeats.suspended.Load() != c.rests,
			"%s: rests is %v, want %v", c.name, n.heartbeats.suspended.Load(), c.rests)
	}
}

// farewells is a ledger that notes which processes leave.
type farewells struct {
	table
	left int
}

// Leave implements ledger.Nodes.
func (l *farewells) Leave(context.Context, uuid.UUID) error {
	l.left++
	return nil
}

// TestWhoLeavesNamesWhatIsSilent: a leaving node waits for receivers to confirm the end of its sessions, and then
// lists those that did not.
func TestWhoLeavesNamesWhatIsSilent(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	l := &farewells{table: table{otherRead: 1}}
	n := newBeating(&l.table, obey)
	n.peers.Book = l
	asked, heard := 0, 3
	n.options.Silent = func() []string {
		if asked++; asked > heard {
			return nil
		}
		return []string{"a.example"}
	}
	sees(n, 1)
	effort.OK(t, n.heartbeats.writeHeartbeat(t.Context()))
	if err := n.heartbeats.writeLeave(t.Context()); err != nil || l.left != 1 || len(l.beats) != 1 {
		t.Errorf("receivers confirmed the end: %v, left %d times, %d heartbeats", err, l.left, len(l.beats))
	}
	heard = 1 << 30
	if err := n.heartbeats.writeLeave(t.Context()); err != nil || l.left != 2 || len(l.beats) != 2 ||
		!slices.Equal(l.beats[1].Silent, hashed("a.example")) {
		t.Errorf("a receiver did not confirm the end: %v, left %d times, %d heartbeats", err, l.left, len(l.beats))
	}
}

// retired is a ledger that keeps who was counted out as dead.
type retired struct {
	ledger.Nodes // nil: nothing else is called
	dead         bool
}

// Retire implements ledger.Nodes.
func (r *retired) Retire(_ context.Context, _ uuid.UUID, _ time.Duration, dead bool) error {
	r.dead = r.dead || dead
	return nil
}

// TestALostProcessIsDeadIfItsReceiversHeardOfIt: its machine must have been reachable all the time. A dial within a
// nanosecond reaches nobody.
func TestALostProcessIsDeadIfItsReceiversHeardOfIt(t *testing.T) {
	now := time.Now()
	gone := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := gone.Addr().String()
	effort.OK(t, gone.Close())
	row := func(session, node byte, status ledger.NodeStatus, started time.Duration) ledger.NodeRow {
		r := ledger.NodeRow{Status: status, Heartbeat: ledger.Heartbeat{Actors: address, Incarnation: process(session),
			Started: now.Add(started)}}
		r.Node = process(node).Node
		return r
	}
	const reached, away = time.Second, time.Nanosecond
	once, never, twice, back := []time.Duration{reached}, []time.Duration{away}, []time.Duration{away, away},
		[]time.Duration{away, reached}
	for what, c := range map[string]struct {
		status ledger.NodeStatus
		looks  []time.Duration // how long each look at its machine takes at most
		later  byte            // the session of a later process of its node
		seen   time.Duration   // before now; 0: 20 s
		dead   bool
	}{
		"its machine refuses":           {status: ledger.NodeIn, looks: once, dead: true},
		"its machine can't be reached":  {status: ledger.NodeIn, looks: never},
		"and refuses later":             {status: ledger.NodeIn, looks: back},
		"and has another process later": {status: ledger.NodeIn, looks: twice, later: 3},
		"another has its address":       {status: ledger.NodeIn, looks: never, later: 3, dead: true},
		"this process has its address":  {status: ledger.NodeIn, looks: never, later: 1, dead: true},
		"this one, but the machine started anew": {status: ledger.NodeIn, looks: never, later: 1,
			seen: upFor() + time.Minute},
		"this one, but others have counted it out": {status: ledger.NodeLost, looks: never, later: 1},
	} {
		book := &retired{}
		n := newBeating(nil, obey)
		n.peers.Book = book
		lost := row(2, 2, c.status, -time.Hour)
		lost.Seen = now.Add(-cmp.Or(c.seen, 20*time.Second))
		for i, within := range c.looks {
			roll := &ledger.NodeSnapshot{Now: now, Nodes: []ledger.NodeRow{lost}}
			if c.later != 0 && i == len(c.looks)-1 {
				roll.Nodes = append(roll.Nodes, row(c.later, 2, ledger.NodeIn, 0))
			}
			n.heartbeats.snapshot.Store(roll)
			n.times.Ask = within
			n.heartbeats.search(t.Context(), []ledger.NodeRow{lost})
		}
		effort.Is(t, book.dead, c.dead, what)
	}
}
