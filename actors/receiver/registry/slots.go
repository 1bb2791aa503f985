package registry

import (
	"container/list"
	"sync"
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

// Take takes a slot for a workspace if one is free and its share allows it.
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

func (s *Slots) endAside() { s.aside.Add(1) }

// ReceiverSlots bound the receivers in work on a node, over all workspaces: one workspace alone may have half of them,
// so that a new one finds a slot at once (package quota). A receiver keeps its slot, which counts for the workspace
// that first needed it, until it ends; an idle one is asked to end as soon as another waits. Safe for concurrent use.
type ReceiverSlots struct {
	quota *quota.Slots[uuid.UUID]

	mu    sync.Mutex
	idle  list.List // of *ReceiverSlot, the idle ones; longest idle first
	asked int       // Yields without an answer
}

// ReceiverSlot is what one receiver has, or waits for.
type ReceiverSlot struct {
	slots     *ReceiverSlots
	quota     *quota.Slot[uuid.UUID]
	workspace uuid.UUID
	tell      func(msg any)
	place     *list.Element // in idle; nil: it has work, or was asked. Guarded by mu
	asked     bool          // guarded by mu
}

// SlotGranted tells an actor that its slot is there.
type SlotGranted struct{}

// Yield asks an idle actor to end, because others wait; it answers with Leave or Stay.
type Yield struct{}

// NewReceiverSlots makes n slots; 0: as many as are asked for. Weight as in quota.NewSlots.
func NewReceiverSlots(n int, weight func(workspace uuid.UUID) int) *ReceiverSlots {
	if n <= 0 {
		n = 1 << 40
	}
	return &ReceiverSlots{quota: quota.NewSlots(int64(n), weight)}
}

// Take takes a slot in the name of a verification, or queues for one: tell is then called with SlotGranted. tell must
// not block.
func (s *ReceiverSlots) Take(workspace, verification uuid.UUID, tell func(msg any)) (slot *ReceiverSlot, now bool) {
	slot = &ReceiverSlot{slots: s, workspace: workspace, tell: tell}
	slot.quota, now = s.quota.Ask(workspace, verification, func() { tell(SlotGranted{}) })
	if !now {
		s.makeRoom()
	}
	return slot, now
}

// Waiting is how many receivers wait for a slot.
func (s *ReceiverSlots) Waiting() int { return s.quota.Waiting() }

// SetIdle notes whether the receiver has work.
func (t *ReceiverSlot) SetIdle(idle bool) {
	s := t.slots
	s.mu.Lock()
	if !idle {
		t.leaveIdle()
	} else if t.place == nil && !t.asked {
		t.place = s.idle.PushBack(t)
	}
	s.mu.Unlock()
	s.makeRoom()
}

// leaveIdle takes a slot off the idle list. Under mu.
func (t *ReceiverSlot) leaveIdle() {
	if t.place != nil {
		t.slots.idle.Remove(t.place)
		t.place = nil
	}
}

// Stay answers Yield: the receiver has work again.
func (t *ReceiverSlot) Stay() {
	t.answer()
	t.slots.makeRoom()
}

// answer takes a slot off the idle list, and notes the answer if it was asked to yield.
func (t *ReceiverSlot) answer() {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.leaveIdle()
	if t.asked {
		t.asked = false
		t.slots.asked--
	}
}

// Leave gives the slot up, or the wait for it. Twice is fine.
func (t *ReceiverSlot) Leave() {
	t.answer()
	t.quota.Done()
	t.slots.makeRoom()
}

// makeRoom asks as many idle receivers to end as others wait for a slot: first receivers whose own workspace waits,
// the longest idle of them first.
func (s *ReceiverSlots) makeRoom() {
	waiting := s.quota.Waiting()
	if waiting == 0 {
		return
	}
	var ask []*ReceiverSlot
	s.mu.Lock()
	for s.asked < waiting && s.idle.Len() > 0 {
		t := s.idle.Front().Value.(*ReceiverSlot)
		for e := s.idle.Front(); e != nil; e = e.Next() {
			if own := e.Value.(*ReceiverSlot); s.quota.Waits(own.workspace) {
				t = own
				break
			}
		}
		t.leaveIdle()
		t.asked = true
		s.asked++
		ask = append(ask, t)
	}
	s.mu.Unlock()
	for _, t := range ask {
		t.tell(Yield{})
	}
}
