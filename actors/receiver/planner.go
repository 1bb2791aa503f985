package receiver

import (
	"rollcall/actors/receiver/egress"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
	"time"
)

// planner gives free sessions something to ask, and opens more where they are worth it.
type planner struct {
	*env
	allowance  *allowance
	recorder   *recorder
	inbox      *inbox
	pool       *pool
	paths      *paths
	queues     *queues
	suspicions *suspicions
	opening    *openings

	pressed bool  // a lane has no session, and none more may be opened
	small   *flow // in whose name, if little of it was asked yet
	hopeful bool  // probes wait for the RCPT rate only
	lacks   lacks // what kept us from asking more when it last looked
	held    held  // and of late
}

const (
	// workMax and workFor bound the probes given to a session at a time, so that
	// answers come back steadily; a whole transaction may take longer. Guess.
	workMax = 64
	workFor = time.Second

	// workShared is workFor while others wait for a session, or in the same lane, and
	// sharedMost how many RCPTs of a transaction are given then: whoever comes next should
	// not have to wait for long. Guess: a tenth of the speed of long transactions.
	workShared = workFor / 4
	sharedMost = 20

	// heldShare: what all sessions together were given and have not asked is at
	// most one part in this many of the RCPT rate, because it counts as asked. It
	// costs at most as much of the rate. Guess.
	heldShare = 10

	// probesPerSession is how many queued probes justify one more session.
	// Guess: opening costs about as many turns as four probes.
	probesPerSession = 16

	// worthOpening is how much work by one session alone justifies one more: far
	// more than opening takes. Guess; at 250 ms a busy node halved its own speed
	// by opening three sessions for a hundred probes.
	worthOpening = time.Second

	// turnsPerProbe is how many turns a probe takes at most: RSET, MAIL, RCPT.
	turnsPerProbe = 3

	// ratesAtOnce is up to how many RCPTs a second a Window grants them one by one;
	// a rate n times as high comes in groups of n.
	ratesAtOnce = 50

	// turnFor is how long a lane that has more to ask keeps its only session while
	// another lane has none. Guess: two sessions change hands 24 times a minute
	// then, within the connection rate that strangers get.
	turnFor = 5 * time.Second

	// asideFor is how long a lane that cannot have a session is left out of the turns, when
	// it is not known until when that is so. Guess.
	asideFor = time.Second

	restedAfter = 200 * time.Millisecond // looking costs a millisecond, a dead session a probe
	holdFor     = 30 * time.Second       // with work that waits for the rate; RFC 5321 §4.5.3.2.7 lets 5 min
	slotEvery   = 500 * time.Millisecond // looking again for a free slot of the node; guess
	fenceEvery  = time.Second            // looking again whether we may speak; guess
	lanesMax    = 10_000                 // beyond it lanes without work are forgotten whatever they know; guess
)

// shut says whether an allowance is too small a share to ask anything.
func shut(a throttle.Limits) bool {
	return a.Connections <= 0 || a.ConnectionRate.Events <= 0 || a.RcptRate.Events <= 0
}

// stale says whether a session was told nothing but to come back, and somebody has: some
// receivers greylist a connection, and look at who comes back in another one.
func (s *session) stale() bool {
	return s.greyed > 0 && s.greyed == s.told && s.lane.Queued() > 0 && s.lane.greyed.After(s.opened)
}

// aside is a lane that is out of the turns for a while.
type aside struct {
	lane  *lane
	until time.Time
}

// again is the verdict "ask again" with a reason.
func again(r smtp.Reason, rule string) verdict.Verdict {
	return verdict.Verdict{Reason: r, Blame: smtp.BlameReceiver, Action: verdict.ActRetry, Rule: rule}
}

