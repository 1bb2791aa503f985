package receiver

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/shaping"
	"rollcall/smtp/verdict"
)

const (
	// workMax and workFor bound the probes given to a session at a time, so that
	// answers come back steadily; a whole transaction may take longer. Guess.
	workMax = 64
	workFor = time.Second

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

	restedAfter = 200 * time.Millisecond // looking costs a millisecond, a dead session a probe
	idleFor     = 2 * time.Second        // a session without work; Postfix's connection cache keeps 2 s
	holdFor     = 30 * time.Second       // with work that waits for the rate; RFC 5321 §4.5.3.2.7 lets 5 min
	sessionAge  = 5 * time.Minute        // Postfix's connection cache reuses for 300 s at most
	slotEvery   = 500 * time.Millisecond // looking again for a free slot of the node; guess
	fenceEvery  = time.Second            // looking again whether we may speak; guess
	lanesMax    = 10_000                 // beyond it lanes without work are forgotten whatever they know; guess
)

// plan decides what to do now. It returns the steps and the time to plan again
// if nothing happens before; zero: never.
func (d *desk) plan(now time.Time) ([]step, time.Time) {
	d.wake = time.Time{}
	if d.leaving {
		return d.planLeave(now)
	}
	a := d.permit(now)
	known := d.know(now, d.share)
	muted, until := d.mute(now)
	barred := shut(a) || !known || muted
	d.at(until)
	resting := now.Before(d.paused)
	if resting {
		d.tellAll(now)
		d.at(d.paused)
	}
	d.tend(now, a, resting || barred)
	if !resting && !barred {
		d.open(now, a)
	}
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
func shut(a shaping.Allowance) bool {
	return a.Connections <= 0 || a.ConnectionRate.Events <= 0 || a.RcptRate.Events <= 0
}

// permit gives what is allowed here now: our share of the allowance, less what
// was learned. Others may have used what a share grew by until just now; a Window
// that is raised, or new, bears that in mind.
func (d *desk) permit(now time.Time) shaping.Allowance {
	stand := d.seat.now.Load()
	d.turn, d.share = stand.turn, stand.part
	if d.options.Fenced() {
		d.share = part{0, 1}
		d.at(now.Add(fenceEvery))
	}
	a := d.share.of(d.learned.apply(careful(d.options.Allow(d.key)), now))
	if a != d.allowance {
		d.allowance = a
		d.dials.Set(a.ConnectionRate)
		d.rcpts.Set(a.RcptRate)
		d.setBudgets(a)
	}
	return a
}

// tend goes through the sessions that have nothing to do: it gives them probes,
// or ends them.
func (d *desk) tend(now time.Time, a shaping.Allowance, resting bool) {
	free, kept := d.free, d.free[:0]
	dry := false
	d.hopeful = false
	for _, s := range free {
		if resting || d.spent(now, s, a) || d.yields(now, s) {
			d.quit(s)
			continue
		}
		if s.lane.queued > 0 && !dry {
			n := d.mayAsk(now, s, a)
			dry = n == 0 && len(d.outlets) == 1 // the receiver's allowance: the others need not ask
			if probes := d.take(now, s.lane, n); len(probes) > 0 {
				d.ask(now, s, probes, a)
				continue
			}
		}
		patience := idleFor
		if s.lane.queued > 0 && d.hopeful {
			patience = holdFor
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
func (d *desk) spent(now time.Time, s *session, a shaping.Allowance) bool {
	return s.rcpts >= a.RcptsPerConnection || s.refused >= a.RefusedPerSession || !s.void.IsZero() ||
		s.lane.away(now, s.outlet) != nil || s.errorsLeft(a) <= 0 ||
		len(d.outlets) > 1 && d.outlet(now, s.lane, s.host.at) != s.outlet ||
		now.Sub(s.opened) > sessionAge || len(d.sessions)-d.closing > a.Connections ||
		s.lane.mode(now) == smtp.TLSRequired && s.tls != smtp.TLSRequired
}

// yields says whether a session should make room for a lane that has none.
func (d *desk) yields(now time.Time, s *session) bool {
	live := len(d.sessions) - d.closing
	if !d.pressed || d.closing >= max(1, d.order.len()-live) { // so many lanes have none, at least
		return false
	}
	return s.lane.queued == 0 || s.lane.sessions > 1 || now.Sub(s.opened) >= turnFor
}

// mayAsk is how many probes a session may be given now by every rule.
func (d *desk) mayAsk(now time.Time, s *session, a shaping.Allowance) int {
	byBudget, next := s.outlet.budget.Ready(now)
	if byBudget <= 0 {
		d.at(next)
		return 0
	}
	lead := d.lead.known()
	byRate, next := d.rcpts.Ready(now.Add(lead))
	if byRate == 0 {
		if !next.IsZero() {
			d.at(next.Add(-lead))
		}
		d.hopeful = true
		return 0
	}
	held := max(1, a.RcptRate.Events/(heldShare*max(1, a.Connections)))
	return d.portion(min(byRate, byBudget, held, a.RcptsPerConnection-s.rcpts, s.errorsLeft(a), workMax), s.lane, a)
}

// portion is how many of the n probes that a session might be given it gets: no
// more than it asks in a short while, no more than leaves as much for the other
// sessions of its lane, and no part of a transaction behind a whole one. Until
// the first answer a turn is taken for a third of opening a session.
func (d *desk) portion(n int, l *lane, a shaping.Allowance) int {
	turn := d.replies.lowest
	if d.replies.samples == 0 {
		turn = d.openings.lowest / 3
	}
	soon := max(1, int(workFor/(turnsPerProbe*max(1, turn))))
	n = min(n, max(soon, a.RcptsPerTransaction), 1+l.queued/min(d.worth(l.queued, a), max(1, a.Connections)))
	if n > a.RcptsPerTransaction {
		n -= n % a.RcptsPerTransaction
	}
	return n
}

// take pops up to n probes that are still worth asking.
func (d *desk) take(now time.Time, l *lane, n int) []*probe {
	out := make([]*probe, 0, min(n, l.queued))
	for len(out) < n && l.queued > 0 {
		p := d.pop(l)
		switch {
		case p.chunk.gone():
			p.chunk.open--
		case p.chunk.task.silent(now):
			d.shed(p.chunk.task)
			p.chunk.open--
		case d.hand(now, p):
		case !p.chunk.deadline.IsZero() && now.After(p.chunk.deadline):
			d.answer(p, verdictOf{verdict: again(smtp.ReceiverRateLimited, "expired")}, now)
		default:
			out = append(out, p)
		}
	}
	return out
}

// ask gives probes to a session. The first of a session need no RSET; to be sent
// as late as all others, they wait.
func (d *desk) ask(now time.Time, s *session, probes []*probe, a shaping.Allowance) {
	lead, after := d.lead.known(), time.Duration(0)
	if s.rcpts == 0 {
		after = lead
	}
	d.rcpts.Begin(now.Add(lead), len(probes))
	s.outlet.budget.Begin(len(probes))
	s.socket.halted.Store(false)
	s.given, s.at = probes, now
	d.steps = append(d.steps, askProbes{id: s.id, after: after, probes: probes,
		perTransaction: a.RcptsPerTransaction, refusedMax: a.RefusedPerSession - s.refused,
		pipelining: a.Pipelining, rested: now.Sub(s.idle) > restedAfter, turn: d.turn})
}

// open dials where probes wait: first for lanes that have no session at all,
// then for those that are worth more.
func (d *desk) open(now time.Time, a shaping.Allowance) {
	d.pressed = false
	if ok, next := d.spendable(now); !ok {
		d.at(next) // a session would have nothing to ask
		return
	}
	first := func(l *lane) bool { return l.sessions == 0 }
	more := func(l *lane) bool { return l.sessions < d.worth(l.queued, a) }
	if d.openFor(now, a, first) {
		d.openFor(now, a, more)
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
}

// openFor dials for the lanes that want it, in turn. False means that no more
// can be dialled now; the lane that was to be next stays so.
func (d *desk) openFor(now time.Time, a shaping.Allowance, wants func(*lane) bool) bool {
	for range d.order.len() {
		l := d.order.peek()
		for l.queued > 0 && wants(l) {
			c, o := d.next(now, l)
			if c == nil {
				if l.sessions == 0 {
					d.closeLane(now, l)
				}
				break
			}
			if n, next := o.budget.Ready(now); n <= 0 {
				d.at(next)
				break
			}
			socket := d.mayDial(now, a, l, o)
			if socket == nil {
				return false
			}
			d.dial(now, l, c, o, socket)
		}
		d.order.pop()
		if l.inTurn = l.queued > 0; l.inTurn {
			d.order.push(l)
		}
	}
	return true
}

// worth is how many sessions so many probes are worth: one, and more only when
// one alone would be long at it, which is known from its first answers on, and
// when the RCPT rate can feed them.
func (d *desk) worth(queued int, a shaping.Allowance) int {
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
func (d *desk) mayDial(now time.Time, a shaping.Allowance, l *lane, o *outlet) *socket {
	if n, next := d.dials.Ready(now); n == 0 {
		d.at(next)
		return nil
	}
	if len(d.sessions) >= a.Connections {
		d.pressed = l.sessions == 0
		return nil
	}
	if ok, next := d.options.Sources.may(o.index, d.key, now, true); !ok { // another receiver is asked first
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

func (d *desk) dial(now time.Time, l *lane, c *candidate, o *outlet, socket *socket) {
	d.dials.Begin(now, 1)
	d.options.Sources.dialled(o.index, d.key, now)
	d.nextID++
	s := &session{id: d.nextID, lane: l, host: c, outlet: o, tls: l.mode(now), socket: socket, opened: now}
	d.sessions[s.id] = s
	d.begun(now)
	l.sessions++
	d.steps = append(d.steps, openSession{id: s.id, source: o.Source, host: c, tls: s.tls, turn: d.turn,
		socket: socket})
}

func (d *desk) quit(s *session) {
	s.closing = true
	d.closing++
	s.lane.sessions--
	d.steps = append(d.steps, quitSession{id: s.id})
}

// closeLane answers the probes of a lane whose hosts are all out of reach.
func (d *desk) closeLane(now time.Time, l *lane) {
	told, why := d.shut(now, l)
	for l.queued > 0 {
		p := d.pop(l)
		for _, one := range why {
			p.note(one)
		}
		d.conclude(p, told, now)
	}
}

// tellAll tells every waiting probe to come back when the pause is over.
func (d *desk) tellAll(now time.Time) {
	told := d.excuse
	told.verdict.Wait = d.paused.Sub(now)
	for d.order.len() > 0 {
		l := d.order.pop()
		for l.queued > 0 {
			p := d.pop(l)
			p.note(told)
			d.answer(p, told, now)
		}
		l.inTurn = false
	}
}

// again is the verdict "ask again" with a reason.
func again(r smtp.Reason, rule string) verdict.Verdict {
	return verdict.Verdict{Reason: r, Blame: smtp.BlameReceiver, Action: verdict.ActRetry, Rule: rule}
}
