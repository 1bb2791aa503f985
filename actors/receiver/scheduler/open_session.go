package scheduler

import (
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// One more session is opened for a queue if all of this holds. The conditions are checked in this order:
//   - the receiver isn't paused or drained and one of our sources may be used (Scheduler.Plan); refusals are left
//     (mayBeRefused);
//   - the queue has no session; or it has fewer than its work is worth (sessionsWorth); or all its sessions are held up
//     (allHeldUp);
//   - one of its hosts can be tried now (nextCandidate), and refusals are left for it (refusalsFor);
//   - the connection rate, the learned opening rate and the number of sessions allow it; no more sessions are being
//     opened than ever succeeded at once; and its source doesn't ask one address at a time in another session
//     (decideOpen);
//   - its source isn't being tested by another receiver (Sources.Use);
//   - the node has a slot for its workspace, and the cluster has one for the receiver (claimSlot, takeSlot).

const (
	// probesPerSession is how many queued probes justify one more session. Opening one costs about as many round trips as
	// four probes.
	probesPerSession = 16

	// worthOpening is how much work for one session justifies another, at a round trip of turnShort. If round trips are
	// ten times slower, a tenth of the work is enough. If round trips are faster, the processor is the limit and
	// worthShort applies: sessions that the processor can't serve doubled a node's memory for a million addresses.
	worthOpening = time.Second
	worthShort   = 10 * time.Second
	turnShort    = 2 * time.Millisecond

	// asideFor is how long a queue that can't have a session is skipped if no end is known. By then windows of a second
	// are open again.
	asideFor = time.Second

	slotEvery = 500 * time.Millisecond // pause before the next try to get a slot of the node

	// downMost is the longest wait between two tries at a host that can't be reached.
	downMost = time.Minute

	// downAfter failed tries in a row, which take two minutes, return the addresses that wait for a host.
	downAfter = 7

	// lately: sessions dialled within this time count as opened together. Most receivers count by the second.
	lately = time.Second

	// blockedAfter: a receiver may refuse sessions without saying why. Up to this long after its last good answer, there
	// may be too many sessions. After that time the receiver has blocked us.
	blockedAfter = time.Minute

	// relapseWithin: an outage this soon after another counts as caused by our rate. Guess.
	relapseWithin = 30 * time.Second
)

// openSessions dials if probes wait: first for queues without a session, then for queues that deserve more.
func (ss *sessions) openSessions(v *View) {
	now := v.now
	if ok, next := ss.paths.mayBeRefused(now); !ok {
		if ss.wakeAt(next); ss.fair.Queued() > 0 { // a session for other addresses would have nothing to do
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

// openFirst dials for the queues without a session, in turn. False: nothing more can be dialled now, and the next queue
// keeps its turn.
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
			ss.queues.setAside(now, l, now.Add(slotEvery)) // flows with fewer sessions may wait in other queues
			continue
		}
		slot := ss.takeSlot(v, f, c, o)
		if slot == nil {
			return false
		}
		ss.dialHost(now, l, f, c, o, slot)
	}
	return true
}

// openMore dials for the queues that deserve more sessions than they have, in turn.
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
				slot = ss.takeSlot(v, f, c, o)
			}
			if slot == nil {
				ss.served = append(ss.served[i:], ss.served[:i]...) // the queue keeps its turn
				return
			}
			ss.dialHost(now, l, f, c, o, slot)
		}
	}
}

// allHeldUp reports whether all sessions of a queue are held up. If some sessions aren't, allHeldUp returns when all
// will be; zero: a session is free.
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
	if !ok { // another receiver tests the source first
		ss.wakeAt(next)
	}
	return ok
}

// sessionsWorth returns how many sessions a number of addresses justifies. The result is above one only if a single
// session would take long, by the answers so far, and the RCPT rate is enough for more sessions.
func (v *View) sessionsWorth(left int) int {
	if v.busy {
		return 1
	}
	most := left / min(probesPerSession, v.limits.RcptsPerConnection)
	if v.held > 0 {
		fed := v.limits.RcptRate.PerSecond() * v.held.Seconds()
		return 1 + min(most, int(time.Duration(left)*v.held/worthShort), int(2*fed))
	}
	alone := time.Duration(float64(left) * v.turns * float64(v.turn))
	alone += time.Duration(left/v.limits.RcptsPerConnection) * 2 * v.opening // opening and QUIT of each session
	fed := v.limits.RcptRate.PerSecond() * turnsPerProbe * v.turn.Seconds()
	worth := worthShort
	if v.turn >= turnShort {
		worth = time.Duration(float64(worthOpening) * float64(turnShort) / float64(v.turn))
	}
	return 1 + min(most, int(alone/worth), 1+int(2*fed))
}