// tend goes through the sessions that have nothing to do: it gives them probes,
// or ends them.
func (pl *planner) tend(now time.Time, a throttle.Limits, resting bool) {
	free, kept := pl.pool.free, pl.pool.free[:0]
	dry := false
	pl.hopeful = false
	pl.pool.arrange(free)
	for _, s := range free {
		if resting || pl.spent(now, s, a) || pl.yields(now, s) {
			pl.pool.quit(s)
			continue
		}
		if s.lane.Queued() > 0 && !dry {
			n := pl.mayAsk(now, s, a)
			dry = n == 0 && len(pl.paths.outlets) == 1 // the receiver's allowance: the others need not ask
			probes := pl.take(now, s.lane, n)
			pl.options.Sources.Return(s.outlet.index, pl.key, s.day, n-len(probes))
			if len(probes) > 0 {
				pl.ask(now, s, probes, a)
				continue
			}
		}
		patience := a.IdleTime
		if s.lane.Queued() > 0 && pl.hopeful {
			patience = max(patience, holdFor)
		}
		if now.Sub(s.idle) >= patience {
			pl.pool.quit(s)
			continue
		}
		pl.at(s.idle.Add(patience))
		kept = append(kept, s)
	}
	clear(free[len(kept):])
	pl.pool.free = kept
}

// spent says whether a session that has nothing to do may not be used again.
func (pl *planner) spent(now time.Time, s *session, a throttle.Limits) bool {
	return s.doomed || s.rcpts >= a.RcptsPerConnection || s.refused >= a.RefusedPerSession ||
		!s.void.IsZero() || s.lane.away(now, s.outlet) != nil || s.errorsLeft(a) <= 0 ||
		pl.left(now, s) || !reaches(a.Family, s.host.at) ||
		now.Sub(s.opened) > a.SessionAge || len(pl.pool.sessions)-pl.pool.closing > a.Connections ||
		pl.allowance.mode(now, s.lane) == smtp.TLSRequired && s.tls != smtp.TLSRequired || s.stale()
}

// left says whether a session speaks from a source that may not go on, or that is the
// second choice by now.
func (pl *planner) left(now time.Time, s *session) bool {
	if !pl.paths.fit(now, s.outlet).Free() {
		return s.outlet.pause != throttle.PauseDrain
	}
	return len(pl.paths.outlets) > 1 && pl.paths.outlet(now, s.lane, s.host.at) != s.outlet
}

// yields says whether a session should make room for a lane that has none.
func (pl *planner) yields(now time.Time, s *session) bool {
	if !pl.pressed || pl.pool.closing >= max(1, pl.inbox.tasks.queue.Unserved()) {
		return false
	}
	return s.lane.Queued() == 0 || s.lane.Sessions() > 1 || now.Sub(s.opened) >= turnFor ||
		pl.small != nil && pl.pool.closing < max(1, len(pl.pool.sessions)/2) && pl.pool.large(s.lane)
}

// mayAsk is how many probes a session may be given now by every rule.
func (pl *planner) mayAsk(now time.Time, s *session, a throttle.Limits) int {
	byBudget, next := s.outlet.budget.Ready(now)
	if byBudget <= 0 {
		pl.at(next)
		pl.lacks.add(wire.Cause_BUDGET, next)
		return 0
	}
	lead := pl.allowance.lead.known()
	byRate, next := pl.allowance.rcpts.Ready(now.Add(lead))
	if byRate == 0 {
		if !next.IsZero() {
			next = next.Add(-lead)
			pl.at(next)
		}
		pl.lacks.add(wire.Cause_ALLOWANCE, next)
		pl.hopeful = true
		return 0
	}
	if s.outlet.cautious && pl.pool.asking(s.outlet) {
		return 0
	}
	byTempo, next := s.outlet.goes(now.Add(lead))
	if byTempo == 0 {
		if !next.IsZero() {
			next = next.Add(-lead)
			pl.at(next)
		}
		pl.lacks.add(wire.Cause_ALLOWANCE, next)
		pl.hopeful = true
		return 0
	}
	held := max(1, a.RcptRate.Events/(heldShare*max(1, a.Connections)))
	n := min(byRate, byTempo, byBudget, held, a.RcptsPerConnection-s.rcpts, s.errorsLeft(a), workMax)
	if n = pl.portion(n, s.lane, a); s.outlet.cautious {
		n = min(n, 1)
	}
	today := pl.options.clock(now)
	got, wait := pl.options.Sources.Claim(s.outlet.index, pl.key, today, min(n, s.lane.Queued()))
	s.day = egress.DayOf(today)
	if got == 0 && n > 0 {
		pl.lacks.add(wire.Cause_NO_SOURCE, now.Add(wait))
		pl.at(now.Add(min(wait, asideFor)))
	}
	return got
}

