package registry

import (
	"container/list"
	"sync"

	"github.com/google/uuid"

	"rollcall/ledger/quota"
)

// Seats bound the receivers that may be in work on a node, over all workspaces: one alone may have a
// half of them, and who comes new finds one at once (package quota). A receiver keeps its seat, which
// counts for the workspace that needed it first, until it ends; one that has nothing to do is asked
// to end as soon as somebody waits. Safe for concurrent use.
type Seats struct {
	turns *quota.Turns[uuid.UUID]

	mu    sync.Mutex
	idle  list.List // of *Seat, those that have nothing to do; longest first
	asked int       // that were asked to end and have not answered
}

// Seat is what one receiver has, or waits for.
type Seat struct {
	seats     *Seats
	turn      *quota.Turn[uuid.UUID]
	workspace uuid.UUID
	tell      func(msg any)
	place     *list.Element // in idle; nil: it has work, or was asked. Guarded by mu
	asked     bool          // guarded by mu
}

// Seated tells an actor that its seat is there.
type Seated struct{}

// Yield asks an actor that has nothing to do to end, because others wait; it answers with Leave, or with
// Stay.
type Yield struct{}

// NewSeats makes n seats; 0: as many as are asked for. Weight as in quota.NewTurns.
func NewSeats(n int, weight func(workspace uuid.UUID) int) *Seats {
	if n <= 0 {
		n = 1 << 40
	}
	return &Seats{turns: quota.NewTurns(int64(n), weight)}
}

// Take takes a seat in the name of a verification, or waits for one in its turn: then tell is given
// Seated. It must not block.
func (s *Seats) Take(workspace, verification uuid.UUID, tell func(msg any)) (seat *Seat, now bool) {
	seat = &Seat{seats: s, workspace: workspace, tell: tell}
	seat.turn, now = s.turns.Ask(workspace, verification, func() { tell(Seated{}) })
	if !now {
		s.makeRoom()
	}
	return seat, now
}

// Used is how many seats are taken, and Waiting how many receivers wait for one.
func (s *Seats) Used() int { return int(s.turns.Used()) }

// Waiting is how many receivers wait for a seat.
func (s *Seats) Waiting() int { return s.turns.Waiting() }

// Rest says that the receiver has nothing to do.
func (t *Seat) Rest() {
	s := t.seats
	s.mu.Lock()
	if t.place == nil && !t.asked {
		t.place = s.idle.PushBack(t)
	}
	s.mu.Unlock()
	s.makeRoom()
}

// Work says that it has something to do again.
func (t *Seat) Work() {
	t.seats.mu.Lock()
	defer t.seats.mu.Unlock()
	t.leaveIdle()
}

// leaveIdle takes a seat off the list of those that have nothing to do. Under mu.
func (t *Seat) leaveIdle() {
	if t.place != nil {
		t.seats.idle.Remove(t.place)
		t.place = nil
	}
}

// Stay says that a receiver that was asked to end has got something to do meanwhile.
func (t *Seat) Stay() {
	t.answer()
	t.seats.makeRoom()
}

// answer ends the question whether a seat can be given up.
func (t *Seat) answer() {
	t.seats.mu.Lock()
	defer t.seats.mu.Unlock()
	t.leaveIdle()
	if t.asked {
		t.asked = false
		t.seats.asked--
	}
}

// Leave gives the seat up, or the wait for it. Twice is fine.
func (t *Seat) Leave() {
	t.answer()
	t.turn.Done()
	t.seats.makeRoom()
}

// makeRoom asks as many receivers without work to end as others wait for a seat: those first whose own
// workspace waits, and of these who has had nothing to do for longest.
func (s *Seats) makeRoom() {
	waiting := s.turns.Waiting()
	if waiting == 0 {
		return
	}
	var ask []*Seat
	s.mu.Lock()
	for s.asked < waiting && s.idle.Len() > 0 {
		t := s.idle.Front().Value.(*Seat)
		for e := s.idle.Front(); e != nil; e = e.Next() {
			if own := e.Value.(*Seat); s.turns.Waits(own.workspace) {
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