// room holds the limits on one more session for a queue.
type room struct {
	dials    int       // sessions that the connection rate allows to be dialled
	dialsAt  time.Time // when the rate allows more, if dials is 0
	opens    bool      // the learned opening rate allows one
	opensAt  time.Time
	wayward  bool // too many are being opened: see roomToOpen
	alone    bool // the source asks one address at a time, and has a session
	open     int
	unserved bool // the queue has no session
}

// Open is the decision whether to open one more session for a queue. If not, it says until when.
type Open struct {
	may     bool
	until   time.Time // zero: until a session has ended
	pressed bool      // an open session must make room
}

func decideOpen(v *View, r *room) Open {
	switch {
	case r.dials == 0:
		return Open{until: r.dialsAt}
	case !r.opens, r.wayward, r.alone:
		return Open{until: r.opensAt}
	case r.open >= v.limits.Connections:
		return Open{pressed: r.unserved}
	}
	return Open{may: true}
}

// openings learns how many sessions may be opened in a second, and how many may be open. Used only from the mailbox.
type openings struct {
	*env
	allowance *allowance

	rate   *throttle.OpeningRate
	window *throttle.Window // Window that keeps to the rate
	recent []time.Time      // dial times of the newest
	borne  int              // dial times of the newest sessions
	room   int              // sessions that may be dialled at once: one more than ever succeeded

	holdUntil time.Time // no session opens before this time; set when one is refused while others are served
	heldAt    time.Time
	held      int // how often holdUntil was set in a row

	failedAt   time.Time // since when no session could be opened; zero: sessions open
	lastFailed time.Time // when the newest one could not
	judged     bool      // the cause of the failure was judged
	upAt       time.Time // when a session last opened after such a time
	relapses   int
}

func (op *openings) beginSearch(now time.Time) {
	a := op.allowance
	b := a.rateBounds(op.options.Allow(op.key))
	b.Ceiling = a.limits.ConnectionRate
	op.rate = throttle.NewOpeningRate(b, now)
	op.window = throttle.NewWindow(a.limits.ConnectionRate, now)
}

func (op *openings) forgetSearch(now time.Time) {
	*op = openings{env: op.env, allowance: op.allowance}
	op.beginSearch(now)
}

func (op *openings) keepRate(b throttle.RateBounds, whole, ours throttle.Rate, now time.Time) {
	b.Ceiling = whole
	op.rate.Set(b, now)
	if op.rate.Limits(now) {
		ours, _ = op.rate.Permits()
	}
	op.window.Set(ours)
}

// mayOpen reports whether one more session may be opened, and if not, when.
func (op *openings) mayOpen(now time.Time) (bool, time.Time) {
	if now.Before(op.holdUntil) {
		return false, op.holdUntil
	}
	if !op.rate.Limits(now) {
		return true, time.Time{}
	}
	if _, until := op.rate.Permits(); now.Before(until) {
		return false, until
	}
	n, next := op.window.Ready(now)
	return n > 0, next
}

// isWell reports whether more sessions may be tried: no opening has failed since the last success. A failure is
// forgotten after a minute in which other sessions are served.
func (op *openings) isWell(now time.Time, count func(time.Time) (ready, opening int)) bool {
	if !op.failedAt.IsZero() && now.Sub(op.failedAt) >= throttle.CapacityHold {
		if ready, _ := count(now); ready > 0 {
			op.failedAt = time.Time{}
		}
	}
	return op.failedAt.IsZero()
}

// roomToOpen reports whether one more session may be dialled. The number dialled at once is at most the number that is
// open, was open before, or succeeded at once before. So few sessions meet a limit.
func (op *openings) roomToOpen(ready, opening int) bool {
	return opening < max(1, ready, op.borne-ready, op.room)
}

// claimSlot takes a slot of the node for a flow. If its workspace has all that it may have, another flow of the same
// queue gets the slot, because a session serves all flows. claimSlot returns that flow; nil: no flow may have one more
// session now.
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

