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

// planner gives free sessions something to ask, and opens more where they are worth it.
type planner struct {
	*env
	allowance *allowance
	recorder  *recorder
	inbox     *inbox
	pool      *pool
	paths     *paths
	queues    *queues
	rechecks  *rechecks
	opening   *openings

	pressed  bool         // a queue has no session, and none more may be opened
	slotless bool         // none who waits may have one more session of the node
	small    *flow        // in whose name, if little of it was asked yet
	hopeful  bool         // probes wait for the RCPT rate only
	blocks   blocksNow    // what kept us from asking more when it last looked
	lately   blocksLately // and of late
}

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
func (pl *planner) tendFree(now time.Time, a throttle.Limits, resting bool) {
	free, kept := pl.pool.free, pl.pool.free[:0]
	dry := false
	pl.hopeful = false
	pl.pool.sortFree(free)
	for _, s := range free {
		if resting || pl.isSpent(now, s, a) || pl.makesRoom(now, s) {
			pl.pool.quitSession(s)
			continue
		}
		if s.queue.Queued() > 0 && !dry {
			n := pl.mayAsk(now, s, a)
			dry = n == 0 && len(pl.paths.all) == 1 // the receiver's allowance: the others need not ask
			probes := pl.takeProbes(now, s.queue, s.path, n)
			pl.options.Sources.Return(s.path.index, pl.key, s.day, n-len(probes))
			if len(probes) > 0 {
				pl.giveProbes(now, s, probes, a)
				continue
			}
		}
		patience := a.IdleTime
		if s.queue.Queued() > 0 && pl.hopeful {
			patience = max(patience, holdFor)
		}
		if now.Sub(s.idle) >= patience {
			pl.pool.quitSession(s)
			continue
		}
		pl.wakeAt(s.idle.Add(patience))
		kept = append(kept, s)
	}
	clear(free[len(kept):])
	pl.pool.free = kept
}

// isSpent says whether a session that has nothing to do may not be used again.
func (pl *planner) isSpent(now time.Time, s *session, a throttle.Limits) bool {
	return s.doomed || s.rcpts >= a.RcptsPerConnection || s.transactionsLeft() <= 0 || s.refused >= a.RefusedPerSession ||
		!s.void.IsZero() || s.queue.suspensionOf(now, s.path) != nil || pl.allowance.errorsLeft(s, a) <= 0 ||
		pl.pathLeft(now, s) || !reaches(a.Family, s.host.at) ||
		now.Before(s.host.aside) && pl.paths.otherHost(now, s.queue, s.path, s.host.host) != nil ||
		now.Sub(s.opened) > a.SessionAge || len(pl.pool.sessions)-pl.pool.closing > a.Connections ||
		pl.allowance.tlsMode(now, s.queue) == smtp.TLSRequired && s.tls != smtp.TLSRequired || s.stale()
}

// pathLeft says whether a session speaks from a source that may not go on, or that is the
// second choice by now.
func (pl *planner) pathLeft(now time.Time, s *session) bool {
	if !pl.paths.sourceBlocked(now, s.path).Free() {
		return s.path.pause != throttle.PauseDrain
	}
	return len(pl.paths.all) > 1 && pl.paths.choosePath(now, s.queue, s.host.at) != s.path
}

// makesRoom says whether a session should make room for a queue that has none.
func (pl *planner) makesRoom(now time.Time, s *session) bool {
	if !pl.pressed || pl.pool.closing >= max(1, pl.inbox.tasks.queue.Unserved()) {
		return false
	}
	return s.queue.Queued() == 0 || s.queue.Sessions() > 1 || now.Sub(s.opened) >= turnFor ||
		pl.small != nil && pl.pool.closing < max(1, len(pl.pool.sessions)/2) && pl.pool.isLarge(s.queue)
}

