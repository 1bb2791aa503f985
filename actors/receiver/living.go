package receiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/state"
	"rollcall/actors/receiver/status"
	"rollcall/smtp/throttle"
)

// hardAfter is how long sessions above a share may end what they are asking
// before they are closed without a word. It is far below the time after which a
// process that did not acknowledge a turn is taken for lost. Guess: some slow turns.
const hardAfter = 2 * time.Second

// part is a share: k of n parts of an allowance.
type part struct{ k, n int }

// none says that nothing may be used.
func (p part) none() bool { return p.k <= 0 || p.n <= 0 }

// less says that p is a smaller share than q.
func (p part) less(q part) bool {
	if p.none() || q.none() {
		return p.none() && !q.none()
	}
	return int64(p.k)*int64(q.n) < int64(q.k)*int64(p.n)
}

// of gives the part of an allowance.
func (p part) of(a throttle.Limits) throttle.Limits { return a.Share(p.k, p.n) }

// standing is what a place may use at one time. Turn grows when a share becomes
// smaller: what was permitted under an older turn is not begun any more.
type standing struct {
	part
	turn uint64
}

// Living are the receivers that live on a node: the share of its allowance that
// each may use here, and the SMTP sockets that it has, counted from before the
// dial until they are really closed, whether its actor still lives or not.
//
// Invariant: when Comply has returned without an error, no receiver has more
// sockets here than its share of its connections, and no RCPT is sent that was
// permitted under a larger share. Safe for concurrent use.
type Living struct {
	mu      sync.Mutex
	of      func(key string) (k, n int) // nil: nothing may be used
	places  map[string]*place
	actors  int
	writer  *state.Writer // nil: nothing is kept
	sources *egress.Pool  // of the writer's node; nil as that is
	facts   state.Facts   // the same
	once    sync.Once     // for subscribe
	freed   chan struct{} // capacity 1: a socket was closed, or has nothing under way any more
	hard    time.Duration // hardAfter, but for tests on real sockets

	histories status.Histories // of the last hours
	traces    status.Traces
	trials    throttle.TrialRoom
}

// place is one receiver key on this node, with an actor or with sockets.
type place struct {
	living  *Living
	key     string
	allow   func(key string) throttle.Limits
	now     atomic.Pointer[standing]
	seats   map[*seat]struct{}   // guarded by living.mu
	sockets map[*socket]struct{} // guarded by living.mu
}

// seat is what one actor has of its place.
type seat struct {
	*place
	tell func(msg any) // never blocks; guarded by living.mu
}

// socket is one SMTP connection of a place, from before its dial.
type socket struct {
	place  *place
	slots  *Slots
	turn   uint64      // under which its work was begun; guarded by living.mu
	busy   bool        // work is under way; guarded by living.mu
	closed bool        // guarded by living.mu
	cancel func()      // ends the work; guarded by living.mu
	cut    atomic.Bool // ended by Comply: what it meets is no lesson
	halted atomic.Bool // its receiver is to be asked nothing more of what it was given
}

// shareChanged tells an actor to look at its share.
type shareChanged struct{}

// allowanceChanged tells an actor to look at what it is allowed.
type allowanceChanged struct{}

// Replan lets every receiver look at its allowance at once. Call it when one may have
// changed: those that are idle, or wait, would not notice otherwise.
func (l *Living) Replan() { l.broadcast(allowanceChanged{}) }

// NewLiving makes a registry in which nothing may be used until the first Comply, or Alone.
func NewLiving() *Living {
	return &Living{places: map[string]*place{}, freed: make(chan struct{}, 1), hard: hardAfter}
}

// Alone lets every receiver use the whole of its allowance, for ever: there is no
// other node. It is called instead of Comply.
func (l *Living) Alone() { l.adopt(func(string) (k, n int) { return 1, 1 }) }

// Count is how many receiver actors live here.
func (l *Living) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.actors
}

// Comply takes a new table of shares, which of reads and which may be called at
// any time from now on, and returns when every receiver here keeps to it: a share
// that grows is used at once; under one that shrinks nothing more is begun,
// sessions that are too many say QUIT after the RCPT that is under way, and after
// two seconds they are closed. Called from one goroutine. The error wraps that of
// ctx; the table is in force nevertheless.
func (l *Living) Comply(ctx context.Context, of func(key string) (k, n int)) error {
	left := l.over(l.adopt(of))
	hard := time.NewTimer(l.hard)
	defer hard.Stop()
	for len(left) > 0 {
		select {
		case <-l.freed:
		case <-hard.C:
			l.cut(left)
		case <-ctx.Done():
			return fmt.Errorf("%d receivers do not keep to their shares yet: %w", len(left), ctx.Err())
		}
		left = l.over(left)
	}
	return nil
}

// stateWriter makes the writer of this node's receivers; nil when there is nowhere to keep
// anything.
func (l *Living) stateWriter(o Options) *state.Writer {
	o.Metrics.collected.Store(l)
	if o.Facts == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer == nil {
		m := o.Metrics
		l.facts = o.Facts
		l.writer, l.sources = state.NewWriter(o.Facts, o.Log, state.Counters{Kept: m.factsKept, Lost: m.factsLost,
			Read: m.factsRead}), o.Sources
	}
	return l.writer
}

// Flush writes what receivers learned and what is not in Facts yet. Call it when
// they are stopped; it ends with ctx, whose error it wraps.
func (l *Living) Flush(ctx context.Context) error {
	l.mu.Lock()
	w, sources := l.writer, l.sources
	l.mu.Unlock()
	if w == nil {
		return nil
	}
	return errors.Join(w.Flush(ctx), sources.Flush(ctx))
}