// takeSlot returns a connection slot for one more session, after claimSlot; nil: no slot is free.
func (ss *sessions) takeSlot(v *View, f *flow, c *candidate, o *egressPath) *registry.ConnSlot {
	slot := ss.allowance.handle.Dial(ss.allowance.version, v.limits.Connections, f.Workspace(), ss.options.Slots,
		registry.Line{Source: o.Addr, Host: c.at, Now: v.now})
	if slot == nil { // silent sessions or an earlier actor have them, or the share has changed
		_, until := ss.allowance.handle.Silent()
		ss.blocks.add(wire.Cause_CONNECTIONS, until)
		ss.options.Slots.Give(f.Workspace())
		ss.wakeAt(v.now.Add(slotEvery))
	}
	return slot
}

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

func (op *openings) noteDialled(now time.Time) {
	kept := op.recent[:0]
	for _, t := range op.recent {
		if now.Sub(t) < 2*lately {
			kept = append(kept, t)
		}
	}
	op.recent = append(kept, now)
}

// dialledLately returns how many other sessions were dialled in the second before a session.
func (op *openings) dialledLately(dialled time.Time) int {
	n := 0
	for _, t := range op.recent {
		if t.Before(dialled) && dialled.Sub(t) <= lately {
			n++
		}
	}
	return n
}

func (op *openings) wasOpened(now time.Time, s *session, n, opening int) {
	op.rate.Opened(s.dialled, now)
	op.held, op.holdUntil = 0, time.Time{}
	if opening >= op.room { // room was used, so one more may be tried
		op.room = opening + 1
	}
	op.borne = max(op.borne, n+1)
	if !op.failedAt.IsZero() && s.dialled.After(op.failedAt) {
		// Perhaps none was tried since the newest failure, so the time until now may be far too long.
		lasted := min(now.Sub(op.failedAt), 2*op.lastFailed.Sub(op.failedAt))
		op.rate.Cost(lasted, now)
		s.path.pace.Cost(op.failedAt, lasted, now)
		op.allowance.learned.Connections.Cost(lasted, now)
		op.failedAt, op.upAt = time.Time{}, now
	}
	if s.host.last.Attempt.Stage <= smtp.StageTLS { // sessions can be opened, so later failures have another cause
		s.host.failures = 0
	}
}

// notOpened handles a session that could not be opened, because its host is down, or because we open too many or too
// fast. open is how many sessions its host serves; held is how many the receiver held (countHeld). False: it failed for
// another reason.
func (op *openings) notOpened(now time.Time, s *session, judged Judgement, open, held int) bool {
	n := max(s.beside, open)
	op.room = 1
	if !comeLater(&judged, s.queue.barren.whole.good, now, open) {
		op.borne = open // the next session is tried alone
		return false
	}
	before := op.dialledLately(s.dialled)
	first := op.failedAt.IsZero() // failures right after the first say nothing new
	op.lastFailed = now
	sent, _, since := s.path.pace.LastBad()
	slowed := !since.IsZero() && since.Before(s.dialled) && now.Sub(sent) < throttle.PenaltyWithin // one cause at a time
	if first {
		op.failedAt, op.judged = now, false
		if !slowed && !s.path.pace.Alone() && op.rate.Refused(s.dialled, now, max(n, held)) {
			s.path.pace.OnOtherLimit(now)
			first, op.judged = false, true
		}
	}
	if n > 0 && !s.path.pace.Alone() {
		// Of several that are refused at once, each one shows a lower limit.
		crowded := !slowed && (first || s.dialled.Before(op.failedAt))
		if crowded {
			op.noteCrowded(now, s, judged, max(n, held))
		}
		if open > 0 {
			if !crowded {
				op.holdOff(now, s.dialled)
			}
			return true
		}
	}
	if s.host.failures == 0 && s.host.served && !s.path.pace.Alone() && before >= 2 &&
		now.Sub(op.upAt) < relapseWithin {
		op.rate.TooFast(s.dialled, now)
	}
	switch {
	case s.host.failures > 0:
	case op.judged:
	case judged.Attempt.Code == 0:
		op.judged = true
		op.noteOutage(now, s)
	case !s.path.pace.Alone(): // the receiver has just deferred an address
		op.judged = true
		op.turnedAway(now, s)
	}
	s.host.avoid(now, judged, op.downFor(s.host.failures))
	return true
}

