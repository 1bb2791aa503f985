package registry

import (
	"sync/atomic"

	"github.com/google/uuid"

	"rollcall/ledger/quota"
)

// Slots bounds the sessions that a node has open at once, over all receivers, so that it never runs out of file
// descriptors. Workspaces share them: one alone may have half, so that a new one finds a slot (package quota). As many
// more sessions may be waiting for the receiver's close: each costs a descriptor and no work, so that silent receivers
// don't stop a node. Safe for concurrent use.
type Slots struct {
	pool  *quota.Pool[uuid.UUID]
	aside atomic.Int64 // how many more may
}

// NewSlots makes n slots.
func NewSlots(n int) *Slots {
	s := &Slots{pool: quota.New[uuid.UUID](int64(n))}
	s.aside.Store(int64(n))
	return s
}

// Take takes a slot for a workspace if one is free that it may have.
func (s *Slots) Take(workspace uuid.UUID, weight int) bool { return s.pool.Take(workspace, weight, 1) }

// Give gives a workspace's slot back.
func (s *Slots) Give(workspace uuid.UUID) { s.pool.Return(workspace, 1) }

// Free is how many slots nobody has.
func (s *Slots) Free() int { return int(s.pool.Size() - s.pool.Used()) }

// putAside gives back the slot of a session that only waits for the receiver's close. False: too many do already, and
// this one keeps its slot.
func (s *Slots) putAside(workspace uuid.UUID) bool {
	if s.aside.Add(-1) < 0 {
		s.aside.Add(1)
		return false
	}
	s.Give(workspace)
	return true
}

// endAside ends what putAside began.
func (s *Slots) endAside() { s.aside.Add(1) }
