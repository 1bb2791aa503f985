package registry

import "sync/atomic"

// Slots bounds the sessions that a node has open at once, over all receivers, so
// that it never runs out of file descriptors. Safe for concurrent use.
type Slots struct{ free atomic.Int64 }

// NewSlots makes n slots.
func NewSlots(n int) *Slots {
	s := &Slots{}
	s.free.Store(int64(n))
	return s
}

// Take takes a slot if one is free.
func (s *Slots) Take() bool {
	if s.free.Add(-1) >= 0 {
		return true
	}
	s.free.Add(1)
	return false
}

// Give gives a slot back.
func (s *Slots) Give() { s.free.Add(1) }