// comeLater reports whether a session couldn't be opened for now, for a reason without a rule of its own:
//   - the host wasn't reached, or it greeted with 4xx and named no time;
//   - the host said 5xx while it serves other sessions;
//   - it said 5xx about our rate, and the receiver has served us before;
//   - it said 5xx for no known reason, less than blockedAfter after it last served us.
func comeLater(judged *Judgement, served, now time.Time, open int) bool {
	a, v := &judged.Attempt, &judged.Verdict
	switch {
	case a.Stage > smtp.StageGreeting, v.Named:
		return false
	case a.Code/100 == 5:
		return open > 0 || !served.IsZero() && (rateLimited(*v) || v.Unread() && now.Sub(served) < blockedAfter)
	case v.Wait > 0:
		return false
	}
	switch v.Action {
	case verdict.ActNextMX, verdict.ActRetry, verdict.ActGreylist:
		return true
	case verdict.ActSlow, verdict.ActPause:
		return a.Code != 0
	}
	return false
}

// holdOff delays the next opening while other sessions are served: 1, 2, 4 … 60 s. Sessions dialled before the refusal
// don't lengthen the delay.
func (op *openings) holdOff(now, dialled time.Time) {
	if dialled.Before(op.heldAt) {
		return
	}
	op.heldAt, op.holdUntil = now, now.Add(op.downFor(op.held))
	op.held++
}

// noteCrowded handles a session that couldn't be opened while other sessions are served. There are too many sessions,
// or they were opened too fast. If more sessions were open before, they were opened too fast.
func (op *openings) noteCrowded(now time.Time, s *session, judged Judgement, n int) {
	s.path.pace.OnOtherLimit(now)
	s.host.last = judged
	if n < op.borne && op.dialledLately(s.dialled) > 0 {
		op.rate.TooFast(s.dialled, now)
		return
	}
	op.borne = min(op.borne, n)
	op.allowance.learned.Connections.Tighten(op.allowance.ofWhole(n), now)
}

// noteOutage distinguishes an outage from opening too fast. Connections that fail because a host goes down say nothing
// about the rate. A failure that comes again soon, or while a higher rate is tried, isn't taken for an outage.
func (op *openings) noteOutage(now time.Time, s *session) {
	o := s.path
	if op.relapses++; now.Sub(op.upAt) > relapseWithin {
		op.relapses = 0
	}
	if op.relapses > 0 || !o.pace.Proven(now) {
		op.turnedAway(now, s)
		return
	}
	o.pace.Outage(now)
}

// turnedAway slows down if a receiver refuses a session just after it deferred an address. Such a refusal is a penalty.
// The rate was too high or, if few addresses were answered, sessions were opened too fast.
func (op *openings) turnedAway(now time.Time, s *session) {
	sent, through, since := s.path.pace.LastBad()
	switch {
	case since.IsZero() || now.Sub(sent) >= throttle.PenaltyWithin:
	case op.dialledLately(s.dialled) > through:
		op.rate.TooFast(s.dialled, now)
	default:
		s.path.pace.OnSessionsRefused(now)
	}
}

// closeQueue answers the probes of a queue that has no host to dial.
func (ss *sessions) closeQueue(now time.Time, l *hostQueue) {
	judged, why := ss.paths.hostsUnavailable(now, l.route)
	for l.Queued() > 0 {
		p := ss.queues.popProbe(l)
		p.recheck = nil
		for _, one := range why {
			one.Attempt.Others = one.Attempt.Code != 0 // a refusal was of others; a host that is down concerns this address too
			p.note(one)
		}
		ss.queues.concludeProbe(p, judged, now)
	}
}

// backSoon returns when a queue without a usable host can be asked again, if its probes may wait for that; zero: the
// probes are returned. The probes are also returned if none of our sources can ever ask.
func (ss *sessions) backSoon(now time.Time, l *hostQueue) (soonest time.Time) {
	for _, c := range l.candidates {
		if now.Before(c.until) && ss.opening.isDown(c.failures) {
			return time.Time{}
		}
		_, until, temporary := ss.paths.hostUnavailable(now, l.route, c)
		if r := ss.paths.all.suspendedAt(now, l.route, c); r != nil && !now.Before(c.until) &&
			until.Sub(now) > ss.unreportedFor(r) {
			return time.Time{}
		}
		if !temporary {
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

// isDown reports whether the addresses that wait for a host are returned after a number of failures: downAfter, or
// fewer if the configured waits are shorter.
func (op *openings) isDown(failures int) bool {
	if failures <= 1 || failures >= downAfter {
		return failures > 1
	}
	tried := time.Second<<(failures-1) - time.Second // time since the first failure
	return op.options.Stretched(tried) > op.firstWait()
}
