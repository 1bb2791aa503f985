package registry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/actors/receiver/status"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// HardAfter is how long sessions above a share may take to finish. After HardAfter they are closed without QUIT.
// HardAfter is four turns of half a second, and far less than the time after which a process that hasn't confirmed a
// share version counts as lost.
const HardAfter = 2 * time.Second

// Fraction is a share: k of n parts of the limits.
type Fraction struct{ K, N int }

// IsNone reports whether nothing may be used.
func (p Fraction) IsNone() bool { return p.K <= 0 || p.N <= 0 }

func (p Fraction) isLess(q Fraction) bool {
	if p.IsNone() || q.IsNone() {
		return p.IsNone() && !q.IsNone()
	}
	return int64(p.K)*int64(q.N) < int64(q.K)*int64(p.N)
}

// Of returns this fraction of limits.
func (p Fraction) Of(a throttle.Limits) throttle.Limits { return a.Share(p.K, p.N) }

// Share is the part of its limits that a receiver may use here now. Version grows when the share becomes smaller. Work
// that an older version permitted isn't begun.
type Share struct {
	Fraction
	Version uint64
}

// Registry holds the receivers of a node: each one's share of its limits, and its SMTP connections. A connection counts
// from before the dial until the receiver no longer holds it, even if the actor has ended.
//
// Invariant: when ApplyShares has returned without an error, no receiver has more connections here than its share, not
// counting silent connections (Silent), and no RCPT is sent that only a larger share permitted. Safe for concurrent
// use.
type Registry struct {
	mu      sync.Mutex
	of      func(key string) (k, n int) // nil: nothing may be used
	entries map[string]*entry
	freed   chan struct{} // capacity 1; signals that a socket was closed or its work ended
	Grace   time.Duration // HardAfter, but longer in tests on real sockets; never changed later

	Guard *process.PanicGuard // guards goroutines against panics; set like Grace; nil: no guard

	Histories status.Histories // histories of the last hours
	Traces    status.Traces
}

// entry is a receiver key on this node that has an actor or connections.
type entry struct {
	registry *Registry
	Key      string
	allow    func(key string) throttle.Limits
	share    atomic.Pointer[Share]
	handles  map[*Handle]struct{}   // guarded by Registry.mu
	slots    map[*ConnSlot]struct{} // guarded by Registry.mu
}

// Handle is one actor's access to the entry of its receiver.
type Handle struct {
	*entry
	tell func(msg any) // never blocks; guarded by Registry.mu
	left chan struct{} // closed when the handle is given up
}

// ConnSlot is one SMTP connection to a receiver. ConnSlot exists from before the dial.
type ConnSlot struct {
	From netip.AddrPort // dial from here, where a lost session was: see Reached. The zero value: from any port

	entry     *entry
	node      *Slots
	line      Line
	workspace uuid.UUID    // the workspace that took the slot of the node
	version   uint64       // the share version of its work; guarded by Registry.mu
	busy      bool         // work is under way; guarded by Registry.mu
	silent    *smtp.Ending // ended here, and perhaps not yet at the receiver; nil: not ended; guarded by Registry.mu
	aside     bool         // silent, and without a slot of the node; guarded by Registry.mu
	over      *ConnSlot    // the slot of the lost session; nil: From is any port, or this slot is closed
	heir      bool         // silent, and over of a slot that isn't closed; guarded by Registry.mu
	tries     int          // how often it was; guarded by Registry.mu
	next      time.Time    // not again before this time; guarded by Registry.mu
	closed    bool         // guarded by Registry.mu
	cancel    func()       // ends the work; guarded by Registry.mu
	ended     atomic.Bool  // ApplyShares ended it, so nothing is learned from its end
	Halted    atomic.Bool  // the session must send no more RCPTs
}

// Changed tells an actor to look at its share and its limits.
type Changed struct{}

// Replan makes every receiver read its limits at once. Call it when limits may have changed, because idle and waiting
// receivers wouldn't notice.
func (l *Registry) Replan() { l.Broadcast(Changed{}) }

// New makes a registry in which nothing may be used until the first ApplyShares, or Alone.
func New() *Registry {
	return &Registry{entries: map[string]*entry{}, freed: make(chan struct{}, 1), Grace: HardAfter}
}

