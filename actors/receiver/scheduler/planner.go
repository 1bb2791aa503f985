package scheduler

import (
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// workMax and workFor bound the probes given to a session at a time, so that
	// answers come back steadily and the last ones are shared out; a whole transaction may take longer.
	workMax = 64
	workFor = 250 * time.Millisecond

	// sharedMost is how many RCPTs of a transaction are given while others wait for a session, or in the same queue: whoever
	// comes next should not have to wait for long. It costs a tenth of the speed of long transactions.
	sharedMost = 20

	// heldShare: what all sessions together were given and have not asked is at
	// most one part in this many of the RCPT rate, because it counts as asked. It
	// costs at most as much of the rate. Guess.
	heldShare = 10

	// probesPerSession is how many queued probes justify one more session.
	// Guess: opening costs about as many turns as four probes.
	probesPerSession = 16

	// worthOpening is how much work by one session alone justifies one more, where a turn takes turnShort. It is as much less as
	// turns take longer: at 20 ms a turn 100 ms. Where they take less the processor is the limit and each session costs some,
	// so it is worthShort there: with more sessions than it can serve a node took twice the memory for a million addresses.
	worthOpening = time.Second
	worthShort   = 10 * time.Second
	turnShort    = 2 * time.Millisecond

	// turnsPerProbe is how many turns a probe takes at most: RSET, MAIL, RCPT.
	turnsPerProbe = 3

	// turnFor is how long a queue that has more to ask keeps its only session while
	// another queue has none. Guess: two sessions change hands 24 times a minute
	// then, within the connection rate that strangers get.
	turnFor = 5 * time.Second

	// asideFor is how long a queue that cannot have a session is left out of the turns, when
	// it is not known until when that is so. Guess.
	asideFor = time.Second

	restedAfter   = 200 * time.Millisecond // looking costs a millisecond, a dead session a probe
	holdFor       = 30 * time.Second       // with work that waits for the rate; RFC 5321 §4.5.3.2.7 lets 5 min
	slotEvery     = 500 * time.Millisecond // looking again for a free slot of the node; guess
	fenceEvery    = time.Second            // looking again whether we may speak; guess
	hostQueuesMax = 10_000                 // beyond it queues without work are forgotten whatever they know; guess
)

// nothingAllowed says whether an allowance is too small a share to ask anything.
func nothingAllowed(a throttle.Limits) bool {
	return a.Connections <= 0 || a.ConnectionRate.Events <= 0 || a.RcptRate.Events <= 0
}

// stale says whether a session was told nothing but to come back, and somebody has: some
// receivers greylist a connection, and look at who comes back in another one.
func (s *session) stale() bool {
	return s.greyed > 0 && s.greyed == s.told && s.queue.Queued() > 0 && s.queue.greyed.After(s.opened)
}

// asideQueue is a queue that is out of the turns for a while.
type asideQueue struct {
	queue *hostQueue
	until time.Time
}

// again is the verdict "ask again" with a reason.
func again(r smtp.Reason, rule string) verdict.Verdict {
	return verdict.Verdict{Reason: r, Blame: smtp.BlameReceiver, Action: verdict.ActRetry, Rule: rule}
}

// tendFree goes through the sessions that have nothing to do: it gives them probes,
// or ends them.
func (ss *sessions) tendFree(now time.Time, a throttle.Limits, resting bool) {
	free, kept := ss.free, ss.free[:0]
	dry := false
	ss.hopeful = false
	ss.sortFree(free)
	for _, s := range free {
		if resting || ss.isSpent(now, s, a) || ss.makesRoom(now, s) {
			ss.quitSession(s)
			continue
		}
		if s.queue.Queued() > 0 && !dry {
			n := ss.mayAsk(now, s, a)
			dry = n == 0 && len(ss.paths.all) == 1 // the receiver's allowance: the others need not ask
			probes := ss.takeProbes(now, s.queue, s.path, n)
			ss.options.Sources.Return(s.path.index, ss.key, s.day, n-len(probes))
			if len(probes) > 0 {
				ss.giveProbes(now, s, probes, a)
				continue
			}
		}
		patience := a.IdleTime
		if s.queue.Queued() > 0 && ss.hopeful {
			patience = max(patience, holdFor)
		}
		if now.Sub(s.idle) >= patience {
			ss.quitSession(s)
			continue
		}
		ss.wakeAt(s.idle.Add(patience))
		kept = append(kept, s)
	}
	clear(free[len(kept):])
	ss.free = kept
}

