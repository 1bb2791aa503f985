package scheduler

import (
	"fmt"
	"math"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

const (
	// workMax and workFor bound the probes that a session is given at a time, so that answers come steadily and sessions
	// share the last probes.
	workMax = 64
	workFor = 250 * time.Millisecond

	// heldShare: the unasked addresses of all sessions together are at most 1/heldShare of the RCPT rate. Unasked
	// addresses count as asked, so they cost at most a tenth of the rate.
	heldShare = 10

	// turnsPerProbe is how many round trips a probe needs at most: RSET, MAIL, RCPT.
	turnsPerProbe = 3

	// turnFor is how long a busy queue keeps its only session while another queue has no session. Two sessions open 24
	// times a minute at most, which the connection rate of unknown receivers permits.
	turnFor = 5 * time.Second

	checkIdleAfter = 200 * time.Millisecond // a check costs a millisecond; a dead session would cost a probe
	holdFor        = 30 * time.Second       // while work waits for the rate; RFC 5321 §4.5.3.2.7 allows 5 min
)

// View holds the values from which one plan decides.
type View struct {
	now     time.Time
	limits  throttle.Limits // what may be asked here now
	lead    time.Duration   // from giving addresses to sending their RCPTs
	turn    time.Duration   // time of the fastest reply; 0: none was timed
	expect  time.Duration   // expected time of the next reply; at first, a third of opening a session
	opening time.Duration   // time of the fastest opening of a session
	turns   float64         // round trips that an address takes
	busy    bool            // this node is overloaded

	held time.Duration // average time of an answer if longer than workFor; else 0
}

// planSessions gives addresses to free sessions and opens more sessions, as far as the limits allow.
func (ss *sessions) planSessions(v *View, mayAsk, mayOpen bool) {
	ss.blocks = blocksNow{}
	ss.tendFree(v, !mayAsk)
	ss.wakeAt(takeFromHeldUp(v, ss.all))
	ss.pressed, ss.small, ss.slotless = false, false, false
	if mayOpen {
		ss.openSessions(v)
	}
	ss.lately.note(v.now, ss.blocks)
}

// tendFree gives probes to each free session, or ends the session.
func (ss *sessions) tendFree(v *View, paused bool) {
	now := v.now
	free, kept := ss.free, ss.free[:0]
	dry := false
	ss.hopeful = false
	ss.sortFree(free)
	for _, s := range free {
		worn := s.isWorn()
		if worn && s.well > 0 {
			learnLength(ss, now, s)
		}
		if paused || worn || ss.isSpent(v, s) || ss.makesRoom(now, s) {
			ss.quitSession(s)
			continue
		}
		if s.queue.Queued() > 0 && !dry {
			n := ss.claimAddresses(v, s)
			dry = n == 0 && len(ss.paths.all) == 1 // all sessions wait for the same limit
			probes := ss.takeProbes(now, s.queue, s.path, n)
			ss.options.Sources.Return(s.path.index, ss.key, s.day, n-len(probes))
			if len(probes) > 0 {
				ss.giveProbes(v, s, probes)
				continue
			}
		}
		patience := v.limits.IdleTime
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

// isSpent reports whether a free session may not be used again.
func (ss *sessions) isSpent(v *View, s *session) bool {
	now, a := v.now, &v.limits
	return s.doomed || s.rcpts >= a.RcptsPerConnection || s.transactionsLeft() <= 0 ||
		s.refused >= a.RefusedPerSession ||
		!s.void.IsZero() || s.queue.suspensionOf(now, s.path) != nil || ss.allowance.errorsLeft(now, s, *a) <= 0 ||
		ss.pathLeft(now, s) || !reaches(a.Family, s.host.at) ||
		prefersOtherHost(ss.paths, now, s.place()) ||
		now.Sub(s.opened) > a.SessionAge || len(ss.all)-ss.closing > a.Connections ||
		ss.allowance.tlsMode(now, s.queue) == smtp.TLSRequired && s.tls != smtp.TLSRequired || s.stale()
}

// A session is worn after wornAfter bad answers in a row that may have another cause than their addresses.
const wornAfter = 3

// isWorn reports whether a session first got good answers and now gets bad ones. Another session may then do better.
// While nothing passes, good answers aren't needed: another session is tried if pauses alone didn't help.
func (s *session) isWorn() bool {
	if p := s.path.pace; p.Alone() {
		return s.worn >= wornAfter && p.Nothing().Asked() >= wornAfter
	}
	return s.well > 0 && s.worn >= wornAfter
}

// wornAgree: so many sessions that were open together and worn after the same number of answers show that their length
// is limited.
const wornAgree = 3

// wornSessions are sessions that were open together and ended worn.
type wornSessions struct {
	since time.Time // when the first of them ended
	well  int       // good answers that each of them had; 0: they differ
	n     int
	alone int // sessions in a row in which only the first address of each transaction passed
}

// learnLength learns from a worn session. If several end after the same number of answers, their length is limited. In
// that case the rate that was learned meanwhile is wrong.
func learnLength(ss *sessions, now time.Time, s *session) {
	w, l := &ss.worn, &ss.allowance.learned
	if s.taken == 1 && ss.allowance.limits.RcptsPerTransaction > 1 {
		w.alone++
	}
	if w.alone == wornAgree {
		w.alone = 0
		l.PerTransaction.Tighten(1, now)
		l.Transaction.OnSplit(1)
		beginAgain(ss, now, "only the first address of a transaction passes")
		return
	}
	if s.mixed > 0 { // some good answers followed bad ones, as at a limit of the rate
		return
	}
	if s.opened.After(w.since) {
		*w = wornSessions{since: now, well: s.well, alone: w.alone}
	}
	if w.n++; s.well != w.well {
		w.well = 0
	}
	known := l.PerSession.Holds(now)
	switch {
	case w.n == 1:
		l.SessionWorn(s.well, now)
	case w.n == wornAgree && w.well > 0:
		l.PerSession.Tighten(w.well, now)
	}
	if !known && l.PerSession.Holds(now) {
		beginAgain(ss, now, fmt.Sprintf("only %d addresses pass in a session", l.PerSession.Most))
	}
}

// doubtLength forgets what worn sessions showed if a session's first answers are bad: length isn't the reason.
func (ss *sessions) doubtLength(now time.Time, s *session) {
	if s.well == 0 && s.worn == wornAfter {
		ss.worn = wornSessions{}
		ss.allowance.learned.SessionEnded(0, 0, now)
	}
}

// beginAgain resets all rates, because something else caused the deferrals.
func beginAgain(ss *sessions, now time.Time, why string) {
	for _, o := range ss.paths.all {
		throttle.BeginAgain(o.pace, now, why+": that caused the deferrals")
	}
}

// stale reports whether a session got only deferrals and one of its addresses waits again. Some receivers greylist the
// connection, and accept the address in another connection.
func (s *session) stale() bool {
	return s.answers > 0 && s.well == 0 && s.queue.Queued() > 0 && s.queue.greyed.After(s.opened)
}

// pathLeft reports whether a session's source may no longer be used, or another source is preferred now.
func (ss *sessions) pathLeft(now time.Time, s *session) bool {
	if !ss.paths.sourceBlocked(now, s.path).Free() {
		return s.path.pause != throttle.PauseDrain
	}
	return len(ss.paths.all) > 1 && ss.paths.choosePath(now, s.queue.route, s.host.at) != s.path
}

// makesRoom reports whether a session should end because another queue has no session.
func (ss *sessions) makesRoom(now time.Time, s *session) bool {
	if !ss.pressed || ss.closing >= max(1, ss.fair.Unserved()) {
		return false
	}
	return s.queue.Queued() == 0 || s.queue.Sessions() > 1 || now.Sub(s.opened) >= turnFor ||
		ss.small && ss.closing < max(1, len(ss.all)/2) && now.Sub(s.opened) >= workFor
}

// claimAddresses books addresses on a session's source and returns how many. If the number is 0, claimAddresses notes
// what the session waits for.
func (ss *sessions) claimAddresses(v *View, s *session) int {
	c := ss.supplyOf(v, s)
	ask := decideAsk(v, &c)
	if ask.cause != wire.Cause_FREE {
		ss.waitFor(ask.cause, ask.until)
		ss.hopeful = ss.hopeful || ask.cause == wire.Cause_ALLOWANCE
	}
	if ask.n <= 0 {
		return 0
	}
	today := ss.options.ledgerTime(v.now)
	got, wait := ss.options.Sources.Claim(s.path.index, ss.key, today, min(ask.n, c.queued))
	s.day = egress.DayOf(today)
	if got == 0 {
		ss.blocks.add(wire.Cause_NO_SOURCE, v.now.Add(wait))
		ss.wakeAt(v.now.Add(min(wait, asideFor)))
	}
	return got
}

// waitFor notes why we can't ask more, and until when.
func (ss *sessions) waitFor(cause wire.Cause, until time.Time) {
	ss.blocks.add(cause, until)
	ss.wakeAt(until)
}

// supply holds the limits on how many addresses a free session is given.
type supply struct {
	budget  int          // addresses that may be refused
	rate    int          // addresses that the receiver's rate allows
	pace    int          // addresses that the source's rate allows
	next    [3]time.Time // when budget, rate or pace of 0 grows; zero: when a probe is answered
	alone   bool         // the source asks one address at a time
	asking  bool         // the source is asking one now
	session int          // addresses that the session may still ask
	queued  int          // waiting addresses
	left    int          // waiting addresses, and those still at their clients
}

// Ask is the decision how many addresses a session is given. If the number is 0, Ask says why and until when.
type Ask struct {
	n     int
	cause wire.Cause
	until time.Time // zero: until a probe is answered
}

// decideAsk decides how many addresses a session is given now.
func decideAsk(v *View, c *supply) Ask {
	switch {
	case c.budget <= 0:
		return Ask{cause: wire.Cause_BUDGET, until: c.next[0]}
	case c.rate == 0:
		return Ask{cause: wire.Cause_ALLOWANCE, until: v.givenBefore(c.next[1])}
	case c.alone && c.asking:
		return Ask{}
	case c.pace == 0:
		return Ask{cause: wire.Cause_ALLOWANCE, until: v.givenBefore(c.next[2])}
	}
	held := max(1, v.limits.RcptRate.Events/(heldShare*max(1, v.limits.Connections)))
	n := v.portionOf(min(c.rate, c.pace, c.budget, held, c.session, workMax), c)
	if c.alone {
		n = min(n, 1)
	}
	return Ask{n: n}
}

// givenBefore returns when probes must be given so that they are sent at a time. Zero stays zero.
func (v *View) givenBefore(sent time.Time) time.Time {
	if sent.IsZero() {
		return sent
	}
	return sent.Add(-v.lead)
}

// portionOf returns how many of n probes a session gets. The session gets at most what it asks in a short while, and at
// most an equal share with the other sessions of its queue. If the part is more than a transaction, it is rounded down
// to whole transactions.
func (v *View) portionOf(n int, c *supply) int {
	if v.held > 0 {
		return min(n, 1)
	}
	soon := max(1, int(float64(workFor)/(v.turns*float64(max(1, v.expect)))))
	n = min(n, soon, 1+c.queued/min(v.sessionsWorth(c.left), max(1, v.limits.Connections)))
	if whole := v.limits.RcptsPerTransaction; n > whole {
		n -= n % whole
	}
	return n
}

// supplyOf returns the limits on how many addresses a session is given.
func (ss *sessions) supplyOf(v *View, s *session) supply {
	l, a := s.queue, &v.limits
	c := supply{alone: s.path.pace.Alone(), asking: s.path.asking > 0, queued: l.Queued(), left: l.left(),
		session: min(a.RcptsPerConnection-s.rcpts, ss.allowance.errorsLeft(v.now, s, *a),
			s.transactionsLeft()*a.RcptsPerTransaction)}
	sent := v.now.Add(v.lead)
	if c.budget, c.next[0] = ss.refusalsFor(v.now, l, s.path); c.budget <= 0 {
		return c
	}
	if c.rate, c.next[1] = ss.allowance.rcpts.Ready(sent); c.rate == 0 || c.alone && c.asking {
		return c // a Window counts from the time when Ready is called
	}
	c.pace, c.next[2] = s.path.readyAt(sent)
	return c
}

// refusalsFor returns how many probes of a queue a source's refusal budget permits now. If no probe is permitted,
// refusalsFor returns when to ask again. Another queue with a session may have tenants that used fewer refusals. Such
// tenants keep their part.
func (ss *sessions) refusalsFor(now time.Time, l *hostQueue, o *egressPath) (n int, next time.Time) {
	n, next = o.refusals.Ready(now)
	weight := ss.paths.refusalWeight(o)
	if n <= 0 || weight <= 1 || l.Queued() == 0 {
		return n, next
	}
	rank := l.Rank()
	for _, s := range ss.all {
		if s.queue == l || s.path != o || s.closing || s.queue.Queued() == 0 || !rank.Ahead(s.queue.Rank(), weight) {
			continue
		}
		part := 1 - ss.fair.Fraction(l.First())
		if n -= int(math.Ceil(part * float64(o.refusals.CountAllowed()))); n <= 0 {
			return 0, now.Add(asideFor)
		}
		return n, next
	}
	return n, next
}

// takeProbes takes up to n probes from a queue, and skips dropped probes.
func (ss *sessions) takeProbes(now time.Time, l *hostQueue, o *egressPath, n int) []*Probe {
	out := make([]*Probe, 0, min(n, l.Queued()))
	for len(out) < n && l.Queued() > 0 {
		p := ss.queues.popProbe(l)
		switch {
		case p.chunk.gone():
			p.chunk.open--
		case p.chunk.task.isSilent(now):
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

// giveProbes gives probes to a session. The first probes of a session need no RSET. These first probes are delayed by
// that time, because the rate is planned with RSET.
func (ss *sessions) giveProbes(v *View, s *session, probes []*Probe) {
	now, a, lead, after := v.now, &v.limits, v.lead, time.Duration(0)
	if s.rcpts == 0 {
		after = lead
	}
	ss.allowance.rcpts.Begin(now.Add(lead), len(probes))
	s.path.rcpts.Begin(now.Add(lead), len(probes))
	s.path.refusals.Begin(len(probes))
	s.slot.Halted.Store(false)
	s.halted = false
	s.noteBatch(probes, now)
	s.heldUp = now.Add(v.patienceFor(len(probes)))
	s.grouped = a.Pipelining && s.groups && s.queue.takesGroups(now)
	transaction, group := ss.allowance.sizes(now)
	ss.steps = append(ss.steps, AskProbes{ID: s.id, After: after, Probes: probes,
		RefusedMax: a.RefusedPerSession - s.refused, Pipelining: s.grouped, Transaction: transaction, Group: group,
		WasIdle: now.Sub(s.idle) > checkIdleAfter, Version: ss.allowance.version})
}

// heldUpAfter: a session is held up if it waits longer than this, and longer than twice the expected time. Some
// receivers delay a refusal and send nothing else in that session meanwhile. heldUpAfter is four times workFor.
const heldUpAfter = time.Second

// patienceFor returns how long a session may take for n addresses before it counts as held up.
func (v *View) patienceFor(n int) time.Duration {
	return max(heldUpAfter, time.Duration(2*float64(n)*v.turns*float64(v.expect)))
}

// takeFromHeldUp makes held-up sessions return their unasked probes. takeFromHeldUp returns when the next session will
// be held up; zero: no session will be.
func takeFromHeldUp(v *View, all map[int]*session) (next time.Time) {
	for _, s := range all {
		switch {
		case len(s.given) < 2 || s.halted || v.busy:
		case s.heldUp.After(v.now):
			next = sooner(next, s.heldUp)
		default:
			s.halted = true
			s.slot.Halted.Store(true)
		}
	}
	return next
}
