package cluster

import (
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

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