// portion is how many of the n probes that a session might be given it gets: no
// more than it asks in a short while, no more than leaves as much for the other
// sessions of its lane, and no part of a transaction behind a whole one. Until
// the first answer a turn is taken for a third of opening a session.
func (pl *planner) portion(n int, l *lane, a throttle.Limits) int {
	turn := pl.allowance.replies.lowest
	if pl.allowance.replies.samples == 0 {
		turn = pl.allowance.openings.lowest / 3
	}
	length, most := workFor, a.RcptsPerTransaction
	if pl.inbox.tasks.queue.Unserved() > 0 || l.Contended() {
		length, most = workShared, min(most, sharedMost)
	}
	soon := max(1, int(length/(turnsPerProbe*max(1, turn))))
	n = min(n, max(soon, most), 1+l.Queued()/min(pl.allowance.worth(l.Queued(), a), max(1, a.Connections)))
	if n > a.RcptsPerTransaction {
		n -= n % a.RcptsPerTransaction
	}
	return n
}

// take pops up to n probes that are still worth asking.
func (pl *planner) take(now time.Time, l *lane, n int) []*probe {
	out := make([]*probe, 0, min(n, l.Queued()))
	for len(out) < n && l.Queued() > 0 {
		p := pl.queues.pop(l)
		switch {
		case p.chunk.gone():
			p.chunk.open--
		case p.chunk.task.silent(now):
			pl.inbox.shed(p.chunk.task)
			p.chunk.open--
		case pl.inbox.hand(now, p):
		case pl.suspicions.parks(now, p):
		case !p.chunk.deadline.IsZero() && now.After(p.chunk.deadline):
			pl.inbox.answer(p, verdictOf{verdict: again(smtp.ReceiverRateLimited, "expired")}, now)
		default:
			pl.inbox.tasks.queue.Charge(now, pl.inbox.tasks.flow(p.chunk.task))
			out = append(out, p)
		}
	}
	return out
}

// ask gives probes to a session. The first of a session need no RSET; to be sent
// as late as all others, they wait.
func (pl *planner) ask(now time.Time, s *session, probes []*probe, a throttle.Limits) {
	lead, after := pl.allowance.lead.known(), time.Duration(0)
	if s.rcpts == 0 {
		after = lead
	}
	pl.allowance.rcpts.Begin(now.Add(lead), len(probes))
	s.outlet.rcpts.Begin(now.Add(lead), len(probes))
	s.outlet.budget.Begin(len(probes))
	s.socket.halted.Store(false)
	s.halted = false
	s.given, s.at = probes, now
	pl.steps = append(pl.steps, askProbes{id: s.id, after: after, probes: probes,
		perTransaction: a.RcptsPerTransaction, refusedMax: a.RefusedPerSession - s.refused,
		pipelining: a.Pipelining, depth: a.PipeliningDepth, rested: now.Sub(s.idle) > restedAfter, turn: pl.allowance.turn})
}

// open dials where probes wait: first for lanes that have no session at all,
// then for those that are worth more.
func (pl *planner) open(now time.Time, a throttle.Limits) {
	if ok, next := pl.paths.spendable(now); !ok {
		if pl.inbox.tasks.queue.Queued() > 0 {
			pl.lacks.add(wire.Cause_BUDGET, next)
		}
		pl.at(next) // a session would have nothing to ask
		return
	}
	pl.queues.readmit(now)
	if pl.openFirst(now, a) {
		pl.openMore(now, a)
	}
	if !pl.pressed {
		return
	}
	kept := pl.pool.free[:0]
	for _, s := range pl.pool.free {
		if pl.yields(now, s) {
			pl.pool.quit(s)
		} else {
			kept = append(kept, s)
		}
	}
	clear(pl.pool.free[len(kept):])
	pl.pool.free = kept
	if pl.small != nil && pl.pool.closing == 0 {
		pl.pool.hurry(pl.small, func(s *session) bool { return pl.pool.large(s.lane) })
	}
}