// isSpent says whether a session that has nothing to do may not be used again.
func (ss *sessions) isSpent(now time.Time, s *session, a throttle.Limits) bool {
	return s.doomed || s.rcpts >= a.RcptsPerConnection || s.transactionsLeft() <= 0 || s.refused >= a.RefusedPerSession ||
		!s.void.IsZero() || s.queue.suspensionOf(now, s.path) != nil || ss.allowance.errorsLeft(s, a) <= 0 ||
		ss.pathLeft(now, s) || !reaches(a.Family, s.host.at) ||
		now.Before(s.host.aside) && ss.paths.otherHost(now, s.queue.route, s.path, s.host.host) != nil ||
		now.Sub(s.opened) > a.SessionAge || len(ss.all)-ss.closing > a.Connections ||
		ss.allowance.tlsMode(now, s.queue) == smtp.TLSRequired && s.tls != smtp.TLSRequired || s.stale()
}

// pathLeft says whether a session speaks from a source that may not go on, or that is the
// second choice by now.
func (ss *sessions) pathLeft(now time.Time, s *session) bool {
	if !ss.paths.sourceBlocked(now, s.path).Free() {
		return s.path.pause != throttle.PauseDrain
	}
	return len(ss.paths.all) > 1 && ss.paths.choosePath(now, s.queue.route, s.host.at) != s.path
}

// makesRoom says whether a session should make room for a queue that has none.
func (ss *sessions) makesRoom(now time.Time, s *session) bool {
	if !ss.pressed || ss.closing >= max(1, ss.fair.Unserved()) {
		return false
	}
	return s.queue.Queued() == 0 || s.queue.Sessions() > 1 || now.Sub(s.opened) >= turnFor ||
		ss.small != nil && ss.closing < max(1, len(ss.all)/2) && ss.isLarge(s.queue)
}

// mayAsk is how many probes a session may be given now by every rule.
func (ss *sessions) mayAsk(now time.Time, s *session, a throttle.Limits) int {
	byBudget, next := ss.refusalsFor(now, s.queue, s.path)
	if byBudget <= 0 {
		ss.wakeAt(next)
		ss.blocks.add(wire.Cause_BUDGET, next)
		return 0
	}
	lead := ss.allowance.lead.Known()
	byRate, next := ss.allowance.rcpts.Ready(now.Add(lead))
	if byRate == 0 {
		return ss.waitForRate(next, lead)
	}
	if s.path.pace.Alone() && s.path.asking > 0 {
		return 0
	}
	byPace, next := s.path.readyAt(now.Add(lead))
	if byPace == 0 {
		return ss.waitForRate(next, lead)
	}
	held := max(1, a.RcptRate.Events/(heldShare*max(1, a.Connections)))
	n := min(byRate, byPace, byBudget, held, a.RcptsPerConnection-s.rcpts, ss.allowance.errorsLeft(s, a), workMax,
		s.transactionsLeft()*a.RcptsPerTransaction)
	if n = ss.portionOf(n, s.queue, a); s.path.pace.Alone() {
		n = min(n, 1)
	}
	today := ss.options.ledgerTime(now)
	got, wait := ss.options.Sources.Claim(s.path.index, ss.key, today, min(n, s.queue.Queued()))
	s.day = egress.DayOf(today)
	if got == 0 && n > 0 {
		ss.blocks.add(wire.Cause_NO_SOURCE, now.Add(wait))
		ss.wakeAt(now.Add(min(wait, asideFor)))
	}
	return got
}

// waitForRate notes that a session waits for a rate that is kept at the time of sending, lead behind the time of
// giving, and gives it nothing; next is zero when an open probe has to be answered first.
func (ss *sessions) waitForRate(next time.Time, lead time.Duration) int {
	if !next.IsZero() {
		next = next.Add(-lead)
		ss.wakeAt(next)
	}
	ss.blocks.add(wire.Cause_ALLOWANCE, next)
	ss.hopeful = true
	return 0
}

