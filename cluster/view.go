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

// view is the members that a process counts on, and their addresses.
type view struct {
	members   []ledger.Incarnation // by session
	addresses map[uuid.UUID]string // of their actors, by session
}

// owner returns the actor address of the member that owns an identity; "" when there is no member.
func (v *view) owner(identity string) string {
	return v.addresses[share.Owner(v.members, identity)]
}

// viewInputs is everything that decides the view.
type viewInputs struct {
	self     gossip.NodeMeta
	members  []gossip.Member
	linked   func(session uuid.UUID) bool
	snapshot ledger.NodeSnapshot
	away     bool // this process drains or is ineligible
}

// computeView returns the view: the members that gossip sees, that answer over actor traffic, that the ledger has as
// members, that count on themselves and that don't drain. This process counts on itself unless it drains or is
// ineligible.
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

// current is the present view.
type current struct{ atomic.Pointer[view] }

func newCurrent() *current {
	c := &current{}
	c.Store(&view{})
	return c
}

// fence knows when the others may count this process out. Safe for concurrent use.
type fence struct {
	after time.Duration // Times.Fence
	ahead time.Duration // Times.Unacknowledged
	sent  atomic.Pointer[time.Time]
}

// beaten notes when a heartbeat was sent that the ledger took.
func (f *fence) beaten(sent time.Time) { f.sent.Store(&sent) }

// up reports whether this process may use nothing, because it has not reached the ledger for too long. The monotonic
// clock stops while a machine sleeps, and the wall clock may be set, so the longer of the two times counts.
func (f *fence) up() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after
}

// near reports whether bytes sent now may still be on their way when the fence goes up.
func (f *fence) near() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after-f.ahead
}

// until is when the fence goes up; the zero time if it is up.
func (f *fence) until() time.Time {
	if sent := f.sent.Load(); sent != nil && !f.up() {
		return sent.Add(f.after)
	}
	return time.Time{}
}

// since is the time that passed by the monotonic or the wall clock, whichever is longer.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// apartSlack is how much older a member's row may be than the member says: the clocks of a database's servers differ by
// half a second at most.
const apartSlack = time.Second

// apart finds members that write their heartbeats to another ledger than the one that this node reads. Gossip accepts
// only members whose ledger has the same identity, so one of the two ledgers is a copy. A member says when its ledger
// took its last heartbeat; in a snapshot that this node reads later, its row must be as new. Such a new row is neither
// counted out nor forgotten nor swept, so a ledger that lacks it never had it. A database that a failover set back
// lacks it too, but only until the next heartbeat. So a member is apart only if its row stays too old for the time
// Times.Lost. Only the goroutine of heartbeats uses apart.
type apart struct {
	lost  time.Duration           // Times.Lost
	since map[uuid.UUID]time.Time // by the ledger's clock
}

// compareViews returns the members that are apart: said is what they said before the snapshot was read.
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

// part makes gossip refuse members that work on another ledger with this ledger's identity.
func (n *Node) part(roll ledger.NodeSnapshot, said map[uuid.UUID]int64) {
	for _, session := range n.heartbeats.apart.compareViews(roll, said) {
		n.gossip.Refuse(session)
	}
}