// mayAsk is how many probes a session may be given now by every rule.
func (pl *planner) mayAsk(now time.Time, s *session, a throttle.Limits) int {
	byBudget, next := pl.queues.refusalsFor(now, s.queue, s.path)
	if byBudget <= 0 {
		pl.wakeAt(next)
		pl.blocks.add(wire.Cause_BUDGET, next)
		return 0
	}
	lead := pl.allowance.lead.Known()
	byRate, next := pl.allowance.rcpts.Ready(now.Add(lead))
	if byRate == 0 {
		return pl.waitForRate(next, lead)
	}
	if s.path.pace.Alone() && pl.pool.asksFrom(s.path) {
		return 0
	}
	byPace, next := s.path.readyAt(now.Add(lead))
	if byPace == 0 {
		return pl.waitForRate(next, lead)
	}
	held := max(1, a.RcptRate.Events/(heldShare*max(1, a.Connections)))
	n := min(byRate, byPace, byBudget, held, a.RcptsPerConnection-s.rcpts, pl.allowance.errorsLeft(s, a), workMax,
		s.transactionsLeft()*a.RcptsPerTransaction)
	if n = pl.portionOf(n, s.queue, a); s.path.pace.Alone() {
		n = min(n, 1)
	}
	today := pl.options.ledgerTime(now)
	got, wait := pl.options.Sources.Claim(s.path.index, pl.key, today, min(n, s.queue.Queued()))
	s.day = egress.DayOf(today)
	if got == 0 && n > 0 {
		pl.blocks.add(wire.Cause_NO_SOURCE, now.Add(wait))
		pl.wakeAt(now.Add(min(wait, asideFor)))
	}
	return got
}

// waitForRate notes that a session waits for a rate that is kept at the time of sending, lead behind the time of
// giving, and gives it nothing; next is zero when an open probe has to be answered first.
func (pl *planner) waitForRate(next time.Time, lead time.Duration) int {
	if !next.IsZero() {
		next = next.Add(-lead)
		pl.wakeAt(next)
	}
	pl.blocks.add(wire.Cause_ALLOWANCE, next)
	pl.hopeful = true
	return 0
}

// portionOf is how many of the n probes that a session might be given it gets: no
// more than it asks in a short while, no more than leaves as much for the other
// sessions of its queue, and no part of a transaction behind a whole one. Until
// the first answer a turn is taken for a third of opening a session.
func (pl *planner) portionOf(n int, l *hostQueue, a throttle.Limits) int {
	turn := pl.allowance.replies.Lowest
	if pl.allowance.replies.Samples == 0 {
		turn = pl.allowance.openings.Lowest / 3
	}
	most := a.RcptsPerTransaction
	if pl.inbox.tasks.queue.Unserved() > 0 || l.Contended() {
		most = min(most, sharedMost)
	}
	soon := max(1, int(float64(workFor)/(pl.allowance.turnsPerAddress()*float64(max(1, turn)))))
	n = min(n, max(soon, most), 1+l.Queued()/min(pl.allowance.sessionsWorth(l.left(), a), max(1, a.Connections)))
	if n > a.RcptsPerTransaction {
		n -= n % a.RcptsPerTransaction
	}
	return n
}

// takeProbes pops up to n probes that are still worth asking.
func (pl *planner) takeProbes(now time.Time, l *hostQueue, o *egressPath, n int) []*Probe {
	out := make([]*Probe, 0, min(n, l.Queued()))
	for len(out) < n && l.Queued() > 0 {
		p := pl.queues.popProbe(l)
		switch {
		case p.chunk.gone():
			p.chunk.open--
		case p.chunk.task.silent(now):
			pl.inbox.shedTask(p.chunk.task)
			p.chunk.open--
		case pl.inbox.handOver(now, p):
		case pl.rechecks.parkProbe(now, o, p):
		case !p.chunk.deadline.IsZero() && now.After(p.chunk.deadline):
			pl.inbox.answerProbe(p, Judgement{Verdict: again(smtp.ReceiverRateLimited, "expired")}, now)
		default:
			pl.inbox.tasks.queue.Charge(now, pl.inbox.tasks.flow(p.chunk.task))
			out = append(out, p)
		}
	}
	return out
}