// openFirst dials for the lanes that have no session, in the turn of those who wait in
// them. False means that no more can be dialled now; the lane that was to be next stays so.
func (pl *planner) openFirst(now time.Time, a throttle.Limits) bool {
	for h, f := pl.inbox.tasks.queue.Next(); h != nil; h, f = pl.inbox.tasks.queue.Next() {
		l := pl.queues.lanes[h.Key()]
		c, o := pl.paths.next(now, l)
		if c == nil {
			if ok, until := pl.paths.idle(now, l); ok {
				pl.queues.setAside(now, l, until)
			} else if until := pl.opening.backSoon(now, l); !until.IsZero() {
				pl.queues.setAside(now, l, until)
			} else {
				pl.closeLane(now, l)
			}
			continue
		}
		if n, next := o.budget.Ready(now); n <= 0 {
			pl.lacks.add(wire.Cause_BUDGET, next)
			pl.queues.setAside(now, l, next)
			continue
		}
		socket := pl.mayDial(now, a, l, o)
		if socket == nil {
			if pl.pressed && f.Charged() < smallFlow {
				pl.small = f
			}
			return false
		}
		pl.dial(now, l, f, c, o, socket)
	}
	return true
}

// openMore dials for the lanes that have sessions and are worth more, one after the other.
func (pl *planner) openMore(now time.Time, a throttle.Limits) {
	for i := 0; i < len(pl.pool.manned); i++ {
		l := pl.pool.manned[i]
		for l.Queued() > 0 && l.Sessions() < pl.allowance.worth(l.Queued(), a) {
			c, o := pl.paths.next(now, l)
			if c == nil {
				break
			}
			if n, next := o.budget.Ready(now); n <= 0 {
				pl.at(next)
				break
			}
			socket := pl.mayDial(now, a, l, o)
			if socket == nil {
				pl.pool.manned = append(pl.pool.manned[i:], pl.pool.manned[:i]...) // it is the first to be looked at again
				return
			}
			pl.dial(now, l, l.First(), c, o, socket)
		}
	}
}

// mayDial gives the socket for one more session, or nil when none may be opened.
func (pl *planner) mayDial(now time.Time, a throttle.Limits, l *lane, o *outlet) *socket {
	if n, next := pl.allowance.dials.Ready(now); n == 0 {
		pl.lacks.add(wire.Cause_CONNECTIONS, next)
		pl.at(next)
		return nil
	}
	if ok, next := pl.opening.may(now); !ok || !pl.opening.roomToOpen() || o.cautious && len(pl.pool.sessions) > pl.pool.closing {
		pl.lacks.add(wire.Cause_CONNECTIONS, next)
		pl.at(next)
		return nil
	}
	if len(pl.pool.sessions) >= a.Connections {
		pl.lacks.add(wire.Cause_CONNECTIONS, time.Time{})
		pl.pressed = l.Sessions() == 0
		return nil
	}
	if ok, next := pl.options.Sources.Use(o.index, pl.key, now); !ok { // another receiver is asked first
		pl.at(next)
		return nil
	}
	if !pl.options.Slots.Take() {
		pl.at(now.Add(slotEvery))
		return nil
	}
	socket := pl.allowance.seat.dial(pl.allowance.turn, a.Connections, pl.options.Slots)
	if socket == nil { // one that was here before us still has some, or the share has just changed
		pl.options.Slots.Give()
		pl.at(now.Add(slotEvery))
	}
	return socket
}

func (pl *planner) dial(now time.Time, l *lane, f *flow, c *candidate, o *outlet, socket *socket) {
	pl.allowance.dials.Begin(now, 1)
	pl.opening.window.Begin(now, 1)
	pl.opening.dialled(now)
	pl.options.Sources.NoteDialled(o.index, pl.key, now)
	pl.pool.nextID++
	s := &session{id: pl.pool.nextID, lane: l, host: c, outlet: o, tls: pl.allowance.mode(now, l), socket: socket, opened: now,
		name: f, dialled: now, beside: pl.pool.openAt(c.host)}
	pl.pool.sessions[s.id] = s
	pl.recorder.begun(now)
	pl.pool.occupy(l, f)
	pl.steps = append(pl.steps, openSession{id: s.id, source: o.Source, host: c, tls: s.tls, turn: pl.allowance.turn,
		socket: socket})
}

// closeLane answers the probes of a lane whose hosts are all out of reach.
func (pl *planner) closeLane(now time.Time, l *lane) {
	told, why := pl.paths.shut(now, l)
	for l.Queued() > 0 {
		p := pl.queues.pop(l)
		p.suspect = nil
		for _, one := range why {
			one.attempt.Others = one.attempt.Code != 0 // a limit; a host that is down is this address's trouble too
			p.note(one)
		}
		pl.inbox.conclude(p, told, now)
	}
}
