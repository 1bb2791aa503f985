package receiver

import (
	"slices"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

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

// plan decides what to do now. It returns the steps and the time to plan again
// if nothing happens before; zero: never.
func (d *desk) plan(now time.Time) ([]step, time.Time) {
	d.wake, d.now = time.Time{}, now
	if d.leaving {
		return d.planLeave(now)
	}
	a := d.permit(now)
	known := d.know(now, d.share)
	muted := d.mute(now)
	d.at(muted.Until)
	barred, resting := shut(a) || !known || a.Pause == throttle.PauseYes, now.Before(d.paused)
	if resting && a.Pause != throttle.PauseYes && d.paused.Sub(d.pausedAt) > shortRest { // a pause by us tells nobody
		d.tellAll(now)
		d.at(d.paused)
	}
	d.lacks = lacks{}
	d.readmitParked(now)
	d.tend(now, a, resting || barred)
	d.pressed, d.small = false, nil
	if !resting && !barred && muted.Free() && a.Pause != throttle.PauseDrain {
		d.open(now, a)
	}
	d.held.note(now, d.lacks)
	d.flush(now)
	d.sweep(now)
	d.remember(now, false)
	if _, idle := d.idleSince(); !idle {
		d.lastUsed = now
	}
	d.observe(now)
	steps := d.steps
	d.steps = nil
	return steps, d.wake
}

// at asks to be woken no later than t.
func (d *desk) at(t time.Time) {
	if !t.IsZero() && (d.wake.IsZero() || t.Before(d.wake)) {
		d.wake = t
	}
}

// shut says whether an allowance is too small a share to ask anything.
func shut(a throttle.Limits) bool {
	return a.Connections <= 0 || a.ConnectionRate.Events <= 0 || a.RcptRate.Events <= 0
}

// permit gives what is allowed here now: our share of the allowance, less what
// was learned. Others may have used what a share grew by until just now; a Window
// that is raised, or new, bears that in mind.
func (d *desk) permit(now time.Time) throttle.Limits {
	stand := d.seat.now.Load()
	d.turn, d.share = stand.turn, stand.part
	if d.options.Fenced() {
		d.share = part{0, 1}
		d.at(now.Add(d.options.waits(fenceEvery)))
	}
	allowed := d.allow()
	d.raised(allowed, now)
	whole := d.learned.apply(allowed, d.opening.failedAt.IsZero(), now)
	a := d.share.of(whole)
	if a != d.allowance {
		if a.Pause == throttle.PauseYes && d.allowance.Pause != a.Pause {
			d.halt(func(*session) bool { return true })
		}
		d.allowance = a
		d.dials.Set(a.ConnectionRate)
		d.rcpts.Set(a.RcptRate)
		d.setBudgets(a)
	}
	d.heed()
	d.conduct(now, whole)
	return a
}

// tend goes through the sessions that have nothing to do: it gives them probes,
// or ends them.
func (d *desk) tend(now time.Time, a throttle.Limits, resting bool) {
	free, kept := d.free, d.free[:0]
	dry := false
	d.hopeful = false
	d.arrange(free)
	for _, s := range free {
		if resting || d.spent(now, s, a) || d.yields(now, s) {
			d.quit(s)
			continue
		}
		if s.lane.Queued() > 0 && !dry {
			n := d.mayAsk(now, s, a)
			dry = n == 0 && len(d.outlets) == 1 // the receiver's allowance: the others need not ask
			probes := d.take(now, s.lane, n)
			d.options.Sources.Return(s.outlet.index, d.key, s.day, n-len(probes))
			if len(probes) > 0 {
				d.ask(now, s, probes, a)
				continue
			}
		}
		patience := a.IdleTime
		if s.lane.Queued() > 0 && d.hopeful {
			patience = max(patience, holdFor)
		}
		if now.Sub(s.idle) >= patience {
			d.quit(s)
			continue
		}
		d.at(s.idle.Add(patience))
		kept = append(kept, s)
	}
	clear(free[len(kept):])
	d.free = kept
}

// spent says whether a session that has nothing to do may not be used again.
func (d *desk) spent(now time.Time, s *session, a throttle.Limits) bool {
	return s.doomed || s.rcpts >= a.RcptsPerConnection || s.refused >= a.RefusedPerSession ||
		!s.void.IsZero() || s.lane.away(now, s.outlet) != nil || s.errorsLeft(a) <= 0 ||
		d.left(now, s) || !reaches(a.Family, s.host.at) ||
		now.Sub(s.opened) > a.SessionAge || len(d.sessions)-d.closing > a.Connections ||
		d.mode(now, s.lane) == smtp.TLSRequired && s.tls != smtp.TLSRequired || s.stale()
}

// stale says whether a session was told nothing but to come back, and somebody has: some
// receivers greylist a connection, and look at who comes back in another one.
func (s *session) stale() bool {
	return s.greyed > 0 && s.greyed == s.told && s.lane.Queued() > 0 && s.lane.greyed.After(s.opened)
}

// left says whether a session speaks from a source that may not go on, or that is the
// second choice by now.
func (d *desk) left(now time.Time, s *session) bool {
	if !d.fit(now, s.outlet).Free() {
		return s.outlet.pause != throttle.PauseDrain
	}
	return len(d.outlets) > 1 && d.outlet(now, s.lane, s.host.at) != s.outlet
}

// arrange puts the sessions that have nothing to do in the order in which they are given
// something: first those of the lanes in which somebody waits who was given least.
func (d *desk) arrange(free []*session) {
	if len(free) < 2 || len(d.manned) < 2 || !d.tasks.queue.Contended() {
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

// yields says whether a session should make room for a lane that has none.
func (d *desk) yields(now time.Time, s *session) bool {
	if !d.pressed || d.closing >= max(1, d.tasks.queue.Unserved()) {
		return false
	}
	return s.lane.Queued() == 0 || s.lane.Sessions() > 1 || now.Sub(s.opened) >= turnFor ||
		d.small != nil && d.closing < max(1, len(d.sessions)/2) && d.large(s.lane)
}

// large says whether of everything that waits in a lane enough was asked already.
func (d *desk) large(l *lane) bool {
	for f := range l.Flows() {
		if f.Charged() < smallFlow {
			return false
		}
	}
	return true
}

// mayAsk is how many probes a session may be given now by every rule.
func (d *desk) mayAsk(now time.Time, s *session, a throttle.Limits) int {
	byBudget, next := d.refusalsFor(now, s.lane, s.outlet)
	if byBudget <= 0 {
		d.at(next)
		d.lacks.add(wire.Cause_BUDGET, next)
		return 0
	}
	lead := d.lead.known()
	byRate, next := d.rcpts.Ready(now.Add(lead))
	if byRate == 0 {
		if !next.IsZero() {
			next = next.Add(-lead)
			d.at(next)
		}
		d.lacks.add(wire.Cause_ALLOWANCE, next)
		d.hopeful = true
		return 0
	}
	if s.outlet.cautious && d.asking(s.outlet) {
		return 0
	}
	byTempo, next := s.outlet.goes(now.Add(lead))
	if byTempo == 0 {
		if !next.IsZero() {
			next = next.Add(-lead)
			d.at(next)
		}
		d.lacks.add(wire.Cause_ALLOWANCE, next)
		d.hopeful = true
		return 0
	}
	held := max(1, a.RcptRate.Events/(heldShare*max(1, a.Connections)))
	n := min(byRate, byTempo, byBudget, held, a.RcptsPerConnection-s.rcpts, s.errorsLeft(a), workMax)
	if n = d.portion(n, s.lane, a); s.outlet.cautious {
		n = min(n, 1)
	}
	today := d.options.clock(now)
	got, wait := d.options.Sources.Claim(s.outlet.index, d.key, today, min(n, s.lane.Queued()))
	s.day = egress.DayOf(today)
	if got == 0 && n > 0 {
		d.lacks.add(wire.Cause_NO_SOURCE, now.Add(wait))
		d.at(now.Add(min(wait, asideFor)))
	}
	return got
}

// portion is how many of the n probes that a session might be given it gets: no
// more than it asks in a short while, no more than leaves as much for the other
// sessions of its lane, and no part of a transaction behind a whole one. Until
// the first answer a turn is taken for a third of opening a session.
func (d *desk) portion(n int, l *lane, a throttle.Limits) int {
	turn := d.replies.lowest
	if d.replies.samples == 0 {
		turn = d.openings.lowest / 3
	}
	length, most := workFor, a.RcptsPerTransaction
	if d.tasks.queue.Unserved() > 0 || l.Contended() {
		length, most = workShared, min(most, sharedMost)
	}
	soon := max(1, int(length/(turnsPerProbe*max(1, turn))))
	n = min(n, max(soon, most), 1+l.Queued()/min(d.worth(l.Queued(), a), max(1, a.Connections)))
	if n > a.RcptsPerTransaction {
		n -= n % a.RcptsPerTransaction
	}
	return n
}

// take pops up to n probes that are still worth asking.
func (d *desk) take(now time.Time, l *lane, n int) []*probe {
	out := make([]*probe, 0, min(n, l.Queued()))
	for len(out) < n && l.Queued() > 0 {
		p := d.pop(l)
		switch {
		case p.chunk.gone():
			p.chunk.open--
		case p.chunk.task.silent(now):
			d.shed(p.chunk.task)
			p.chunk.open--
		case d.hand(now, p):
		case d.parks(now, p):
		case !p.chunk.deadline.IsZero() && now.After(p.chunk.deadline):
			d.answer(p, verdictOf{verdict: again(smtp.ReceiverRateLimited, "expired")}, now)
		default:
			d.tasks.queue.Charge(now, d.tasks.flow(p.chunk.task))
			out = append(out, p)
		}
	}
	return out
}

// ask gives probes to a session. The first of a session need no RSET; to be sent
// as late as all others, they wait.
func (d *desk) ask(now time.Time, s *session, probes []*probe, a throttle.Limits) {
	lead, after := d.lead.known(), time.Duration(0)
	if s.rcpts == 0 {
		after = lead
	}
	d.rcpts.Begin(now.Add(lead), len(probes))
	s.outlet.rcpts.Begin(now.Add(lead), len(probes))
	s.outlet.budget.Begin(len(probes))
	s.socket.halted.Store(false)
	s.halted = false
	s.given, s.at = probes, now
	d.steps = append(d.steps, askProbes{id: s.id, after: after, probes: probes,
		perTransaction: a.RcptsPerTransaction, refusedMax: a.RefusedPerSession - s.refused,
		pipelining: a.Pipelining, depth: a.PipeliningDepth, rested: now.Sub(s.idle) > restedAfter, turn: d.turn})
}

// open dials where probes wait: first for lanes that have no session at all,
// then for those that are worth more.
func (d *desk) open(now time.Time, a throttle.Limits) {
	if ok, next := d.spendable(now); !ok {
		if d.tasks.queue.Queued() > 0 {
			d.lacks.add(wire.Cause_BUDGET, next)
		}
		d.at(next) // a session would have nothing to ask
		return
	}
	d.readmit(now)
	if d.openFirst(now, a) {
		d.openMore(now, a)
	}
	if !d.pressed {
		return
	}
	kept := d.free[:0]
	for _, s := range d.free {
		if d.yields(now, s) {
			d.quit(s)
		} else {
			kept = append(kept, s)
		}
	}
	clear(d.free[len(kept):])
	d.free = kept
	if d.small != nil && d.closing == 0 {
		d.hurry(d.small, func(s *session) bool { return d.large(s.lane) })
	}
}

// openFirst dials for the lanes that have no session, in the turn of those who wait in
// them. False means that no more can be dialled now; the lane that was to be next stays so.
func (d *desk) openFirst(now time.Time, a throttle.Limits) bool {
	for h, f := d.tasks.queue.Next(); h != nil; h, f = d.tasks.queue.Next() {
		l := d.lanes[h.Key()]
		c, o := d.next(now, l)
		if c == nil {
			if ok, until := d.idle(now, l); ok {
				d.setAside(now, l, until)
			} else if until := d.backSoon(now, l); !until.IsZero() {
				d.setAside(now, l, until)
			} else {
				d.closeLane(now, l)
			}
			continue
		}
		if n, next := d.refusalsFor(now, l, o); n <= 0 {
			d.lacks.add(wire.Cause_BUDGET, next)
			d.setAside(now, l, next)
			continue
		}
		socket := d.mayDial(now, a, l, o)
		if socket == nil {
			if d.pressed && f.Charged() < smallFlow {
				d.small = f
			}
			return false
		}
		d.dial(now, l, f, c, o, socket)
	}
	return true
}

// openMore dials for the lanes that have sessions and are worth more, one after the other.
func (d *desk) openMore(now time.Time, a throttle.Limits) {
	for i := 0; i < len(d.manned); i++ {
		l := d.manned[i]
		for l.Queued() > 0 && l.Sessions() < d.worth(l.Queued(), a) {
			c, o := d.next(now, l)
			if c == nil {
				break
			}
			if n, next := d.refusalsFor(now, l, o); n <= 0 {
				d.at(next)
				break
			}
			socket := d.mayDial(now, a, l, o)
			if socket == nil {
				d.manned = append(d.manned[i:], d.manned[:i]...) // it is the first to be looked at again
				return
			}
			d.dial(now, l, l.First(), c, o, socket)
		}
	}
}

// aside is a lane that is out of the turns for a while.
type aside struct {
	lane  *lane
	until time.Time
}

// setAside takes a lane out of the turns: it cannot have a session now, and nothing is
// wrong with its hosts.
func (d *desk) setAside(now time.Time, l *lane, until time.Time) {
	if soon := now.Add(asideFor); until.IsZero() || until.After(soon) {
		until = soon // what keeps it may change
	}
	l.SetAside()
	d.aside.Push(aside{l, until})
	d.at(until)
}

// readmit brings lanes back into the turns.
func (d *desk) readmit(now time.Time) {
	for d.aside.Len() > 0 {
		one := d.aside.Peek()
		if now.Before(one.until) {
			d.at(one.until)
			return
		}
		d.aside.Pop()
		one.lane.Readmit()
	}
}

// hurry lets one session give back what it has not asked yet, so that something of a
// verification can be asked of which nothing was: once for each.
func (d *desk) hurry(f *flow, which func(*session) bool) {
	if f.Interrupted {
		return
	}
	for _, s := range d.sessions {
		if len(s.given) > 1 && !s.closing && !s.halted && which(s) {
			f.Interrupted, s.halted = true, true
			s.socket.halted.Store(true)
			return
		}
	}
}

// interrupt hurries for a verification that comes to a lane whose sessions all work, for
// others of which enough was asked already.
func (d *desk) interrupt(f *flow, l *lane) {
	free := func(s *session) bool { return s.lane == l }
	if f.Interrupted || f.Charged() > 0 || slices.ContainsFunc(d.free, free) {
		return
	}
	d.hurry(f, func(s *session) bool {
		return s.lane == l && !slices.ContainsFunc(s.given, func(p *probe) bool {
			return d.tasks.flow(p.chunk.task).Charged() < smallFlow
		})
	})
}

// worth is how many sessions so many probes are worth: one, and more only when
// one alone would be long at it, which is known from its first answers on, and
// when the RCPT rate can feed them.
func (d *desk) worth(queued int, a throttle.Limits) int {
	turn := d.replies.lowest
	perSecond := float64(a.RcptRate.Events) / a.RcptRate.Per.Seconds()
	alone := time.Duration(queued) * turn
	if a.Pipelining { // a transaction takes a turn or two, as large as the rate lets it be
		atOnce := max(1, int(min(perSecond/ratesAtOnce, workMax)))
		alone /= time.Duration(min(a.RcptsPerTransaction, atOnce))
	}
	alone += time.Duration(queued/a.RcptsPerConnection) * 2 * d.openings.lowest // and QUIT takes its turn
	fed := perSecond * turnsPerProbe * turn.Seconds()
	return 1 + min(queued/min(probesPerSession, a.RcptsPerConnection), int(alone/worthOpening), 1+int(2*fed))
}

// mayDial gives the socket for one more session, or nil when none may be opened.
func (d *desk) mayDial(now time.Time, a throttle.Limits, l *lane, o *outlet) *socket {
	if n, next := d.dials.Ready(now); n == 0 {
		d.lacks.add(wire.Cause_CONNECTIONS, next)
		d.at(next)
		return nil
	}
	if ok, next := d.opening.may(now); !ok || !d.roomToOpen() || o.cautious && len(d.sessions) > d.closing {
		d.lacks.add(wire.Cause_CONNECTIONS, next)
		d.at(next)
		return nil
	}
	if len(d.sessions) >= a.Connections {
		d.lacks.add(wire.Cause_CONNECTIONS, time.Time{})
		d.pressed = l.Sessions() == 0
		return nil
	}
	if ok, next := d.options.Sources.Use(o.index, d.key, now); !ok { // another receiver is asked first
		d.at(next)
		return nil
	}
	if !d.options.Slots.Take() {
		d.at(now.Add(slotEvery))
		return nil
	}
	socket := d.seat.dial(d.turn, a.Connections, d.options.Slots)
	if socket == nil { // one that was here before us still has some, or the share has just changed
		d.options.Slots.Give()
		d.at(now.Add(slotEvery))
	}
	return socket
}

func (d *desk) dial(now time.Time, l *lane, f *flow, c *candidate, o *outlet, socket *socket) {
	d.dials.Begin(now, 1)
	d.opening.window.Begin(now, 1)
	d.opening.dialled(now)
	d.options.Sources.NoteDialled(o.index, d.key, now)
	d.nextID++
	s := &session{id: d.nextID, lane: l, host: c, outlet: o, tls: d.mode(now, l), socket: socket, opened: now,
		name: f, dialled: now, beside: d.openAt(c.host)}
	d.sessions[s.id] = s
	d.begun(now)
	d.occupy(l, f)
	d.steps = append(d.steps, openSession{id: s.id, source: o.Source, host: c, tls: s.tls, turn: d.turn,
		socket: socket})
}

func (d *desk) quit(s *session) {
	s.closing = true
	d.closing++
	d.vacate(s)
	d.steps = append(d.steps, quitSession{id: s.id})
}

// closeLane answers the probes of a lane whose hosts are all out of reach.
func (d *desk) closeLane(now time.Time, l *lane) {
	told, why := d.shut(now, l)
	for l.Queued() > 0 {
		p := d.pop(l)
		p.suspect = nil
		for _, one := range why {
			one.attempt.Others = one.attempt.Code != 0 // a limit; a host that is down is this address's trouble too
			p.note(one)
		}
		d.conclude(p, told, now)
	}
}

// tellAll tells every waiting probe to come back when the pause is over.
func (d *desk) tellAll(now time.Time) {
	told := d.excuse
	told.attempt.Others = true
	told.verdict.Wait = d.paused.Sub(now)
	if d.tasks.queue.Queued() == 0 {
		return
	}
	for _, l := range d.lanes {
		for l.Queued() > 0 {
			p := d.pop(l)
			p.suspect = nil
			p.note(told)
			d.answer(p, told, now)
		}
	}
}

// again is the verdict "ask again" with a reason.
func again(r smtp.Reason, rule string) verdict.Verdict {
	return verdict.Verdict{Reason: r, Blame: smtp.BlameReceiver, Action: verdict.ActRetry, Rule: rule}
}