// giveProbes gives probes to a session. The first of a session need no RSET; to be sent
// as late as all others, they wait.
func (pl *planner) giveProbes(now time.Time, s *session, probes []*Probe, a throttle.Limits) {
	lead, after := pl.allowance.lead.Known(), time.Duration(0)
	if s.rcpts == 0 {
		after = lead
	}
	pl.allowance.rcpts.Begin(now.Add(lead), len(probes))
	s.path.rcpts.Begin(now.Add(lead), len(probes))
	s.path.refusals.Begin(len(probes))
	s.slot.Halted.Store(false)
	s.halted = false
	s.given, s.at = probes, now
	s.grouped = a.Pipelining && s.groups && s.queue.takesGroups(now)
	s.transactions += (len(probes) + a.RcptsPerTransaction - 1) / a.RcptsPerTransaction
	transaction, group := pl.allowance.sizes(now)
	pl.steps = append(pl.steps, AskProbes{ID: s.id, After: after, Probes: probes,
		RefusedMax: a.RefusedPerSession - s.refused, Pipelining: s.grouped, Transaction: transaction, Group: group,
		Rested: now.Sub(s.idle) > restedAfter, Version: pl.allowance.version})
}

// openSessions dials where probes wait: first for queues that have no session at all,
// then for those that are worth more.
func (pl *planner) openSessions(now time.Time, a throttle.Limits) {
	if ok, next := pl.paths.mayBeRefused(now); !ok {
		if pl.inbox.tasks.queue.Queued() > 0 {
			pl.blocks.add(wire.Cause_BUDGET, next)
		}
		pl.wakeAt(next) // a session would have nothing to ask
		return
	}
	pl.queues.readmitAside(now)
	if pl.openFirst(now, a) {
		pl.openMore(now, a)
	}
	if !pl.pressed {
		return
	}
	kept := pl.pool.free[:0]
	for _, s := range pl.pool.free {
		if pl.makesRoom(now, s) {
			pl.pool.quitSession(s)
		} else {
			kept = append(kept, s)
		}
	}
	clear(pl.pool.free[len(kept):])
	pl.pool.free = kept
	if pl.small != nil && pl.pool.closing == 0 {
		pl.pool.hurryOne(pl.small, func(s *session) bool { return pl.pool.isLarge(s.queue) })
	}
}

// openFirst dials for the queues that have no session, in the turn of those who wait in
// them. False means that no more can be dialled now; the queue that was to be next stays so.
func (pl *planner) openFirst(now time.Time, a throttle.Limits) bool {
	for h, f := pl.inbox.tasks.queue.Next(); h != nil; h, f = pl.inbox.tasks.queue.Next() {
		l := pl.queues.all[h.Key()]
		c, o := pl.paths.nextCandidate(now, l)
		if c == nil {
			if ok, until := pl.paths.waitsForSources(now, l); ok {
				pl.queues.setAside(now, l, until)
			} else if until := pl.opening.backSoon(now, l); !until.IsZero() {
				pl.queues.setAside(now, l, until)
			} else {
				pl.closeQueue(now, l)
			}
			continue
		}
		if n, next := pl.queues.refusalsFor(now, l, o); n <= 0 {
			pl.blocks.add(wire.Cause_BUDGET, next)
			pl.queues.setAside(now, l, next)
			continue
		}
		if !pl.mayOpen(now, a, l, o) {
			if pl.pressed && f.Charged() < smallFlow {
				pl.small = f
			}
			return false
		}
		f = pl.claimSlot(now, l, f)
		if f == nil {
			pl.queues.setAside(now, l, now.Add(slotEvery)) // others may wait elsewhere who have not so many
			continue
		}
		socket := pl.takeSlot(now, a, f)
		if socket == nil {
			return false
		}
		pl.dialHost(now, l, f, c, o, socket)
	}
	return true
}

// openMore dials for the queues that have sessions and are worth more, one after the other.
func (pl *planner) openMore(now time.Time, a throttle.Limits) {
	for i := 0; i < len(pl.pool.served); i++ {
		l := pl.pool.served[i]
		for l.Queued() > 0 && l.Sessions() < pl.allowance.sessionsWorth(l.left(), a) {
			c, o := pl.paths.nextCandidate(now, l)
			if c == nil {
				break
			}
			if n, next := pl.queues.refusalsFor(now, l, o); n <= 0 {
				pl.wakeAt(next)
				break
			}
			var f *flow
			var socket *registry.ConnSlot
			if pl.mayOpen(now, a, l, o) {
				if f = pl.claimSlot(now, l, l.First()); f == nil {
					break
				}
				socket = pl.takeSlot(now, a, f)
			}
			if socket == nil {
				pl.pool.served = append(pl.pool.served[i:], pl.pool.served[:i]...) // it is the first to be looked at again
				return
			}
			pl.dialHost(now, l, f, c, o, socket)
		}
	}
}

