package scheduler

import (
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
)

const (
	// asideFor is how long a queue that can't have a session loses its turn when no end is known: windows of a second
	// open again in that time.
	asideFor = time.Second

	slotEvery = 500 * time.Millisecond // pause before looking again for a free slot of the node; sessions last longer
)

// openSessions dials where probes wait: first for queues without a session, then for those that are worth more.
func (ss *sessions) openSessions(v *View) {
	now := v.now
	if ok, next := ss.paths.mayBeRefused(now); !ok {
		if ss.wakeAt(next); ss.fair.Queued() > 0 { // a session would have nothing to ask
			ss.blocks.add(wire.Cause_BUDGET, next)
		}
		return
	}
	ss.queues.readmitAside(now)
	if ss.openFirst(v) {
		ss.openMore(v)
	}
	if !ss.pressed {
		return
	}
	kept := ss.free[:0]
	for _, s := range ss.free {
		if ss.makesRoom(now, s) {
			ss.quitSession(s)
		} else {
			kept = append(kept, s)
		}
	}
	clear(ss.free[len(kept):])
	ss.free = kept
}

// openFirst dials for the queues without a session, in turn. False: no more can be dialled now; the next queue keeps
// its turn.
func (ss *sessions) openFirst(v *View) bool {
	now := v.now
	for h, f := ss.fair.Next(); h != nil; h, f = ss.fair.Next() {
		l := ss.queues.all[h.Key()]
		c, o := ss.paths.nextCandidate(now, l.route)
		if c == nil {
			if ok, until := ss.paths.waitsForSources(now, l.route); ok {
				ss.queues.setAside(now, l, until)
			} else if until := ss.backSoon(now, l); !until.IsZero() {
				ss.queues.setAside(now, l, until)
			} else {
				ss.closeQueue(now, l)
			}
			continue
		}
		if n, next := ss.refusalsFor(now, l, o); n <= 0 {
			ss.blocks.add(wire.Cause_BUDGET, next)
			ss.queues.setAside(now, l, next)
			continue
		}
		if !ss.mayOpen(v, l, o) {
			ss.small = ss.pressed && f.Queued() < smallFlow
			return false
		}
		f = ss.claimSlot(now, l, f)
		if f == nil {
			ss.queues.setAside(now, l, now.Add(slotEvery)) // flows with fewer sessions may wait elsewhere
			continue
		}
		slot := ss.takeSlot(v, f)
		if slot == nil {
			return false
		}
		ss.dialHost(now, l, f, c, o, slot)
	}
	return true
}

// openMore dials for the queues that have sessions and are worth more, one after the other.
func (ss *sessions) openMore(v *View) {
	now := v.now
	for i := 0; i < len(ss.served); i++ {
		l := ss.served[i]
		for l.Queued() > 0 {
			if l.Sessions() >= v.sessionsWorth(l.left()) {
				held, at := allHeldUp(v, ss.all, l)
				if !held {
					ss.wakeAt(at)
					break
				}
			}
			c, o := ss.paths.nextCandidate(now, l.route)
			if c == nil {
				break
			}
			if n, next := ss.refusalsFor(now, l, o); n <= 0 {
				ss.wakeAt(next)
				break
			}
			var f *flow
			var slot *registry.ConnSlot
			if ss.mayOpen(v, l, o) {
				if f = ss.claimSlot(now, l, l.First()); f == nil {
					break
				}
				slot = ss.takeSlot(v, f)
			}
			if slot == nil {
				ss.served = append(ss.served[i:], ss.served[:i]...) // it keeps its turn
				return
			}
			ss.dialHost(now, l, f, c, o, slot)
		}
	}
}

// allHeldUp reports whether all sessions of a queue are held up; if not, when they will be; zero: one is free.
func allHeldUp(v *View, all map[int]*session, l *hostQueue) (held bool, at time.Time) {
	if v.busy {
		return false, at
	}
	for _, s := range all {
		switch {
		case s.queue != l || s.closing:
		case s.ready && len(s.given) == 0:
			return false, time.Time{}
		default:
			at = later(at, s.heldUpAt(v.turn > 0))
		}
	}
	return !at.After(v.now), at
}