// portionOf is how many of the n probes that a session might be given it gets: no
// more than it asks in a short while, no more than leaves as much for the other
// sessions of its queue, and no part of a transaction behind a whole one. Until
// the first answer a turn is taken for a third of opening a session.
func (ss *sessions) portionOf(n int, l *hostQueue, a throttle.Limits) int {
	turn := ss.allowance.replies.Lowest
	if ss.allowance.replies.Samples == 0 {
		turn = ss.allowance.openings.Lowest / 3
	}
	most := a.RcptsPerTransaction
	if ss.fair.Unserved() > 0 || l.Contended() {
		most = min(most, sharedMost)
	}
	soon := max(1, int(float64(workFor)/(ss.allowance.turnsPerAddress()*float64(max(1, turn)))))
	n = min(n, max(soon, most), 1+l.Queued()/min(ss.allowance.sessionsWorth(l.left(), a), max(1, a.Connections)))
	if n > a.RcptsPerTransaction {
		n -= n % a.RcptsPerTransaction
	}
	return n
}

// takeProbes pops up to n probes that are still worth asking.
func (ss *sessions) takeProbes(now time.Time, l *hostQueue, o *egressPath, n int) []*Probe {
	out := make([]*Probe, 0, min(n, l.Queued()))
	for len(out) < n && l.Queued() > 0 {
		p := ss.queues.popProbe(l)
		switch {
		case p.chunk.gone():
			p.chunk.open--
		case p.chunk.task.silent(now):
			ss.queues.shedTask(p.chunk.task)
			p.chunk.open--
		case ss.queues.handOver(now, p):
		case ss.queues.parkProbe(now, o, p):
		case !p.chunk.deadline.IsZero() && now.After(p.chunk.deadline):
			ss.queues.answerProbe(p, Judgement{Verdict: again(smtp.ReceiverRateLimited, "expired")}, now)
		default:
			ss.fair.Charge(now, ss.flowOf(p.chunk.task))
			out = append(out, p)
		}
	}
	return out
}

// giveProbes gives probes to a session. The first of a session need no RSET; to be sent
// as late as all others, they wait.
func (ss *sessions) giveProbes(now time.Time, s *session, probes []*Probe, a throttle.Limits) {
	lead, after := ss.allowance.lead.Known(), time.Duration(0)
	if s.rcpts == 0 {
		after = lead
	}
	ss.allowance.rcpts.Begin(now.Add(lead), len(probes))
	s.path.rcpts.Begin(now.Add(lead), len(probes))
	s.path.refusals.Begin(len(probes))
	s.slot.Halted.Store(false)
	s.halted = false
	s.give(probes, now)
	s.grouped = a.Pipelining && s.groups && s.queue.takesGroups(now)
	s.transactions += (len(probes) + a.RcptsPerTransaction - 1) / a.RcptsPerTransaction
	transaction, group := ss.allowance.sizes(now)
	ss.steps = append(ss.steps, AskProbes{ID: s.id, After: after, Probes: probes,
		RefusedMax: a.RefusedPerSession - s.refused, Pipelining: s.grouped, Transaction: transaction, Group: group,
		Rested: now.Sub(s.idle) > restedAfter, Version: ss.allowance.version})
}

// openSessions dials where probes wait: first for queues that have no session at all,
// then for those that are worth more.
func (ss *sessions) openSessions(now time.Time, a throttle.Limits) {
	if ok, next := ss.paths.mayBeRefused(now); !ok {
		if ss.fair.Queued() > 0 {
			ss.blocks.add(wire.Cause_BUDGET, next)
		}
		ss.wakeAt(next) // a session would have nothing to ask
		return
	}
	ss.queues.readmitAside(now)
	if ss.openFirst(now, a) {
		ss.openMore(now, a)
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
	if ss.small != nil && ss.closing == 0 {
		ss.hurryOne(ss.small, func(s *session) bool { return ss.isLarge(s.queue) })
	}
}

// openFirst dials for the queues that have no session, in the turn of those who wait in
// them. False means that no more can be dialled now; the queue that was to be next stays so.
func (ss *sessions) openFirst(now time.Time, a throttle.Limits) bool {
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
		if !ss.mayOpen(now, a, l, o) {
			if ss.pressed && f.Charged() < smallFlow {
				ss.small = f
			}
			return false
		}
		f = ss.claimSlot(now, l, f)
		if f == nil {
			ss.queues.setAside(now, l, now.Add(slotEvery)) // others may wait elsewhere who have not so many
			continue
		}
		socket := ss.takeSlot(now, a, f)
		if socket == nil {
			return false
		}
		ss.dialHost(now, l, f, c, o, socket)
	}
	return true
}

