package cluster

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// LingerMax is how long after it was last seen a lost process may still have SMTP sessions, unless it is known to be
// dead. Receivers wait at least 5 minutes for the next command (RFC 5321 §4.5.3.2.7), and the process may have sent
// commands until its fence went up. Only tests use less.
const LingerMax = 5*time.Minute + 10*time.Second

// ShareTable says what one process may use by one snapshot. Nil allows nothing. Safe for concurrent use.
type ShareTable struct {
	self      uuid.UUID
	views     [][]ledger.Incarnation // each once
	voters    []voter
	lingering []voter  // lost processes that may still have sessions
	silent    []uint64 // hashes of our keys with which others may have silent sessions, ascending
	unread    bool
}

// voter is one process and the views that its vote can mean: one view, or two while its change is not settled.
type voter struct {
	session uuid.UUID
	views   []int
	counts  bool // the vote counts, for the owner on which all its views agree
}

// ComputeShares returns the table of the process self for one snapshot. Keys of a lost process stay unused for restFor
// (LingerMax, outside of tests).
func ComputeShares(roll ledger.NodeSnapshot, self uuid.UUID, restFor time.Duration) *ShareTable {
	t := &ShareTable{self: self}
	read, here := readByAll(roll, self)
	if !here {
		return nil
	}
	for _, row := range roll.Nodes {
		settled := row.Generation <= read
		t.unread = t.unread || !settled
		v := voter{session: row.Session, views: []int{t.view(row.View)}}
		if row.Before != nil && (!settled || row.Status != ledger.NodeIn) {
			v.views = append(v.views, t.view(row.Before))
		}
		if row.Status == ledger.NodeIn {
			v.counts = settled || row.Before != nil
		}
		if row.Status == ledger.NodeIn || !settled {
			t.voters = append(t.voters, v)
		}
		if row.Status == ledger.NodeLost && !row.Dead && roll.Now.Sub(row.Seen) < restFor {
			t.lingering = append(t.lingering, v)
		}
	}
	for _, row := range roll.Nodes {
		if row.Session != self && (row.Status == ledger.NodeIn || roll.Now.Sub(row.Seen) < restFor) {
			t.keepSilent(row.Silent)
		}
	}
	slices.Sort(t.silent)
	return t
}

// keepSilent notes the keys with which another process has silent sessions, even if that process has left or is dead.
// It skips keys that no vote gives to this process.
func (t *ShareTable) keepSilent(hashes []uint64) {
	for _, h := range hashes {
		if slices.ContainsFunc(t.views, func(v []ledger.Incarnation) bool { return ownerOf(v, h) == t.self }) {
			t.silent = append(t.silent, h)
		}
	}
}

// readByAll returns the generation that every member has read, and whether self is a member.
func readByAll(roll ledger.NodeSnapshot, self uuid.UUID) (read int64, here bool) {
	read = roll.Generation
	for _, row := range roll.Nodes {
		if row.Status == ledger.NodeIn {
			read = min(read, row.Read)
			here = here || row.Session == self
		}
	}
	return read, here
}

// view returns the index of a view in t.views, and adds it if it is new.
func (t *ShareTable) view(list []ledger.Incarnation) int {
	for i, v := range t.views {
		if slices.Equal(v, list) {
			return i
		}
	}
	t.views = append(t.views, list)
	return len(t.views) - 1
}

// Settled reports whether every process has read all changes; until then heartbeats should come quickly.
func (t *ShareTable) Settled() bool { return t != nil && !t.unread }

// Same reports whether two tables were computed from equal votes. Then they allow the same for every key.
func (t *ShareTable) Same(o *ShareTable) bool {
	if t == nil || o == nil {
		return t == o
	}
	equal := func(a, b voter) bool {
		return a.session == b.session && a.counts == b.counts && slices.Equal(a.views, b.views)
	}
	return t.self == o.self && slices.EqualFunc(t.views, o.views, slices.Equal) &&
		slices.EqualFunc(t.voters, o.voters, equal) && slices.EqualFunc(t.lingering, o.lingering, equal) &&
		slices.Equal(t.silent, o.silent)
}

// Voters returns how many processes share, this one included.
func (t *ShareTable) Voters() int {
	if t == nil {
		return 0
	}
	return len(t.voters)
}

// Of returns the share k/n of a key that this process may use. k is the number of votes for this process, and 0
// unless its own vote is one of them. So, if this process is lost, the others can tell from its vote what it may
// still be using.
func (t *ShareTable) Of(key string) (k, n int) {
	if t == nil {
		return 0, 1
	}
	hashed := Hash(key)
	if _, silent := slices.BinarySearch(t.silent, hashed); silent {
		return 0, max(1, len(t.voters))
	}
	owners := make([]uuid.UUID, len(t.views))
	for i, v := range t.views {
		owners[i] = ownerOf(v, hashed)
	}
	for _, r := range t.lingering {
		for _, v := range r.views {
			if owners[v] == r.session {
				return 0, len(t.voters)
			}
		}
	}
	sole := true // no vote can be for another process
	for _, v := range t.voters {
		mine := true
		for _, view := range v.views {
			mine = mine && owners[view] == t.self
		}
		if !mine && v.session == t.self {
			return 0, len(t.voters) // a process uses only keys that its own vote gives it, see Of
		}
		if mine && v.counts {
			k++
		}
		sole = sole && mine
	}
	if sole {
		return len(t.voters), len(t.voters)
	}
	return k, len(t.voters)
}
