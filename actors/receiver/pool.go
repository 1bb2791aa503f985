package receiver

import (
	"rollcall/actors/receiver/fairqueue"
	"slices"
)

// pool is the sessions that are open, or on their way.
type pool struct {
	*env
	inbox    *inbox
	sessions map[int]*session
	free     []*session // ready and with nothing to do, longest first
	manned   []*lane    // lanes with sessions
	closing  int        // sessions that say QUIT
	nextID   int
}

// occupy gives a lane one more session, in the name of a flow.
func (po *pool) occupy(l *lane, f *flow) {
	if l.Opened(f); l.Sessions() == 1 {
		po.manned = append(po.manned, l)
	}
}

// vacate takes a session from its lane, and books how long it was there.
func (po *pool) vacate(s *session) {
	s.lane.Closed(s.name, po.now.Sub(s.dialled).Seconds()/turnFor.Seconds())
	if s.lane.Sessions() == 0 {
		po.manned = slices.DeleteFunc(po.manned, func(o *lane) bool { return o == s.lane })
	}
}

// closeSession lets a session end after what is on the wire, and says whether there is one.
func (po *pool) closeSession(id int) bool {
	s := po.sessions[id]
	if s == nil || s.closing {
		return false
	}
	s.doomed = true
	s.socket.halted.Store(true)
	return true
}

// asks says whether a session is asking something.
func (po *pool) asks() bool { return len(po.sessions) > len(po.free)+po.closing }

// openingNow counts the sessions that are open, and those on their way.
func (po *pool) openingNow() (ready, opening int) {
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

// openAt counts the sessions that are open with a host.
func (po *pool) openAt(host string) (n int) {
	for _, s := range po.sessions {
		if s.ready && !s.closing && s.host.host == host {
			n++
		}
	}
	return n
}

// asking reports whether a session of a source is asking something.
func (po *pool) asking(o *outlet) bool {
	for _, s := range po.sessions {
		if s.outlet == o && len(s.given) > 0 {
			return true
		}
	}
	return false
}

func (po *pool) lose(s *session) {
	delete(po.sessions, s.id)
	if s.closing {
		po.closing--
	} else {
		po.vacate(s)
	}
	po.steps = append(po.steps, dropSession{id: s.id})
}

// halt lets sessions begin nothing more of what they were given.
func (po *pool) halt(which func(*session) bool) {
	for _, s := range po.sessions {
		if which(s) {
			s.socket.halted.Store(true)
		}
	}
}

// arrange puts the sessions that have nothing to do in the order in which they are given
// something: first those of the lanes in which somebody waits who was given least.
func (po *pool) arrange(free []*session) {
	if len(free) < 2 || len(po.manned) < 2 || !po.inbox.tasks.queue.Contended() {
		return
	}
	ranks := make(map[*lane]fairqueue.Rank, len(free))
	for _, s := range free {
		if s.lane.Queued() > 0 {
			ranks[s.lane] = s.lane.Rank()
		}
	}
	slices.SortStableFunc(free, func(a, b *session) int { return ranks[a.lane].Compare(ranks[b.lane]) })
}

// large says whether of everything that waits in a lane enough was asked already.
func (po *pool) large(l *lane) bool {
	for f := range l.Flows() {
		if f.Charged() < smallFlow {
			return false
		}
	}
	return true
}

// hurry lets one session give back what it has not asked yet, so that something of a
// verification can be asked of which nothing was: once for each.
func (po *pool) hurry(f *flow, which func(*session) bool) {
	if f.Interrupted {
		return
	}
	for _, s := range po.sessions {
		if len(s.given) > 1 && !s.closing && !s.halted && which(s) {
			f.Interrupted, s.halted = true, true
			s.socket.halted.Store(true)
			return
		}
	}
}

// interrupt hurries for a verification that comes to a lane whose sessions all work, for
// others of which enough was asked already.
func (po *pool) interrupt(f *flow, l *lane) {
	free := func(s *session) bool { return s.lane == l }
	if f.Interrupted || f.Charged() > 0 || slices.ContainsFunc(po.free, free) {
		return
	}
	po.hurry(f, func(s *session) bool {
		return s.lane == l && !slices.ContainsFunc(s.given, func(p *probe) bool {
			return po.inbox.tasks.flow(p.chunk.task).Charged() < smallFlow
		})
	})
}

func (po *pool) quit(s *session) {
	s.closing = true
	po.closing++
	po.vacate(s)
	po.steps = append(po.steps, quitSession{id: s.id})
}