// openMore dials for the queues that have sessions and are worth more, one after the other.
func (ss *sessions) openMore(now time.Time, a throttle.Limits) {
	for i := 0; i < len(ss.served); i++ {
		l := ss.served[i]
		for l.Queued() > 0 && l.Sessions() < ss.allowance.sessionsWorth(l.left(), a) {
			c, o := ss.paths.nextCandidate(now, l.route)
			if c == nil {
				break
			}
			if n, next := ss.refusalsFor(now, l, o); n <= 0 {
				ss.wakeAt(next)
				break
			}
			var f *flow
			var socket *registry.ConnSlot
			if ss.mayOpen(now, a, l, o) {
				if f = ss.claimSlot(now, l, l.First()); f == nil {
					break
				}
				socket = ss.takeSlot(now, a, f)
			}
			if socket == nil {
				ss.served = append(ss.served[i:], ss.served[:i]...) // it is the first to be looked at again
				return
			}
			ss.dialHost(now, l, f, c, o, socket)
		}
	}
}

// mayOpen says whether the receiver and our sources allow one more session.
func (ss *sessions) mayOpen(now time.Time, a throttle.Limits, l *hostQueue, o *egressPath) bool {
	if n, next := ss.allowance.dials.Ready(now); n == 0 {
		ss.blocks.add(wire.Cause_CONNECTIONS, next)
		ss.wakeAt(next)
		return false
	}
	if ok, next := ss.opening.mayOpen(now); !ok || !ss.opening.roomToOpen(ss.countSessions()) ||
		o.pace.Alone() && len(ss.all) > ss.closing {
		ss.blocks.add(wire.Cause_CONNECTIONS, next)
		ss.wakeAt(next)
		return false
	}
	if len(ss.all) >= a.Connections {
		ss.blocks.add(wire.Cause_CONNECTIONS, time.Time{})
		ss.pressed = l.Sessions() == 0
		return false
	}
	if ok, next := ss.options.Sources.Use(o.index, ss.key, now); !ok { // another receiver is asked first
		ss.wakeAt(next)
		return false
	}
	return true
}

// claimSlot takes a slot of the node for a flow or, when its workspace has as many as it may, for another
// one that waits in the same queue: a session serves them all. It gives the flow in whose name that is; nil:
// none of them may have one more now.
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
	ss.blocks.add(wire.Cause_CONNECTIONS, now.Add(slotEvery))
	ss.wakeAt(now.Add(slotEvery))
	return nil
}

// takeSlot gives the socket for one more session, for which a slot of the node was claimed in the name of a
// flow; nil: there is none.
func (ss *sessions) takeSlot(now time.Time, a throttle.Limits, f *flow) *registry.ConnSlot {
	socket := ss.allowance.handle.Dial(ss.allowance.version, a.Connections, f.Workspace(), ss.options.Slots)
	if socket == nil { // silent sessions, or one that was here before us, still have some; or the share has just changed
		ss.blocks.add(wire.Cause_CONNECTIONS, time.Time{})
		ss.options.Slots.Give(f.Workspace())
		ss.wakeAt(now.Add(slotEvery))
	}
	return socket
}

func (ss *sessions) dialHost(now time.Time, l *hostQueue, f *flow, c *candidate, o *egressPath, socket *registry.ConnSlot) {
	ss.allowance.dials.Begin(now, 1)
	ss.opening.window.Begin(now, 1)
	ss.opening.noteDialled(now)
	ss.options.Sources.NoteDialled(o.index, ss.key, now)
	ss.nextID++
	s := &session{id: ss.nextID, queue: l, host: c, path: o, tls: ss.allowance.tlsMode(now, l),
		slot: socket, opened: now,
		name: f, dialled: now, beside: ss.countOpenAt(c.host)}
	ss.all[s.id] = s
	ss.occupyQueue(l, f)
	ss.steps = append(ss.steps, OpenSession{ID: s.id, Source: o.Source, Host: c.host, At: c.at, TLS: s.tls,
		Version: ss.allowance.version,
		Slot:    socket})
}

// closeQueue answers the probes of a queue whose hosts are all out of reach.
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
