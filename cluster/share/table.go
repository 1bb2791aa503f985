package share

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// RestFor is how long after it was last seen a lost process may still have SMTP
// sessions, if nobody knows that it is dead: receivers wait at least 5 minutes for
// the next command (RFC 5321 §4.5.3.2.7), and it may have sent the last one until its
// fence went up. Only tests take less.
const RestFor = 5*time.Minute + 10*time.Second

// Table says what one process may use, as of one roll. Its methods are safe for
// concurrent use. The nil Table allows nothing.
type Table struct {
	self    uuid.UUID
	views   [][]ledger.Incarnation // each once
	voters  []voter
	resting []voter  // lost, and perhaps with sessions
	silent  []uint64 // hashes of keys that others may still have sessions of, ascending: of those that might be ours
	unread  bool
}

// voter is one process and the views that its vote can mean: one, or two while
// its change is not settled.
type voter struct {
	session uuid.UUID
	views   []int
	counts  bool // for the owner of all its views, if that is one
}

// Compute makes the table of the process self from one roll. What a lost process
// had rests for restFor: RestFor, outside of tests.
func Compute(roll ledger.NodeSnapshot, self uuid.UUID, restFor time.Duration) *Table {
	t := &Table{self: self}
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
			t.resting = append(t.resting, v)
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

// keepSilent notes the keys that another process has silent sessions of, whatever became of it: it
// lives and has given them up, came back, left, or is dead. Those that no vote gives to
// this process are of no interest.
func (t *Table) keepSilent(hashes []uint64) {
	for _, h := range hashes {
		if slices.ContainsFunc(t.views, func(v []ledger.Incarnation) bool { return ownerOf(v, h) == t.self }) {
			t.silent = append(t.silent, h)
		}
	}
}

// readByAll returns the turn up to which every process that is in has read, and
// whether self is one of them.
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

// view returns the index of a view among those that differ.
func (t *Table) view(list []ledger.Incarnation) int {
	for i, v := range t.views {
		if slices.Equal(v, list) {
			return i
		}
	}
	t.views = append(t.views, list)
	return len(t.views) - 1
}

// Settled reports whether every process has read all that happened; while one has
// not, heartbeats should come quickly.
func (t *Table) Settled() bool { return t != nil && !t.unread }

// Same reports whether two tables allow the same of every key, as far as can be seen
// without looking at keys.
func (t *Table) Same(o *Table) bool {
	if t == nil || o == nil {
		return t == o
	}
	equal := func(a, b voter) bool {
		return a.session == b.session && a.counts == b.counts && slices.Equal(a.views, b.views)
	}
	return t.self == o.self && slices.EqualFunc(t.views, o.views, slices.Equal) &&
		slices.EqualFunc(t.voters, o.voters, equal) && slices.EqualFunc(t.resting, o.resting, equal) &&
		slices.Equal(t.silent, o.silent)
}

// Voters is how many processes there are to share with, this one included.
func (t *Table) Voters() int {
	if t == nil {
		return 0
	}
	return len(t.voters)
}

// Of says that this process may use k of n parts of what belongs to a key: one for each
// vote that means it, and none unless its own does. When it is lost, others can then tell
// from its own vote what it may still be using.
func (t *Table) Of(key string) (k, n int) {
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
	for _, r := range t.resting {
		for _, v := range r.views {
			if owners[v] == r.session {
				return 0, len(t.voters)
			}
		}
	}
	sole := true // nobody's vote can mean another process
	for _, v := range t.voters {
		mine := true
		for _, view := range v.views {
			mine = mine && owners[view] == t.self
		}
		if !mine && v.session == t.self {
			return 0, len(t.voters) // see resting: what a process uses, its own vote says
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
