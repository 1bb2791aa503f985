package registry

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"rollcall/ledger/quota"
)

// Slots bounds the open sessions of a node, over all receivers, so that it never runs out of file descriptors.
// Workspaces share the slots. One workspace alone may have half of the slots, so that a new workspace finds a slot
// (package quota). As many more sessions may wait for the receiver's close. A waiting session costs a descriptor and no
// work, so that silent receivers don't stop a node. Safe for concurrent use.
type Slots struct {
	pool  *quota.Pool[uuid.UUID]
	aside atomic.Int64 // how many more sessions may wait aside
}

// NewSlots makes n slots.
func NewSlots(n int) *Slots {
	s := &Slots{pool: quota.New[uuid.UUID](int64(n))}
	s.aside.Store(int64(n))
	return s
}

// Take takes a slot for a workspace if a slot is free and the workspace's share allows it.
func (s *Slots) Take(workspace uuid.UUID, weight int) bool { return s.pool.Take(workspace, weight, 1) }

// Give gives a workspace's slot back.
func (s *Slots) Give(workspace uuid.UUID) { s.pool.Return(workspace, 1) }

// Free is how many slots nobody has.
func (s *Slots) Free() int { return int(s.pool.Size() - s.pool.Used()) }

// putAside gives back the slot of a session that only waits for the receiver's close. False: too many already wait, and
// the session keeps its slot.
func (s *Slots) putAside(workspace uuid.UUID) bool {
	if s.aside.Add(-1) < 0 {
		s.aside.Add(1)
		return false
	}
	s.Give(workspace)
	return true
}

func (s *Slots) endAside() { s.aside.Add(1) }

// ReceiverSlots bound the receivers in work on a node, over all workspaces. One workspace alone may have half of the
// slots, so that a new workspace finds a slot at once (package quota). A receiver keeps its slot until it ends; the
// slot counts for the workspace that first needed the receiver. When another receiver waits, an idle one is asked to
// end. Safe for concurrent use.
type ReceiverSlots struct {
	quota *quota.Slots[uuid.UUID]

	mu    sync.Mutex
	idle  list.List // the idle *ReceiverSlot, longest idle first
	asked int       // Yields that have no answer yet
}

// ReceiverSlot is a slot that one receiver has or waits for.
type ReceiverSlot struct {
	slots     *ReceiverSlots
	quota     *quota.Slot[uuid.UUID]
	workspace uuid.UUID
	tell      func(msg any)
	place     *list.Element // in idle; nil: the receiver has work, or was asked to yield. Guarded by mu
	asked     bool          // guarded by mu
}

// SlotGranted tells an actor that it has its slot.
type SlotGranted struct{}

// Yield asks an idle actor to end, because others wait. The actor answers with Leave or Stay.
type Yield struct{}

// NewReceiverSlots makes n slots; 0: any number. weight is that of quota.NewSlots.
func NewReceiverSlots(n int, weight func(workspace uuid.UUID) int) *ReceiverSlots {
	if n <= 0 {
		n = 1 << 40
	}
	return &ReceiverSlots{quota: quota.NewSlots(int64(n), weight)}
}

// Take takes a slot in the name of a verification, or waits for a slot. After a wait it calls tell with SlotGranted;
// tell must not block.
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

// answer takes a slot off the idle list. If its receiver was asked to yield, it notes the answer.
func (t *ReceiverSlot) answer() {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.leaveIdle()
	if t.asked {
		t.asked = false
		t.slots.asked--
	}
}

// Leave gives up the slot, or the wait for it. A second call does nothing.
func (t *ReceiverSlot) Leave() {
	t.answer()
	t.quota.Done()
	t.slots.makeRoom()
}

// makeRoom asks as many idle receivers to end as others wait for a slot. makeRoom prefers receivers of the workspaces
// that wait, and among these the longest idle.
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