// mayOpen says whether the receiver and our sources allow one more session.
func (pl *planner) mayOpen(now time.Time, a throttle.Limits, l *hostQueue, o *egressPath) bool {
	if n, next := pl.allowance.dials.Ready(now); n == 0 {
		pl.blocks.add(wire.Cause_CONNECTIONS, next)
		pl.wakeAt(next)
		return false
	}
	if ok, next := pl.opening.mayOpen(now); !ok || !pl.opening.roomToOpen() ||
		o.pace.Alone() && len(pl.pool.sessions) > pl.pool.closing {
		pl.blocks.add(wire.Cause_CONNECTIONS, next)
		pl.wakeAt(next)
		return false
	}
	if len(pl.pool.sessions) >= a.Connections {
		pl.blocks.add(wire.Cause_CONNECTIONS, time.Time{})
		pl.pressed = l.Sessions() == 0
		return false
	}
	if ok, next := pl.options.Sources.Use(o.index, pl.key, now); !ok { // another receiver is asked first
		pl.wakeAt(next)
		return false
	}
	return true
}

// claimSlot takes a slot of the node for a flow or, when its workspace has as many as it may, for another
// one that waits in the same queue: a session serves them all. It gives the flow in whose name that is; nil:
// none of them may have one more now.
func (pl *planner) claimSlot(now time.Time, l *hostQueue, f *flow) *flow {
	if pl.options.Slots.Take(f.Workspace(), f.Weight()) {
		return f
	}
	for other := range l.Waiting() {
		if other.Workspace() != f.Workspace() && pl.options.Slots.Take(other.Workspace(), other.Weight()) {
			return other
		}
	}
	pl.slotless = true
	pl.blocks.add(wire.Cause_CONNECTIONS, now.Add(slotEvery))
	pl.wakeAt(now.Add(slotEvery))
	return nil
}

// takeSlot gives the socket for one more session, for which a slot of the node was claimed in the name of a
// flow; nil: there is none.
func (pl *planner) takeSlot(now time.Time, a throttle.Limits, f *flow) *registry.ConnSlot {
	socket := pl.allowance.handle.Dial(pl.allowance.version, a.Connections, f.Workspace(), pl.options.Slots)
	if socket == nil { // silent sessions, or one that was here before us, still have some; or the share has just changed
		pl.blocks.add(wire.Cause_CONNECTIONS, time.Time{})
		pl.options.Slots.Give(f.Workspace())
		pl.wakeAt(now.Add(slotEvery))
	}
	return socket
}

func (pl *planner) dialHost(now time.Time, l *hostQueue, f *flow, c *candidate, o *egressPath, socket *registry.ConnSlot) {
	pl.allowance.dials.Begin(now, 1)
	pl.opening.window.Begin(now, 1)
	pl.opening.noteDialled(now)
	pl.options.Sources.NoteDialled(o.index, pl.key, now)
	pl.pool.nextID++
	s := &session{id: pl.pool.nextID, queue: l, host: c, path: o, tls: pl.allowance.tlsMode(now, l),
		slot: socket, opened: now,
		name: f, dialled: now, beside: pl.pool.countOpenAt(c.host)}
	pl.pool.sessions[s.id] = s
	pl.recorder.recordDial(now)
	pl.pool.occupyQueue(l, f)
	pl.steps = append(pl.steps, OpenSession{ID: s.id, Source: o.Source, Host: c.host, At: c.at, TLS: s.tls,
		Version: pl.allowance.version,
		Slot:    socket})
}

// closeQueue answers the probes of a queue whose hosts are all out of reach.
func (pl *planner) closeQueue(now time.Time, l *hostQueue) {
	told, why := pl.paths.hostsUnavailable(now, l)
	for l.Queued() > 0 {
		p := pl.queues.popProbe(l)
		p.recheck = nil
		for _, one := range why {
			one.Attempt.Others = one.Attempt.Code != 0 // a limit; a host that is down is this address's trouble too
			p.note(one)
		}
		pl.inbox.concludeProbe(p, told, now)
	}
}