// Alone lets every receiver use its whole limits, for ever, because there is no other node. Call it instead of
// ApplyShares.
func (l *Registry) Alone() { l.apply(func(string) (k, n int) { return 1, 1 }) }

// Count is how many receiver actors live here.
func (l *Registry) Count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.entries {
		n += len(p.handles)
	}
	return n
}

// ApplyShares puts a new table of shares in force, and returns when every receiver here keeps to its share. of reads
// the table; it may be called at any time from now on. A share that grows is used at once. If a share shrinks, no more
// work begins under the larger share. Surplus sessions say QUIT after the RCPT under way; after HardAfter they are
// closed. Call ApplyShares from one goroutine. The error wraps the error of ctx. Even after an error the table is in
// force.
func (l *Registry) ApplyShares(ctx context.Context, of func(key string) (k, n int)) error {
	left := l.exceeding(l.apply(of))
	hard := time.NewTimer(l.Grace)
	defer hard.Stop()
	for len(left) > 0 {
		select {
		case <-l.freed:
		case <-hard.C:
			l.cutExcess(left)
		case <-ctx.Done():
			return fmt.Errorf("%d receivers do not keep to their shares yet: %w", len(left), ctx.Err())
		}
		left = l.exceeding(left)
	}
	return nil
}

// Broadcast sends a message to all actors.
func (l *Registry) Broadcast(msg any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.entries {
		p.tellHandles(msg)
	}
}

// tellHandles sends a message to the actors of a receiver. Under Registry.mu.
func (p *entry) tellHandles(msg any) {
	for s := range p.handles {
		if s.tell != nil {
			s.tell(msg)
		}
	}
}

// apply puts a table in force and tells the actors whose share changed. apply returns all receivers with connections.
func (l *Registry) apply(of func(key string) (k, n int)) (used []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = of
	for _, p := range l.entries {
		if len(p.slots) > 0 {
			used = append(used, p)
		}
		if p.takeShare() {
			p.tellHandles(Changed{})
		}
	}
	return used
}

// takeShare reads the present share and reports whether it has changed. Under Registry.mu.
func (p *entry) takeShare() bool {
	next := Share{Fraction: Fraction{0, 1}}
	if p.registry.of != nil {
		next.K, next.N = p.registry.of(p.Key)
	}
	before := p.share.Load()
	if before != nil {
		next.Version = before.Version
		if !next.isLess(before.Fraction) && !before.isLess(next.Fraction) {
			return false
		}
		if next.isLess(before.Fraction) {
			next.Version++
		}
	}
	p.share.Store(&next)
	return true
}

// exceeding returns those receivers that use more than their share.
func (l *Registry) exceeding(places []*entry) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(places, func(p *entry) bool { return len(p.excess()) == 0 })
}

// excess returns the connections that must close, or finish their work, so that the receiver keeps to its share. Under
// Registry.mu.
func (p *entry) excess() []*ConnSlot {
	if len(p.slots) == 0 {
		return nil
	}
	now := p.share.Load()
	var out, rest []*ConnSlot
	silent := 0
	for s := range p.slots {
		switch {
		case s.heir:
		case s.silent != nil:
			silent++
		case s.busy && s.version != now.Version:
			out = append(out, s)
		default:
			rest = append(rest, s)
		}
	}
	if more := len(rest) - max(0, now.Of(p.allow(p.Key)).Connections-silent); more > 0 {
		out = append(out, rest[:more]...)
	}
	return out
}

// Sessions is how many connections are open or being opened here.
func (l *Registry) Sessions() (sum int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.entries {
		sum += len(p.slots) - p.countSilent()
	}
	return sum
}

// Silent returns the keys of receivers that may still hold sessions which ended here. We can't end these sessions, so
// ApplyShares doesn't wait for them. Other nodes that may use such a receiver must wait.
func (l *Registry) Silent() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, p := range l.entries {
		if p.countSilent() > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// SilentCount is how many sessions ended here and may still be open at a receiver.
func (l *Registry) SilentCount() (sum int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.entries {
		sum += p.countSilent()
	}
	return sum
}

// Silent returns how many sessions ended here, may still be open at the receiver and aren't being taken over, and when
// the first of them is over at the latest.
func (s *Handle) Silent() (n int, first time.Time) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	for one := range s.slots {
		if one.silent == nil || one.heir {
			continue
		}
		if n++; first.IsZero() || one.silent.Until.Before(first) {
			first = one.silent.Until
		}
	}
	return n, first
}

