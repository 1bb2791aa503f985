package scheduler

import (
	"slices"

	"rollcall/actors/receiver/fairqueue"
)

// pool is the sessions that are open, or on their way.
type pool struct {
	*env
	sessions map[int]*session
	free     []*session   // ready and with nothing to do, longest first
	served   []*hostQueue // queues with sessions
	closing  int          // sessions that say QUIT
	nextID   int
}

// occupyQueue gives a queue one more session, in the name of a flow.
func (po *pool) occupyQueue(l *hostQueue, f *flow) {
	if l.Opened(f); l.Sessions() == 1 {
		po.served = append(po.served, l)
	}
}

// vacateQueue takes a session from its queue, and books how long it was there.
func (po *pool) vacateQueue(s *session) {
	s.queue.Closed(s.name, po.now.Sub(s.dialled).Seconds()/turnFor.Seconds())
	if s.queue.Sessions() == 0 {
		po.served = slices.DeleteFunc(po.served, func(o *hostQueue) bool { return o == s.queue })
	}
}

// closeSession lets a session end after what is on the wire, and says whether there is one.
func (po *pool) closeSession(id int) bool {
	s := po.sessions[id]
	if s == nil || s.closing {
		return false
	}
	s.doomed = true
	s.slot.Halted.Store(true)
	return true
}

// isAsking says whether a session is asking something.
func (po *pool) isAsking() bool { return len(po.sessions) > len(po.free)+po.closing }

// countSessions counts the sessions that are open, and those on their way.
func (po *pool) countSessions() (ready, opening int) {
	for _, s := range po.sessions {
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
func (po *pool) countOpenAt(host string) (n int) {
	for _, s := range po.sessions {
		if s.ready && !s.closing && s.host.host == host {
			n++
		}
	}
	return n
}

func (po *pool) loseSession(s *session) {
	delete(po.sessions, s.id)
	s.takeBack()
	if s.closing {
		po.closing--
	} else {
		po.vacateQueue(s)
	}
	po.steps = append(po.steps, DropSession{ID: s.id})
}

// carryOutHalts does what others wanted of the sessions.
func (po *pool) carryOutHalts() {
	for _, a := range po.arrivals {
		po.interruptFor(a.flow, a.queue)
	}
	clear(po.arrivals)
	po.arrivals = po.arrivals[:0]
	for _, h := range po.halts {
		po.haltSessions(h.names)
	}
	po.halts = po.halts[:0]
}

// haltSessions lets sessions begin nothing more of what they were given.
func (po *pool) haltSessions(which func(*session) bool) {
	for _, s := range po.sessions {
		if which(s) {
			s.slot.Halted.Store(true)
		}
	}
}

// sortFree puts the sessions that have nothing to do in the order in which they are given
// something: first those of the queues in which somebody waits who was given least.
func (po *pool) sortFree(free []*session) {
	if len(free) < 2 || len(po.served) < 2 || !po.fair.Contended() {
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
func (po *pool) isLarge(l *hostQueue) bool {
	for f := range l.Flows() {
		if f.Charged() < smallFlow {
			return false
		}
	}
	return true
}

// hurryOne lets one session give back what it has not asked yet, so that something of a
// verification can be asked of which nothing was: once for each.
func (po *pool) hurryOne(f *flow, which func(*session) bool) {
	if f.Interrupted {
		return
	}
	for _, s := range po.sessions {
		if len(s.given) > 1 && !s.closing && !s.halted && which(s) {
			f.Interrupted, s.halted = true, true
			s.slot.Halted.Store(true)
			return
		}
	}
}

// interruptFor hurries for a verification that comes to a queue whose sessions all work, for
// others of which enough was asked already.
func (po *pool) interruptFor(f *flow, l *hostQueue) {
	free := func(s *session) bool { return s.queue == l }
	if f.Interrupted || f.Charged() > 0 || slices.ContainsFunc(po.free, free) {
		return
	}
	po.hurryOne(f, func(s *session) bool {
		return s.queue == l && !slices.ContainsFunc(s.given, func(p *Probe) bool {
			return po.flowOf(p.chunk.task).Charged() < smallFlow
		})
	})
}

func (po *pool) quitSession(s *session) {
	s.closing = true
	po.closing++
	po.vacateQueue(s)
	po.steps = append(po.steps, QuitSession{ID: s.id})
}

// countByPath counts the sessions by their sources.
func (po *pool) countByPath() map[*egressPath]int {
	n := map[*egressPath]int{}
	for _, s := range po.sessions {
		n[s.path]++
	}
	return n
}
