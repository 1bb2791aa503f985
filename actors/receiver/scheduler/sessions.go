package scheduler

import (
	"slices"
	"time"

	"rollcall/actors/receiver/fairqueue"
)

// sessions are those that are open, or on their way, and what each was given.
type sessions struct {
	*env
	allowance *allowance
	opening   *openings
	paths     *paths
	queues    *queues

	all     map[int]*session
	free    []*session   // ready and with nothing to do, longest first
	served  []*hostQueue // queues with sessions
	closing int          // sessions that say QUIT
	nextID  int

	pressed  bool         // a queue has no session, and none more may be opened
	slotless bool         // none who waits may have one more session of the node
	small    *flow        // in whose name, if little of it was asked yet
	hopeful  bool         // probes wait for the RCPT rate only
	blocks   blocksNow    // what kept us from asking more when it last looked
	lately   blocksLately // and of late
}

// occupyQueue gives a queue one more session, in the name of a flow.
func (ss *sessions) occupyQueue(l *hostQueue, f *flow) {
	if l.Opened(f); l.Sessions() == 1 {
		ss.served = append(ss.served, l)
	}
}

// vacateQueue takes a session from its queue, and books how long it was there.
func (ss *sessions) vacateQueue(s *session) {
	s.queue.Closed(s.name, ss.now.Sub(s.dialled).Seconds()/turnFor.Seconds())
	if s.queue.Sessions() == 0 {
		ss.served = slices.DeleteFunc(ss.served, func(o *hostQueue) bool { return o == s.queue })
	}
}

// closeSession lets a session end after what is on the wire, and says whether there is one.
func (ss *sessions) closeSession(id int) bool {
	s := ss.all[id]
	if s == nil || s.closing {
		return false
	}
	s.doomed = true
	s.slot.Halted.Store(true)
	return true
}

// isAsking says whether a session is asking something.
func (ss *sessions) isAsking() bool { return len(ss.all) > len(ss.free)+ss.closing }

// countSessions counts the sessions that are open, and those on their way.
func (ss *sessions) countSessions() (ready, opening int) {
	for _, s := range ss.all {
		switch {
		case s.ready && !s.closing:
			ready++
		case !s.ready:
			opening++
		}
	}
	return ready, opening
}

// countOpenAt counts the sessions that are open with a host.
func (ss *sessions) countOpenAt(host string) (n int) {
	for _, s := range ss.all {
		if s.ready && !s.closing && s.host.host == host {
			n++
		}
	}
	return n
}

// loseSession frees the place of a session that has ended, or did not begin.
func (ss *sessions) loseSession(now time.Time, s *session) {
	if !s.ready {
		ss.allowance.dials.Done(now, 1)
		ss.opening.window.Done(now, 1)
	}
	delete(ss.all, s.id)
	s.takeBack()
	if s.closing {
		ss.closing--
	} else {
		ss.vacateQueue(s)
	}
	ss.steps = append(ss.steps, DropSession{ID: s.id})
}

// carryOutHalts does what others wanted of the sessions.
func (ss *sessions) carryOutHalts() {
	for _, a := range ss.arrivals {
		ss.interruptFor(a.flow, a.queue)
	}
	clear(ss.arrivals)
	ss.arrivals = ss.arrivals[:0]
	for _, h := range ss.halts {
		ss.haltSessions(h.names)
	}
	ss.halts = ss.halts[:0]
}

// begin notes that a session is open.
func (ss *sessions) begin(now time.Time, s *session) {
	seen := ss.allowance.openings.Seen(s.opened, now)
	ss.allowance.dials.Done(seen, 1)
	ss.opening.window.Done(seen, 1)
	ready, opening := ss.countSessions()
	ss.opening.wasOpened(now, s, ready, opening)
	s.ready, s.opened = true, now
	ss.release(now, s)
}

// release notes that a session has nothing to do.
func (ss *sessions) release(now time.Time, s *session) {
	s.idle = now
	ss.free = append(ss.free, s)
}

// haltSessions lets sessions begin nothing more of what they were given.
func (ss *sessions) haltSessions(which func(*session) bool) {
	for _, s := range ss.all {
		if which(s) {
			s.slot.Halted.Store(true)
		}
	}
}

// sortFree puts the sessions that have nothing to do in the order in which they are given
// something: first those of the queues in which somebody waits who was given least.
func (ss *sessions) sortFree(free []*session) {
	if len(free) < 2 || len(ss.served) < 2 || !ss.fair.Contended() {
		return
	}
	ranks := make(map[*hostQueue]fairqueue.Rank, len(free))
	for _, s := range free {
		if s.queue.Queued() > 0 {
			ranks[s.queue] = s.queue.Rank()
		}
	}
	slices.SortStableFunc(free, func(a, b *session) int { return ranks[a.queue].Compare(ranks[b.queue]) })
}

// isLarge says whether of everything that waits in a queue enough was asked already.
func (ss *sessions) isLarge(l *hostQueue) bool {
	for f := range l.Flows() {
		if f.Charged() < smallFlow {
			return false
		}
	}
	return true
}

// hurryOne lets one session give back what it has not asked yet, so that something of a
// verification can be asked of which nothing was: once for each.
func (ss *sessions) hurryOne(f *flow, which func(*session) bool) {
	if f.Interrupted {
		return
	}
	for _, s := range ss.all {
		if len(s.given) > 1 && !s.closing && !s.halted && which(s) {
			f.Interrupted, s.halted = true, true
			s.slot.Halted.Store(true)
			return
		}
	}
}

// interruptFor hurries for a verification that comes to a queue whose sessions all work, for
// others of which enough was asked already.
func (ss *sessions) interruptFor(f *flow, l *hostQueue) {
	free := func(s *session) bool { return s.queue == l }
	if f.Interrupted || f.Charged() > 0 || slices.ContainsFunc(ss.free, free) {
		return
	}
	ss.hurryOne(f, func(s *session) bool {
		return s.queue == l && !slices.ContainsFunc(s.given, func(p *Probe) bool {
			return ss.flowOf(p.chunk.task).Charged() < smallFlow
		})
	})
}

func (ss *sessions) quitSession(s *session) {
	s.closing = true
	ss.closing++
	ss.vacateQueue(s)
	ss.steps = append(ss.steps, QuitSession{ID: s.id})
}

// countByPath counts the sessions by their sources.
func (ss *sessions) countByPath() map[*egressPath]int {
	n := map[*egressPath]int{}
	for _, s := range ss.all {
		n[s.path]++
	}
	return n
}
