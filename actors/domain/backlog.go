package domain

import (
	"container/heap"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

// open is a chunk at the receiver.
type open struct {
	offer   *wire.Offer
	left    map[uint32]struct{} // not answered
	retries bool                // of due retries
	acked   bool
	sent    time.Time
	seen    map[uint64]struct{} // batches of results that were taken
}

// backlog is what of the domain has no outcome, and how it stands with the receiver actor that asks for it.
type backlog struct {
	task *wire.Task

	reached   bool // the receiver actor is known
	reaching  bool
	failures  int // in a row, for which the next attempt waits longer
	lost      int // suspicion since the last answer, see lostMax
	credit    uint32
	heard     time.Time
	heldUntil time.Time // the receiver says that it may not ask before

	barren  smtp.Reason // it gives nobody an answer, so all that waits is given up; why
	cause   wire.Cause  // what keeps the receiver from asking more, as it said last
	perHour int64       // that it expects to ask of this verification; 0: it does not say

	ordinals []uint32 // in the order of the file; read only
	next     int      // first of ordinals that was never offered
	ready    []uint32 // to be offered before those: given back unasked
	deferred deferrals
	ripe     int                // of deferred, those whose time had come at ripeAt, less those taken since
	ripeAt   time.Duration      // since the start of the planner
	stats    *deferralStats     // of deferred
	history  map[uint32]pending // of addresses that were deferred and are out again
	chunks   map[uint64]*open
	chunk    uint64    // the newest; numbers are never used twice
	size     int       // of the next chunk
	retryAt  time.Time // no due retries are offered before

	told   int       // that are behind, as the receiver was told last
	toldAt time.Time // when
}

// due says whether the time of a deferred address has come.
func (s *backlog) due(since time.Duration) bool {
	return len(s.deferred) > 0 && s.deferred[0].due <= since
}

// unasked reports whether there is an address to be offered that was never put off.
func (s *backlog) unasked() bool { return len(s.ready) > 0 || s.next < len(s.ordinals) }

// waiting reports whether there is an address to be offered.
func (s *backlog) waiting(since time.Duration) bool { return s.unasked() || s.due(since) }

// take returns the next address to be offered of those that are due again, or of the others.
func (s *backlog) take(since time.Duration, retries bool) (ordinal uint32, ok bool) {
	switch {
	case retries && s.due(since):
		return s.pop(), true
	case retries:
		return 0, false
	case len(s.ready) > 0:
		ordinal, s.ready = s.ready[0], s.ready[1:]
		return ordinal, true
	case s.next < len(s.ordinals):
		s.next++
		return s.ordinals[s.next-1], true
	}
	return 0, false
}

// out returns how many chunks are out, of due retries or of others.
func (s *backlog) out(retries bool) (n int) {
	for _, o := range s.chunks {
		if o.retries == retries {
			n++
		}
	}
	return n
}

// pop takes the address that is deferred for the shortest time.
func (s *backlog) pop() uint32 {
	p := heap.Pop(&s.deferred).(pending)
	if p.ordinal != controlOrdinal {
		s.ripe = max(0, s.ripe-1)
	}
	s.stats.pop(&p)
	s.history[p.ordinal] = p
	return p.ordinal
}

// ripeEvery is how often it is counted how many deferred addresses are due: there may be
// a million of them, and an offer is made for each few.
const ripeEvery = time.Second

// ripe counts those whose time has come, of the part of the heap that is below at.
func (d deferrals) ripe(since time.Duration, at int) int {
	if at >= len(d) || d[at].due > since {
		return 0
	}
	n := 1
	if d[at].ordinal == controlOrdinal {
		n = 0 // it is no address of the file
	}
	return n + d.ripe(since, 2*at+1) + d.ripe(since, 2*at+2)
}

// behind is how many addresses of the file wait to be offered, and for how long the oldest
// has.
func (s *backlog) behind(since time.Duration) (n int, oldest time.Duration) {
	if since-s.ripeAt >= ripeEvery {
		s.ripe, s.ripeAt = s.deferred.ripe(since, 0), since
	}
	unasked := len(s.ordinals) - s.next + len(s.ready)
	switch {
	case unasked > 0:
		oldest = since
	case s.due(since):
		oldest = since - s.deferred[0].due
	}
	return unasked + s.ripe, oldest
}

// tellBehind says in an offer what waits beside it.
func (pl *planner) tellBehind(now time.Time, m *wire.Offer) {
	s := &pl.backlog
	n, oldest := s.behind(pl.since(now))
	m.Behind, m.WaitingMs = uint32(n), oldest.Milliseconds()
	s.told, s.toldAt = n, now
}

const (
	// sayEvery is how often the receiver is told at most how many are behind when no offer
	// tells it; sayAgain is how often while nothing of them is out, because a receiver
	// forgets what it does not hear of within ten seconds.
	sayEvery = time.Second
	sayAgain = 4 * time.Second
)

// sayBehind tells the receiver what is behind when that has changed and no offer
// says so: addresses that were put off are due, or were given back. It asks to be woken by
// when there is more to say.
func (pl *planner) sayBehind(now time.Time) (wake time.Time) {
	s := &pl.backlog
	if !s.reached {
		s.told = 0
		return time.Time{}
	}
	n, _ := s.behind(pl.since(now))
	if pl.resting(now) {
		n = 0 // they wait for the end of that, and not for their turn
	}
	again := n > 0 && len(s.chunks) == 0
	if n == s.told && !again {
		return time.Time{}
	}
	next := s.toldAt.Add(sayEvery)
	if n == s.told {
		next = s.toldAt.Add(sayAgain)
	}
	if now.Before(next) {
		return next
	}
	m := &wire.Offer{Task: s.task, Workspace: pl.workspace}
	if n > 0 {
		pl.tellBehind(now, m)
	}
	s.told, s.toldAt = n, now
	pl.steps = append(pl.steps, tell{m})
	if again {
		return now.Add(sayAgain)
	}
	return time.Time{}
}

// giveBack makes what a chunk had ready for the next one.
func (pl *planner) giveBack(o *open) {
	s := &pl.backlog
	for _, q := range o.offer.Probes {
		ordinal := q.GetOrdinal()
		if _, left := o.left[ordinal]; !left {
			continue
		}
		p, before := s.history[ordinal]
		switch {
		case ordinal == controlOrdinal && !before: // of the first chunk: it is asked when it is needed
			pl.controls.end()
		case !before:
			s.ready = append(s.ready, ordinal)
		default:
			delete(s.history, ordinal)
			pl.retries.stats.push(&p, pl.passes(&p))
			heap.Push(&s.deferred, p)
			if ordinal != controlOrdinal {
				s.ripe++ // its time had come
			}
		}
	}
}

const (
	// missedMax is how many times in a row a receiver actor may be looked for in vain,
	// which takes some seconds, before its work is said to wait; missedFor is how far
	// ahead that points at least, far enough for what is told to customers to be calm.
	missedMax = 6
	missedFor = time.Minute
)

// quiet says until when nothing can be done; the zero time when nothing ever has
// to be. busy: something can be done now, or is being done.
func (s *backlog) quiet(now, start time.Time) (until time.Time, busy bool) {
	switch {
	case s.reaching && s.failures > missedMax:
		// Nobody may probe, as when no node is fit: the work waits, and says so.
		return now.Truncate(missedFor).Add(2 * missedFor), false
	case s.reaching:
		return time.Time{}, true
	case len(s.chunks) > 0:
		return s.heldUntil, !s.heldUntil.After(now)
	case s.waiting(now.Sub(start)):
		return time.Time{}, true
	case len(s.deferred) > 0:
		return start.Add(s.deferred[0].due), false
	}
	return time.Time{}, false
}

// hold notes until when the receiver may not ask; zero: it may.
func (s *backlog) hold(now, until time.Time) {
	later := until.Sub(s.heldUntil)
	if later < -heldJitter || later > max(heldJitter, s.heldUntil.Sub(now)/heldPart) {
		s.heldUntil = until
	}
}

// listen sends offers again that nobody answered, and gives up on a silent receiver.
func (pl *planner) listen(now time.Time) {
	s := &pl.backlog
	if len(s.chunks) == 0 {
		return
	}
	if now.Sub(s.heard) >= silenceMax {
		pl.gone(now, 0)
		return
	}
	for _, o := range s.chunks {
		if !o.acked && now.Sub(o.sent) >= ackWithin {
			o.sent = now
			o.offer = &wire.Offer{Task: s.task, Chunk: o.offer.Chunk, Hosts: o.offer.Hosts,
				Probes: o.offer.Probes, Workspace: o.offer.Workspace,
				ExpiresInMs: wire.Left(now, pl.work.Deadline)} // what was sent stays
			pl.tellBehind(now, o.offer)
			pl.steps = append(pl.steps, tell{o.offer})
		}
	}
}

// offerMore looks for the receiver, or offers what it takes.
func (pl *planner) offerMore(now time.Time) {
	s := &pl.backlog
	switch {
	case !s.waiting(pl.since(now)) || s.reaching || s.barren != smtp.ReasonNone:
	case !s.reached:
		s.reaching = true
		pause := time.Duration(0)
		if s.failures > 0 {
			pause = min(resolvePause<<min(s.failures-1, 8), resolveMax)
		}
		pl.steps = append(pl.steps, findReceiver{pause})
	default:
		if len(s.chunks) == 0 {
			s.credit = max(1, s.credit) // nobody will tell us of more: ask
		}
		for s.due(pl.since(now)) && !pl.crowded && s.out(true) < pl.chunksNow() && !now.Before(s.retryAt) {
			pl.offer(now, true)
		}
		for s.unasked() && !pl.crowded && s.out(false) < pl.chunksNow() && s.credit > 0 {
			s.credit--
			pl.offer(now, false)
		}
	}
}

// chunksNow is how many chunks may be out, and of due retries beside them: one, while the node has many addresses
// out, so that all domains go on, each with little.
func (pl *planner) chunksNow() int {
	if pl.options.Load.heavy() {
		return 1
	}
	return chunksMax
}

// offer sends the next chunk, of due retries or of others.
func (pl *planner) offer(now time.Time, retries bool) {
	s := &pl.backlog
	if len(s.chunks) == 0 {
		s.heard = now
	}
	s.chunk++
	o := &open{retries: retries, left: map[uint32]struct{}{}, sent: now, seen: map[uint64]struct{}{},
		offer: &wire.Offer{Task: s.task, Chunk: s.chunk, Hosts: pl.route.hosts,
			Workspace: pl.workspace, ExpiresInMs: wire.Left(now, pl.work.Deadline)}}
	size := s.size
	if pl.options.Load.heavy() {
		size = chunkLeast
	}
	for len(o.left) < size {
		if !pl.options.Load.take(pl.work.Workspace) {
			pl.crowded = true
			break
		}
		ordinal, ok := controlOrdinal, pl.controlEarly(now, o)
		if !ok {
			ordinal, ok = s.take(pl.since(now), retries)
		}
		if !ok {
			pl.options.Load.give(pl.work.Workspace, 1)
			break
		}
		if ordinal == controlOrdinal && retries && !pl.needsControl() { // meanwhile others found out
			delete(s.history, ordinal)
			pl.options.Load.give(pl.work.Workspace, 1)
			pl.controls.end()
			continue
		}
		o.left[ordinal] = struct{}{}
		o.offer.Probes = append(o.offer.Probes, pl.probe(now, ordinal))
	}
	if len(o.left) == 0 {
		return
	}
	pl.tellBehind(now, o.offer)
	if pl.offeredAt.IsZero() {
		pl.offeredAt = now
	}
	s.chunks[s.chunk] = o
	pl.steps = append(pl.steps, tell{o.offer})
}

// close takes a chunk off the list of those that are out.
func (pl *planner) close(number uint64) {
	s := &pl.backlog
	if o := s.chunks[number]; o != nil {
		pl.options.Load.give(pl.work.Workspace, len(o.left))
		delete(s.chunks, number)
	}
}

// found notes that the receiver actor of a key is known, or that it is not to be had now; then
// it is looked for again, for as long as the work is ours. It reports whether that is what the
// planner wants to know: a key of another time is not.
func (pl *planner) found(key string, ok bool) bool {
	s := &pl.backlog
	if key != pl.route.key || !s.reaching {
		return false
	}
	s.reaching, s.reached = false, ok
	if ok {
		s.credit = 1 // until it says more
	} else {
		s.failures++
	}
	return true
}

// leave forgets the receiver.
func (pl *planner) leave() {
	s := &pl.backlog
	s.reached, s.credit, s.heldUntil, s.told = false, 0, time.Time{}, 0
	s.cause, s.perHour, s.barren = wire.Cause_FREE, 0, smtp.ReasonNone
	pl.steps = append(pl.steps, leave{})
}

// gone forgets a receiver that is lost and takes back what it had, which is under
// so much more suspicion. At the bound it comes later: it may be the fault.
func (pl *planner) gone(now time.Time, suspicion int) {
	s := &pl.backlog
	if !s.reached {
		return
	}
	pl.leave()
	s.failures++
	if len(s.chunks) > 0 {
		s.lost += suspicion
	}
	fault := suspicion > 0 && s.lost >= lostMax
	for number, o := range s.chunks {
		pl.close(number)
		if !fault {
			pl.giveBack(o)
			continue
		}
		for ordinal := range o.left {
			p := pl.begin(now, ordinal)
			pl.again(now, p, pl.retries.log.take(&p), answerOf{reason: smtp.Internal})
		}
	}
}

// abandon leaves the receiver because another one is right. What it has not begun it must not
// begin.
func (pl *planner) abandon() {
	s := &pl.backlog
	if s.reached {
		if len(s.chunks) > 0 {
			pl.steps = append(pl.steps, tell{&wire.Cancel{Task: s.task}})
		}
		pl.leave()
	}
	s.reaching = false
	pl.takeBack()
}

// recall takes back what the receiver has not asked.
func (pl *planner) recall() {
	s := &pl.backlog
	if s.reached && len(s.chunks) > 0 {
		pl.steps = append(pl.steps, tell{&wire.Cancel{Task: s.task}})
		pl.takeBack()
		s.told = 0 // it forgets that too
	}
}

// takeBack makes everything that is out ready again.
func (pl *planner) takeBack() {
	for number, o := range pl.backlog.chunks {
		pl.close(number)
		pl.giveBack(o)
	}
}

// end forgets everything that counts for the node: the work is over.
func (pl *planner) end() {
	pl.retries.log.close()
	for number := range pl.backlog.chunks {
		pl.close(number)
	}
}