// mayOpen reports whether the receiver and our sources allow one more session for a queue.
func (ss *sessions) mayOpen(v *View, l *hostQueue, o *egressPath) bool {
	r := room{open: len(ss.all), unserved: l.Sessions() == 0, wayward: !ss.opening.roomToOpen(ss.countSessions(v.now)),
		alone: o.pace.Alone() && len(ss.all) > ss.closing}
	if r.dials, r.dialsAt = ss.allowance.dials.Ready(v.now); r.dials > 0 {
		r.opens, r.opensAt = ss.opening.mayOpen(v.now)
	}
	if open := decideOpen(v, &r); !open.may {
		ss.waitFor(wire.Cause_CONNECTIONS, open.until)
		ss.pressed = ss.pressed || open.pressed
		return false
	}
	ok, next := ss.options.Sources.Use(o.index, ss.key, v.now)
	if !ok { // another receiver tries the source first
		ss.wakeAt(next)
	}
	return ok
}

// claimSlot takes a slot of the node for a flow or, if its workspace has as many as it may, for another flow in the
// same queue: a session serves them all. It returns that flow; nil: none of them may have one more now.
func (ss *sessions) claimSlot(now time.Time, l *hostQueue, f *flow) *flow {
	if ss.options.Slots.Take(f.Workspace(), f.Weight()) {
		return f
	}
	for other := range l.Waiting() {
		if other.Workspace() != f.Workspace() && ss.options.Slots.Take(other.Workspace(), other.Weight()) {
			return other
		}
	}
	ss.slotless = true
	ss.waitFor(wire.Cause_CONNECTIONS, now.Add(slotEvery))
	return nil
}

// takeSlot returns a connection slot for one more session, after claimSlot for a flow; nil: there is none.
func (ss *sessions) takeSlot(v *View, f *flow) *registry.ConnSlot {
	slot := ss.allowance.handle.Dial(ss.allowance.version, v.limits.Connections, f.Workspace(), ss.options.Slots)
	if slot == nil { // silent sessions or an earlier actor still hold some, or the share has just changed
		ss.blocks.add(wire.Cause_CONNECTIONS, time.Time{})
		ss.options.Slots.Give(f.Workspace())
		ss.wakeAt(v.now.Add(slotEvery))
	}
	return slot
}

// dialHost opens a session.
func (ss *sessions) dialHost(now time.Time, l *hostQueue, f *flow, c *candidate, o *egressPath,
	slot *registry.ConnSlot) {
	ss.allowance.dials.Begin(now, 1)
	ss.opening.window.Begin(now, 1)
	ss.opening.noteDialled(now)
	ss.options.Sources.NoteDialled(o.index, ss.key, now)
	ss.nextID++
	s := &session{id: ss.nextID, queue: l, host: c, path: o, tls: ss.allowance.tlsMode(now, l),
		slot: slot, opened: now,
		name: f, dialled: now, beside: ss.countOpenAt(c.host)}
	ss.all[s.id] = s
	ss.occupyQueue(l, f)
	ss.steps = append(ss.steps, OpenSession{ID: s.id, Source: o.Source, Host: c.host, At: c.at, TLS: s.tls,
		Version: ss.allowance.version,
		Slot:    slot})
}

// closeQueue answers the probes of a queue none of whose hosts can be dialled.
func (ss *sessions) closeQueue(now time.Time, l *hostQueue) {
	told, why := ss.paths.hostsUnavailable(now, l.route)
	for l.Queued() > 0 {
		p := ss.queues.popProbe(l)
		p.recheck = nil
		for _, one := range why {
			one.Attempt.Others = one.Attempt.Code != 0 // a limit; a host that is down is this address's trouble too
			p.note(one)
		}
		ss.queues.concludeProbe(p, told, now)
	}
}

// backSoon returns when a queue without a usable host can be asked again, if that is soon enough for its probes to
// stay; zero: they are given back, as they are when none of our sources can ever ask.
func (ss *sessions) backSoon(now time.Time, l *hostQueue) (soonest time.Time) {
	for _, c := range l.candidates {
		if now.Before(c.until) && ss.opening.tellsDown(c.failures) {
			return time.Time{}
		}
		_, until, rests := ss.paths.hostUnavailable(now, l.route, c)
		if r := ss.paths.all.suspendedAt(now, l.route, c); r != nil && !now.Before(c.until) &&
			until.Sub(now) > ss.untoldFor(r) {
			return time.Time{}
		}
		if !rests {
			continue
		}
		if soonest.IsZero() || until.Before(soonest) {
			soonest = until
		}
	}
	if soonest.Sub(now) > ss.options.Stretched(downMost*11/10) {
		return time.Time{}
	}
	return soonest
}