// countSilent is how many connections only wait for the receiver to end them. Under Registry.mu.
func (p *entry) countSilent() (n int) {
	for s := range p.slots {
		if s.silent != nil {
			n++
		}
	}
	return n
}

func (l *Registry) cutExcess(places []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range places {
		for _, s := range p.excess() {
			s.endWork()
		}
	}
}

// Enter registers one more actor of a receiver.
func (l *Registry) Enter(key string, allow func(key string) throttle.Limits) *Handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.entries[key]
	if p == nil {
		p = &entry{registry: l, Key: key, allow: allow, handles: map[*Handle]struct{}{}, slots: map[*ConnSlot]struct{}{}}
		l.entries[key] = p
		p.takeShare()
	}
	s := &Handle{entry: p, left: make(chan struct{})}
	p.handles[s] = struct{}{}
	return s
}

// Listen sets the function through which the handle's actor hears of changes.
func (s *Handle) Listen(tell func(msg any)) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.tell = tell
}

// Leave gives the handle up. A second call does nothing.
func (s *Handle) Leave() {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	if _, here := s.handles[s]; here {
		delete(s.handles, s)
		close(s.left)
		s.dropUnused()
	}
}

// Left is closed when the handle is given up.
func (s *Handle) Left() <-chan struct{} { return s.left }

// dropUnused drops an entry without actors and connections. Under Registry.mu.
func (p *entry) dropUnused() {
	if len(p.handles) == 0 && len(p.slots) == 0 {
		delete(p.registry.entries, p.Key)
	}
}

// Line is where a session leads: from our address, if one is chosen, to a host's. Now is the time of the dial.
type Line struct {
	Source, Host netip.Addr
	Now          time.Time
}

// Dial takes a connection slot. Dial returns nil if the receiver already has most slots here, with the slots of earlier
// actors. Dial also returns nil if the caller's share isn't the present share. workspace is the one that took the
// node's slot. If the session takes over a lost one on the same line (see Reached), other silent sessions may have more
// slots: the receiver gets none more, and other nodes wait for them.
func (s *Handle) Dial(turn uint64, most int, workspace uuid.UUID, slots *Slots, to Line) *ConnSlot {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	live, silent := 0, 0
	for one := range s.slots {
		switch {
		case one.silent == nil:
			live++
		case !one.heir: // else counted with its heir
			silent++
		}
	}
	if s.share.Load().Version != turn || live >= most {
		return nil
	}
	one := &ConnSlot{entry: s.entry, node: slots, workspace: workspace, version: turn, line: to}
	isFull := live+silent >= most
	if old := s.findLost(to, isFull); old != nil {
		one.over, one.From, old.heir = old, *old.silent.Lost.Load(), true
		old.tries++
		old.next = to.Now.Add(min(time.Second<<old.tries, time.Minute))
	} else if isFull {
		return nil
	}
	s.slots[one] = struct{}{}
	return one
}

// findLost returns the slot of a lost session on a line; nil: none. If a slot is free, only the first try is worth it.
// Under Registry.mu.
func (p *entry) findLost(to Line, isFull bool) (found *ConnSlot) {
	for s := range p.slots {
		if s.silent == nil || s.heir || s.line.Host != to.Host || to.Now.Before(s.next) || s.tries > 0 && !isFull {
			continue
		}
		from := s.silent.Lost.Load()
		if from == nil || to.Source.IsValid() && to.Source.Unmap() != from.Addr().Unmap() ||
			isTranslated(from.Addr(), to.Host) {
			continue
		}
		if found == nil || s.tries < found.tries {
			found = s
		}
	}
	return found
}

// isTranslated reports whether a host certainly sees another address and port of ours.
func isTranslated(from, host netip.Addr) bool {
	var internet smtp.DialGuard
	return internet.Allows(host) && !internet.Allows(from)
}

