package cluster

import (
	"slices"
	"sync/atomic"

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
