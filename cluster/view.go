package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/cluster/share"
	"rollcall/ledger"
)

// view is whom a process counts on, and where they are.
type view struct {
	members   []ledger.Incarnation // by session
	addresses map[uuid.UUID]string // of their actors, by session
}

// owner returns the actor address of the member where an identity has its place; ""
// when there is no member.
func (v *view) owner(identity string) string {
	return v.addresses[share.Owner(v.members, identity)]
}

// viewInputs is everything that decides the view.
type viewInputs struct {
	self     gossip.NodeMeta
	members  []gossip.Member
	linked   func(session uuid.UUID) bool
	snapshot ledger.NodeSnapshot
	away     bool // this process drains, or is not fit to probe
}

// refreshView gives the view: who is seen by gossip, answers over actor traffic, has a
// row that is in, counts on itself in that row, and is not about to leave. This
// process counts on itself, unless it drains or is not fit.
func (s viewInputs) computeView() *view {
	v := &view{addresses: map[uuid.UUID]string{}}
	add := func(c gossip.NodeMeta) {
		v.members = append(v.members, ledger.Incarnation{Session: c.Session, Node: c.Node})
		v.addresses[c.Session] = c.Actors
	}
	if !s.away {
		add(s.self)
	}
	in := make(map[uuid.UUID]bool, len(s.snapshot.Nodes))
	for _, row := range s.snapshot.Nodes {
		in[row.Session] = row.Status == ledger.NodeIn && countsOnItself(row)
	}
	for _, m := range s.members {
		if m.Session != s.self.Session && !m.Draining && in[m.Session] && s.linked(m.Session) {
			add(m.NodeMeta)
		}
	}
	slices.SortFunc(v.members, func(a, b ledger.Incarnation) int { return slices.Compare(a.Session[:], b.Session[:]) })
	return v
}

// current is the view of the moment, for those who ask for an owner.
type current struct{ atomic.Pointer[view] }

func newCurrent() *current {
	c := &current{}
	c.Store(&view{})
	return c
}

// fence reports whether this process may be counted out by the others. Safe for
// concurrent use.
type fence struct {
	after time.Duration // Times.Fence
	ahead time.Duration // Times.Unacknowledged
	sent  atomic.Pointer[time.Time]
}

// beaten notes a heartbeat that the ledger took, by when it was sent.
func (f *fence) beaten(sent time.Time) { f.sent.Store(&sent) }

// up says that this process may use nothing: it has not reached the ledger for
// too long. A machine that slept has a monotonic clock that slept too, and a
// wall clock that was set says too much; the longer of the two times counts.
func (f *fence) up() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after
}

// near says that what is sent now may still be on its way when the fence goes up.
func (f *fence) near() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after-f.ahead
}

// until is when the fence goes up; the zero time: it is.
func (f *fence) until() time.Time {
	if sent := f.sent.Load(); sent != nil && !f.up() {
		return sent.Add(f.after)
	}
	return time.Time{}
}

// since is the longer of the times that the monotonic and the wall clock saw pass.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// apartSlack is how much earlier than it says a member may have written its row: gateways of
// a database have clocks that differ by half a second at most.
const apartSlack = time.Second

// apart finds members that write their heartbeats into another ledger than the one that this
// node reads. Gossip takes only members whose ledger has the same identity, so one of the
// two works on a copy. A member says when its ledger took its last heartbeat, and only a roll
// that was read after that counts: its row in that roll must be as new. A row that new is
// neither counted out nor forgotten nor swept, so a ledger that lacks it never had it. A
// database that was set back by a failover lacks it too, until the next heartbeat: so a
// member must be apart for as long as it takes to be lost, in which it has gone on to beat.
// Only the goroutine of heartbeats uses it.
type apart struct {
	lost  time.Duration           // Times.Lost
	since map[uuid.UUID]time.Time // by the ledger's clock
}

// refreshView gives the members that are apart: said is what they had said before the roll was read.
func (a *apart) compareViews(roll ledger.NodeSnapshot, said map[uuid.UUID]int64) (found []uuid.UUID) {
	rows := make(map[uuid.UUID]time.Time, len(roll.Nodes))
	for _, row := range roll.Nodes {
		rows[row.Session] = row.Seen
	}
	before := a.since
	a.since = map[uuid.UUID]time.Time{}
	for session, beat := range said {
		at := time.UnixMilli(beat)
		age := roll.Now.Sub(at)
		if beat == 0 || age < 0 || age >= a.lost || !rows[session].Before(at.Add(-apartSlack)) {
			continue
		}
		first, known := before[session]
		if !known {
			first = roll.Now
		}
		a.since[session] = first
		if roll.Now.Sub(first) >= a.lost {
			found = append(found, session)
		}
	}
	return found
}

// part has gossip refuse the members that work on another ledger with this ledger's identity.
func (n *Node) part(roll ledger.NodeSnapshot, said map[uuid.UUID]int64) {
	for _, session := range n.heartbeats.apart.compareViews(roll, said) {
		n.gossip.Refuse(session)
	}
}