// Reached notes that the host's system answered the dial, with a connection or with RST. If the dial came from the port
// of a lost session, the host no longer has that session: it answers a SYN for a connection that it still has with an
// ACK, our system answers that with RST, and the repeated SYN opens a connection (RFC 9293 §3.5.1, §3.10.7.4). So the
// host never has both.
func (s *ConnSlot) Reached() {
	if s.over != nil {
		s.over.Close()
	}
}

// NotBound notes that From couldn't be used, because another connection has the port.
func (s *ConnSlot) NotBound() { s.over.silent.Lost.Store(nil) }

// Begin notes that work begins which a share version (turn) permitted, and how to cancel the work. False: the version
// is old, so the work must not begin.
func (s *ConnSlot) Begin(turn uint64, cancel func()) bool {
	s.entry.registry.mu.Lock()
	defer s.entry.registry.mu.Unlock()
	s.version, s.cancel = turn, cancel
	s.busy = !s.closed && !s.ended.Load() && turn == s.entry.share.Load().Version
	return s.busy
}

// MayGoOn reports whether work that a share version (turn) permitted may go on.
func (s *ConnSlot) MayGoOn(turn uint64) bool {
	return s.entry.share.Load().Version == turn && !s.ended.Load()
}

// MarkIdle notes that no work is under way.
func (s *ConnSlot) MarkIdle() {
	s.entry.registry.mu.Lock()
	defer s.entry.registry.mu.Unlock()
	s.busy = false
	s.entry.registry.signalFreed()
}

// endWork ends the work under way, so that its owner closes the socket. Under Registry.mu.
func (s *ConnSlot) endWork() {
	s.ended.Store(true)
	if s.cancel != nil {
		s.cancel()
	}
}

// Abandon ends the work, so that its owner closes the socket.
func (s *ConnSlot) Abandon() {
	s.entry.registry.mu.Lock()
	defer s.entry.registry.mu.Unlock()
	s.endWork()
}

// Close notes that the socket is closed, and gives its slot back. A second call does nothing.
func (s *ConnSlot) Close() {
	l := s.entry.registry
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.busy = true, false
	delete(s.entry.slots, s)
	if s.over != nil {
		s.over.heir, s.over = false, nil
	}
	if s.aside {
		s.node.endAside()
	} else {
		s.node.Give(s.workspace)
	}
	if s.silent != nil { // other sessions wait for the slot
		s.entry.tellHandles(Changed{})
	}
	s.entry.dropUnused()
	l.signalFreed()
}

// CloseWhen notes that nothing more is sent. CloseWhen gives the slot back when the session has ended at the receiver,
// too. Until then the slot counts, because the receiver may still hold the session.
func (s *ConnSlot) CloseWhen(end *smtp.Ending) {
	select {
	case <-end.Gone:
		s.Close()
		return
	default:
	}
	l := s.entry.registry
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.closed || s.silent != nil {
		return
	}
	s.silent, s.busy, s.aside = end, false, s.node.putAside(s.workspace)
	l.signalFreed()
	l.Guard.Go("session", func() {
		<-end.Gone
		s.Close()
	}, nil)
}

// signalFreed wakes ApplyShares. Under mu.
func (l *Registry) signalFreed() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// Share returns what may be used here now.
func (s *Handle) Share() Share { return *s.share.Load() }

// Histories returns the histories of the node's receivers.
func (s *Handle) Histories() *status.Histories { return &s.registry.Histories }

// Traces returns the traces of the node's receivers.
func (s *ConnSlot) Traces() *status.Traces { return &s.entry.registry.Traces }

// Key names the receiver.
func (s *ConnSlot) Key() string { return s.entry.Key }

// WasEnded reports whether ApplyShares ended the connection. Then nothing is learned from its end.
func (s *ConnSlot) WasEnded() bool { return s.ended.Load() }

// Handles returns the handles of some receivers whose actors listen, each with the function that sends to its actor.
func (l *Registry) Handles(which func(key string) bool) map[*Handle]func(msg any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[*Handle]func(msg any){}
	for key, p := range l.entries {
		if !which(key) {
			continue
		}
		for s := range p.handles {
			if s.tell != nil {
				out[s] = s.tell
			}
		}
	}
	return out
}
