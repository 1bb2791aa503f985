package registry

import (
	"container/list"
	"sync"

	"github.com/google/uuid"

	"rollcall/ledger/quota"
)

// ReceiverSlots bound the receivers in work on a node, over all workspaces: one workspace alone may have half of them,
// so that a new one finds a slot at once (package quota). A receiver keeps its slot, which counts for the workspace
// that first needed it, until it ends; an idle one is asked to end as soon as another waits. Safe for concurrent use.
type ReceiverSlots struct {
	turns *quota.Turns[uuid.UUID]

	mu    sync.Mutex
	idle  list.List // of *ReceiverSlot, the idle ones; longest idle first
	asked int       // Yields without an answer
}

// ReceiverSlot is what one receiver has, or waits for.
type ReceiverSlot struct {
	slots     *ReceiverSlots
	turn      *quota.Turn[uuid.UUID]
	workspace uuid.UUID
	tell      func(msg any)
	place     *list.Element // in idle; nil: it has work, or was asked. Guarded by mu
	asked     bool          // guarded by mu
}

// SlotGranted tells an actor that its slot is there.
type SlotGranted struct{}

// Yield asks an idle actor to end, because others wait; it answers with Leave or Stay.
type Yield struct{}

// NewReceiverSlots makes n slots; 0: as many as are asked for. Weight as in quota.NewTurns.
func NewReceiverSlots(n int, weight func(workspace uuid.UUID) int) *ReceiverSlots {
	if n <= 0 {
		n = 1 << 40
	}
	return &ReceiverSlots{turns: quota.NewTurns(int64(n), weight)}
}

// Take takes a slot in the name of a verification, or queues for one: tell is then called with SlotGranted. tell must
// not block.
func (s *ReceiverSlots) Take(workspace, verification uuid.UUID, tell func(msg any)) (slot *ReceiverSlot, now bool) {
	slot = &ReceiverSlot{slots: s, workspace: workspace, tell: tell}
	slot.turn, now = s.turns.Ask(workspace, verification, func() { tell(SlotGranted{}) })
	if !now {
		s.makeRoom()
	}
	return slot, now
}

// Used is how many slots are taken, and Waiting how many receivers wait for one.
func (s *ReceiverSlots) Used() int { return int(s.turns.Used()) }

// Waiting is how many receivers wait for a slot.
func (s *ReceiverSlots) Waiting() int { return s.turns.Waiting() }

// MarkIdle marks the receiver as idle.
func (t *ReceiverSlot) MarkIdle() {
	s := t.slots
	s.mu.Lock()
	if t.place == nil && !t.asked {
		t.place = s.idle.PushBack(t)
	}
	s.mu.Unlock()
	s.makeRoom()
}

// Work marks it as at work again.
func (t *ReceiverSlot) Work() {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.leaveIdle()
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

// answer notes that a slot's Yield was answered.
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
	t.turn.Done()
	t.slots.makeRoom()
}

// makeRoom asks as many idle receivers to end as others wait for a slot: first those whose own workspace waits, among
// them the longest idle.
func (s *ReceiverSlots) makeRoom() {
	waiting := s.turns.Waiting()
	if waiting == 0 {
		return
	}
	var ask []*ReceiverSlot
	s.mu.Lock()
	for s.asked < waiting && s.idle.Len() > 0 {
		t := s.idle.Front().Value.(*ReceiverSlot)
		for e := s.idle.Front(); e != nil; e = e.Next() {
			if own := e.Value.(*ReceiverSlot); s.turns.Waits(own.workspace) {
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
