package registry

import "sync/atomic"

// Slots bounds the sessions that a node has open at once, over all receivers, so
// that it never runs out of file descriptors. As many more may only wait for a
// receiver's end: they cost a descriptor each and no work, and receivers that keep
// silent must not stop a node. Safe for concurrent use.
type Slots struct{ free, aside atomic.Int64 }

// NewSlots makes n slots.
func NewSlots(n int) *Slots {
	s := &Slots{}
	s.free.Store(int64(n))
	s.aside.Store(int64(n))
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

// putAside gives a slot back whose session only waits for its end. False: too many do
// already, and this one keeps its slot.
func (s *Slots) putAside() bool {
	if s.aside.Add(-1) < 0 {
		s.aside.Add(1)
		return false
	}
	s.Give()
	return true
}

// endAside ends what putAside began.
func (s *Slots) endAside() { s.aside.Add(1) }