// subscribe hears from a system which other nodes are out of reach.
func (l *Living) subscribe(system *actor.ActorSystem) {
	l.once.Do(func() {
		system.EventStream.Subscribe(func(event any) {
			if gone, ok := event.(*remote.EndpointTerminatedEvent); ok {
				l.broadcast(clientsLost{gone.Address})
			}
		})
	})
}

// broadcast tells all actors.
func (l *Living) broadcast(msg any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.places {
		p.broadcast(msg)
	}
}

// broadcast tells the actors of a place. Under living.mu.
func (p *place) broadcast(msg any) {
	for s := range p.seats {
		if s.tell != nil {
			s.tell(msg)
		}
	}
}

// adopt puts a table in force and tells the actors whose share has changed. It
// gives all places with sockets.
func (l *Living) adopt(of func(key string) (k, n int)) (used []*place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = of
	for _, p := range l.places {
		if len(p.sockets) > 0 {
			used = append(used, p)
		}
		if p.move() {
			p.broadcast(shareChanged{})
		}
	}
	return used
}

// move takes the present share and says whether it is another one. Under living.mu.
func (p *place) move() bool {
	next := standing{part: part{0, 1}}
	if p.living.of != nil {
		next.k, next.n = p.living.of(p.key)
	}
	before := p.now.Load()
	if before != nil {
		next.turn = before.turn
		if !next.less(before.part) && !before.less(next.part) {
			return false
		}
		if next.less(before.part) {
			next.turn++
		}
	}
	p.now.Store(&next)
	return true
}

// over gives those of some places that use more than their share.
func (l *Living) over(places []*place) []*place {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*place
	for _, p := range places {
		if len(p.surplus()) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// surplus gives sockets that have to go, or to come to rest, before the place
// keeps to its share. Under living.mu.
func (p *place) surplus() []*socket {
	if len(p.sockets) == 0 {
		return nil
	}
	now := p.now.Load()
	var out, rest []*socket
	for s := range p.sockets {
		if s.busy && s.turn != now.turn {
			out = append(out, s)
		} else {
			rest = append(rest, s)
		}
	}
	if more := len(rest) - now.of(p.allow(p.key)).Connections; more > 0 {
		out = append(out, rest[:more]...)
	}
	return out
}

// cut closes what is over the shares of places.
func (l *Living) cut(places []*place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range places {
		for _, s := range p.surplus() {
			s.end()
		}
	}
}

// enter makes a place for one more actor.
func (l *Living) enter(key string, allow func(key string) throttle.Limits) *seat {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.places[key]
	if p == nil {
		p = &place{living: l, key: key, allow: allow, seats: map[*seat]struct{}{}, sockets: map[*socket]struct{}{}}
		l.places[key] = p
		p.move()
	}
	s := &seat{place: p}
	p.seats[s] = struct{}{}
	l.actors++
	return s
}

// listen says how the seat's actor is told what has changed.
func (s *seat) listen(tell func(msg any)) {
	s.living.mu.Lock()
	defer s.living.mu.Unlock()
	s.tell = tell
}

// leave gives the seat up. Twice is fine.
func (s *seat) leave() {
	s.living.mu.Lock()
	defer s.living.mu.Unlock()
	if _, here := s.seats[s]; here {
		delete(s.seats, s)
		s.living.actors--
		s.forget()
	}
}

// forget drops a place that nobody needs. Under living.mu.
func (p *place) forget() {
	if len(p.seats) == 0 && len(p.sockets) == 0 {
		delete(p.living.places, p.key)
	}
}

// dial takes a socket, if the place has less than most of them, actors that were
// here before included, and if the share that the caller knows is the present one.
func (s *seat) dial(turn uint64, most int, slots *Slots) *socket {
	s.living.mu.Lock()
	defer s.living.mu.Unlock()
	if s.now.Load().turn != turn || len(s.sockets) >= most {
		return nil
	}
	one := &socket{place: s.place, slots: slots, turn: turn}
	s.sockets[one] = struct{}{}
	return one
}

// start says that work begins that was permitted under a turn, and how to end it.
// False: that turn is over, and the work must not begin.
func (s *socket) start(turn uint64, cancel func()) bool {
	s.place.living.mu.Lock()
	defer s.place.living.mu.Unlock()
	s.turn, s.cancel = turn, cancel
	s.busy = !s.closed && !s.cut.Load() && turn == s.place.now.Load().turn
	return s.busy
}

// may says whether work that was begun under a turn may go on.
func (s *socket) may(turn uint64) bool { return s.place.now.Load().turn == turn && !s.cut.Load() }

// rest says that nothing is under way.
func (s *socket) rest() {
	s.place.living.mu.Lock()
	defer s.place.living.mu.Unlock()
	s.busy = false
	s.place.living.signal()
}

// end closes the socket as soon as whoever works with it notices. Under living.mu.
func (s *socket) end() {
	s.cut.Store(true)
	if s.cancel != nil {
		s.cancel()
	}
}

// abandon closes the socket when it is closed by nobody in time.
func (s *socket) abandon() {
	s.place.living.mu.Lock()
	defer s.place.living.mu.Unlock()
	s.end()
}

// close says that the socket is closed, and gives its slot back. Twice is fine.
func (s *socket) close() {
	l := s.place.living
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.busy = true, false
	delete(s.place.sockets, s)
	s.place.forget()
	s.slots.Give()
	l.signal()
}

// signal wakes Comply. Under mu.
func (l *Living) signal() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}
