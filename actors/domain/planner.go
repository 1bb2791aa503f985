package domain

import (
	"math/rand/v2"
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// planner decides what to do next for one domain. planner takes a route and results; plan returns the steps and the
// final outcomes. planner is plain Go, used only from the mailbox.
type planner struct {
	*job
	route    route    // where the addresses are asked
	retries  retries  // addresses that were answered and have no outcome
	controls controls // whether acceptances count
	backlog  backlog  // addresses that were never asked, and those at the receiver

	held     bool      // nothing may be offered
	heldAt   time.Time // the time since when nothing may be offered
	leaveBy  time.Time // when the domain is parked even if chunks are out; zero: never
	draining bool      // more may become final in the next round
}

// newPlanner makes a planner. seed makes the names of its control probes.
func newPlanner(now time.Time, o Options, w Work, seed [32]byte) *planner {
	pl := &planner{job: &job{options: o, start: now, work: w, left: len(w.Ordinals)}}
	pl.route.job = pl.job
	pl.retries = newRetries(pl.job, &pl.route)
	pl.controls = controls{job: pl.job, route: &pl.route, retries: &pl.retries,
		controlProbe: controlProbe{locals: newRandomLocals(seed), early: true}}
	pl.backlog = newBacklog(pl.job, &pl.controls, &pl.retries)
	switch {
	case w.Left != nil:
		pl.restore(now, w.Left)
	case w.Epoch > 1 || w.Tries > 0: // addresses deferred before come first, and would fail in a row
		pl.backlog.ordinals = slices.Clone(w.Ordinals)
		rand.New(rand.NewChaCha8(seed)).Shuffle(len(w.Ordinals), func(i, k int) {
			pl.backlog.ordinals[i], pl.backlog.ordinals[k] = pl.backlog.ordinals[k], pl.backlog.ordinals[i]
		})
	}
	return pl
}

// takeRoute takes the answer of DNS. No chunk is out when it comes.
func (pl *planner) takeRoute(now time.Time, r mx.Route, err error) {
	if pl.route.takeRoute(r, err) {
		pl.matchReceiver()
		pl.controls.askCluster(now)
	}
}

// matchReceiver finds the receiver of the route. If the receiver is a new one, matchReceiver leaves the old one.
func (pl *planner) matchReceiver() {
	r, before := &pl.route, pl.route.key
	if r.version, r.key = pl.options.Version(), pl.options.Match(r.Route); r.key != before {
		pl.backlog.abandonReceiver()
	}
}

// foundReceiver notes the receiver actor of a key, or that the lookup failed. After a failure it is looked up again, as
// long as the work is ours. foundReceiver reports whether the planner waits for that key; the answer for an older key
// is ignored.
func (pl *planner) foundReceiver(key string, ok bool) bool {
	r := &pl.backlog.receiver
	if key != pl.route.key || !r.reaching {
		return false
	}
	if r.reaching, r.reached = false, ok; !ok {
		r.failures++
		return true
	}
	r.credit = 1 // one chunk, until the receiver's first message
	b := &pl.backlog
	if !b.offeredAt.IsZero() { // the receiver may still have chunks that were taken back, and answers
		b.addStep(tell{&wire.Cancel{Task: b.task}})
	}
	return true
}

// takeResults takes answers. takeResults acknowledges a repeated message and ignores it.
func (pl *planner) takeResults(now time.Time, m *wire.Results) {
	if !pl.backlog.isMine(m.GetTask()) {
		return
	}
	o := pl.backlog.takeResults(now, m)
	reader := wire.NewReader(m)
	if o == nil { // the chunk was taken back when the receiver seemed dead
		for _, answer := range m.GetAnswers() {
			if outcome, _ := answer.Verdict(); outcome.Final() && pl.backlog.takeLate(now, answer.GetOrdinal()) {
				pl.takeAnswer(now, answer, reader.AttemptsOf(answer), 0)
			}
		}
		return
	}
	before := len(o.left)
	for _, answer := range m.GetAnswers() {
		switch n := answer.GetOrdinal(); {
		case !pl.backlog.takeOff(o, n):
		case !pl.leaveBy.IsZero() && len(answer.GetAttempts()) == 0: // the address comes back because we leave
			pl.backlog.putBack(n)
		default:
			pl.takeAnswer(now, answer, reader.AttemptsOf(answer), now.Sub(o.sent))
		}
	}
	if len(o.left) < before {
		pl.backlog.finishChunk(now, o)
		pl.backlog.noteBarren(now, m)
	}
}

// takeAnswer handles the answer to one probe, and how long the probe was out.
func (pl *planner) takeAnswer(now time.Time, m *wire.Answer, attempts []evidence.Attempt, out time.Duration) {
	p, c := pl.retries.takeCase(now, m.GetOrdinal())
	if len(c.Attempts) == 0 {
		c.Attempts = attempts[:0] // the kept attempts are put there
	}
	for i := range attempts {
		if !attempts[i].Reason.Known() { // written by a newer program
			attempts[i].Void = true
		}
		if attempts[i].Stage == smtp.StageRcpt && !attempts[i].Others {
			p.marks |= markAsked
		}
		c.Add(attempts[i])
	}
	c.Omitted += int(m.GetOmitted())
	c.Hosts = pl.route.hostsOf(c)
	_, reason := m.Verdict()
	say := answerOf{reason: reason, wait: m.Wait(), attempts: attempts, out: out}
	if reason == smtp.ReasonNone {
		say.reason = smtp.Protocol
	}
	switch last, asked := c.Last(); {
	case m.GetOrdinal() == controlOrdinal:
		pl.controls.takeAnswer(now, p, c, say)
	case !asked || len(attempts) == 0: // no server was asked, so this says nothing about the address
		pl.controls.askAgain(now, p, c, say)
	default:
		pl.noteAttempt(now, p, last)
		if pl.followAttempt(now, p, c, last) {
			pl.retries.stats.noteAsked(p.reason, false)
		} else {
			pl.controls.askAgain(now, p, c, say)
			if reason == smtp.Greylisted { // then both wait at the same time
				pl.controls.askControlEarly(now)
			}
		}
	}
}

// noteAttempt keeps what the newest attempt at an address shows about the receiver.
func (pl *planner) noteAttempt(now time.Time, p pending, last evidence.Attempt) {
	pl.retries.notePassed(now, p, last)
	// A harvest guard counts each refusal, even one that our rules can't read.
	if last.Stage == smtp.StageRcpt && (last.Outcome == smtp.Invalid || last.Code >= 500) {
		pl.options.Facts.Refused(pl.route.behaviourKey(last.Host), now)
	}
	pl.route.hearHost(last)
	if last.Stage == smtp.StageRcpt && last.Code/100 == 2 {
		pl.controls.witnesses.hearAccepted(p.ordinal, last)
	}
}

// followAttempt handles the newest attempt at an address. followAttempt concludes, or keeps an acceptance or a bare
// refusal until we know whether the answer counts. False: the address has to be asked again.
func (pl *planner) followAttempt(now time.Time, p pending, c evidence.Case, last evidence.Attempt) bool {
	answered := p
	answered.reason = smtp.ReasonNone // the address is no longer deferred
	switch {
	case last.Outcome == smtp.Invalid && last.Bare:
		pl.controls.doubtRefusal(now, answered, c)
	case last.Outcome == smtp.Valid:
		pl.controls.takeAcceptance(now, answered, c)
	case last.Outcome == smtp.CatchAll && pl.controls.settleByBehaviour(now, p, c, c.Behaviour):
	default:
		return pl.conclude(now, p.ordinal, c)
	}
	return true
}

// plan returns what to do now, the final outcomes, and when to call it again.
func (pl *planner) plan(now time.Time) ([]step, []Final, time.Time) {
	if pl.route.key != "" && pl.options.Version() != pl.route.version {
		pl.matchReceiver() // a receiver that has work of ours sends a pulse each second, so this is soon after a change
	}
	pl.backlog.checkSilence(now)
	if k := &pl.controls; k.isRecalling() && !now.Before(k.recallBy) {
		k.recallOver(now)
	}
	switch d := pl.work.Deadline; {
	case pl.route.closed != smtp.ReasonNone:
		pl.closeAll(now)
	case !d.IsZero() && !now.Before(d):
		pl.expireAll(now)
	case pl.route.silent:
		pl.deferAll(now)
	}
	if pl.retries.barren != smtp.ReasonNone && !pl.isCut() {
		pl.giveUpBarren(now)
	}
	if pl.route.isPaused(now) {
		pl.controls.voidAccepted(now)
		pl.backlog.recallChunks()
	}
	pl.controls.weighAccepted(now, pl.backlog.isBusy(now, pl.options.Facts.Hour.Of(canaryAfter)))
	pl.controls.weighDoubted(now, pl.backlog.isBusy(now, canarySoon))
	pl.advance(now)
	pl.draining = pl.isCut() && pl.left > 0
	steps := pl.steps
	pl.steps = nil
	return steps, pl.takeFinals(), pl.wakeAt(now)
}

// closeAll makes every open address invalid, because DNS says that the domain takes no mail.
func (pl *planner) closeAll(now time.Time) {
	pl.controls.deferWeighed()
	pl.drainWaiting(now, true, func(p pending, c evidence.Case) {
		if p.ordinal != controlOrdinal {
			c.NoRoute = pl.route.closed
			pl.conclude(now, p.ordinal, c)
		}
	})
}

// deferAll defers every address that could be offered now, because there is no route. Later rounds defer the other
// addresses.
func (pl *planner) deferAll(now time.Time) {
	pl.route.silent = !pl.drainWaiting(now, false, func(p pending, c evidence.Case) {
		pl.controls.askAgain(now, p, c, answerOf{reason: smtp.DNSFailed})
	})
}

// drainWaiting ends addresses that aren't at the receiver, the due ones or all, until finalsMax are final. drainWaiting
// reports whether no addresses are left.
func (pl *planner) drainWaiting(now time.Time, all bool, do func(pending, evidence.Case)) bool {
	for !pl.isCut() {
		ordinal, ok := pl.backlog.takeNext(now, false)
		if !ok && (pl.retries.hasDue(now) || all && len(pl.retries.deferred) > 0) {
			ordinal, ok = pl.retries.popDue(), true
		}
		if !ok {
			return true
		}
		do(pl.retries.takeCase(now, ordinal))
	}
	return false
}

// advance takes the next step for the addresses that are ready.
func (pl *planner) advance(now time.Time) {
	r := &pl.backlog.receiver
	switch out := len(pl.backlog.chunks) > 0 || r.reaching; {
	case !pl.backlog.hasWaiting(now) || pl.held || pl.isCut(),
		pl.route.asked || pl.route.silent || pl.route.isPaused(now):
		return
	case pl.route.hosts == nil || now.After(pl.route.Expires) && !out:
		pl.route.asked = true
		pl.addStep(findRoute{})
		return
	case !r.reached && !r.reaching:
		pl.matchReceiver()
	}
	pl.backlog.offerMore(now, pl.route.hosts)
}

// wakeAt returns when to call plan again if nothing happens.
func (pl *planner) wakeAt(now time.Time) time.Time {
	if pl.draining {
		return now.Add(drainPause)
	}
	at := earliest(pl.work.Deadline, pl.controls.recallBy, pl.controls.nextControl(),
		after(now, pl.route.pausedUntil()), pl.controls.witnesses.nextDoubt(now))
	if !pl.retries.hasDue(now) { // a due address waits for a message
		at = earliest(at, pl.retries.nextDue())
	}
	if len(pl.backlog.chunks) > 0 {
		at = earliest(at, now.Add(time.Second))
	}
	if pl.backlog.crowded {
		at = earliest(at, now.Add(crowdedPause))
	}
	return at
}

// quietUntil returns until when there is nothing to do; the zero time: there is something to do.
func (pl *planner) quietUntil(now time.Time) time.Time {
	if pl.route.asked || pl.draining {
		return time.Time{}
	}
	if pause := pl.route.pausedUntil(); pause.After(now) {
		return pause
	}
	until, busy := pl.backlog.quietUntil(now)
	if busy {
		return time.Time{}
	}
	return earliest(pl.controls.nextControl(), pl.controls.witnesses.nextDoubt(now), until)
}

// holdWork takes addresses back from receivers and offers nothing more, or resumes. The time while work is held doesn't
// count towards giving up.
func (pl *planner) holdWork(now time.Time, on bool) {
	switch {
	case on && !pl.held:
		pl.heldAt = now
	case pl.held && !on:
		pl.retries.extendWaits(now, now.Sub(pl.heldAt))
		if !pl.backlog.offeredAt.IsZero() {
			pl.backlog.offeredAt = now
		}
	}
	if pl.held = on; on {
		pl.backlog.recallChunks()
	}
}

// endWork gives back the domain's part of the node's bounds, because the work is over.
func (pl *planner) endWork() {
	pl.retries.log.close()
	for len(pl.backlog.chunks) > 0 {
		pl.backlog.closeChunk(pl.backlog.chunks[0])
	}
}
