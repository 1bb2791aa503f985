package receiver

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// triesMax is how many sessions may end under one probe before it is told
	// to come back later: it may be the one that ends them.
	triesMax = 3

	// brokenFor is the same for a host that has served us, when one connection to it
	// breaks: if only some of them do, all addresses would wait for minutes each time.
	// Guess.
	brokenFor = 2 * time.Second
)

// verdictOf is an attempt and what the rules make of it.
type verdictOf struct {
	verdict verdict.Verdict
	attempt evidence.Attempt // its zero value: nothing was asked
}

// asked says whether there was an attempt.
func (v *verdictOf) asked() bool { return v.attempt != (evidence.Attempt{}) }

// permanent says whether the receiver answered with a 5xx.
func (v *verdictOf) permanent() bool { return v.attempt.Code/100 == 5 }

// accepted says whether the receiver answered with a 2xx.
func (v *verdictOf) accepted() bool { return v.attempt.Code/100 == 2 }

// judge makes an attempt of a raw answer and judges it.
func (o *Options) judge(r evidence.Raw) verdictOf {
	told := verdictOf{attempt: evidence.Note(r)}
	told.verdict = o.Rules.Decide(&told.attempt)
	if !told.verdict.Named {
		told.verdict.Wait = o.lasts(told.verdict.Wait)
	}
	return told
}

// answered is one probe that a session has dealt with, and what came of it.
type answered struct {
	probe *probe
	told  verdictOf // with code 0 when it could not be asked
	sent  time.Time
	at    time.Time
	nth   int // RCPT of its transaction, from 1
}

// report is what comes back from a session that was given probes.
type report struct {
	id       int
	answered []answered
	rest     []*probe   // not asked, or asked without a usable answer
	onWire   int        // of rest, how many were on the wire when the session stopped
	refused  int        // 5xx replies, those to rest among them
	failure  *verdictOf // why the session ended; nil while it goes on
	cut      bool       // the receiver ended it: 421 or a lost connection
	stale    bool       // it was found closed when it should have been used again
	poisoned bool       // answers from here on would be void
}

// opened notes that a session is ready, or why it is not.
func (d *desk) opened(now time.Time, id int, failed *verdictOf) {
	s := d.sessions[id]
	if s == nil {
		return
	}
	if failed != nil {
		d.dials.Done(now, 1)
		d.opening.window.Done(now, 1)
		d.lose(s)
		d.unheard(now, s, failed)
		if failed.attempt.Code != 0 {
			d.options.Sources.NoteReached(s.outlet.index, d.key, now)
		}
		d.trouble(now, s, *failed)
		return
	}
	d.options.Sources.NoteReached(s.outlet.index, d.key, now)
	seen := d.openings.seen(s.opened, now)
	d.dials.Done(seen, 1)
	d.opening.window.Done(seen, 1)
	d.wasOpened(now, s)
	s.ready, s.opened, s.idle = true, now, now
	d.free = append(d.free, s)
}

// worked takes the answers of a session.
func (d *desk) worked(now time.Time, r report) {
	s := d.sessions[r.id]
	if s == nil {
		return
	}
	s.given = nil
	d.poison(now, s, r)
	d.seen(now, s, &r)
	d.settle(now, s, r)
	d.requeue(now, s, r)
	if r.failure == nil && !r.stale {
		s.idle = now
		d.free = append(d.free, s)
		return
	}
	d.lose(s)
	d.ended(now, s, r)
}

// closed frees the place of a session that has ended, or was given up before it began.
func (d *desk) closed(now time.Time, id int) {
	s := d.sessions[id]
	if s == nil {
		return
	}
	if !s.ready {
		d.dials.Done(now, 1)
		d.opening.window.Done(now, 1)
	}
	d.lose(s)
}

// crashed takes back what a session was doing that ended by a fault of ours.
func (d *desk) crashed(now time.Time, id int) {
	s := d.sessions[id]
	if s == nil {
		return
	}
	told := d.options.judge(evidence.Raw{At: now, Stage: s.stage(), Host: s.host.host, Err: smtp.ErrClosed})
	switch {
	case s.closing:
		d.lose(s)
	case !s.ready:
		d.opened(now, id, &told)
	default:
		if len(s.given) == 0 {
			d.free = slices.DeleteFunc(d.free, func(f *session) bool { return f == s })
		}
		d.worked(now, report{id: id, rest: s.given, onWire: len(s.given), failure: &told})
	}
}

func (d *desk) lose(s *session) {
	delete(d.sessions, s.id)
	if s.closing {
		d.closing--
	} else {
		d.vacate(s)
	}
	d.steps = append(d.steps, dropSession{id: s.id})
}

// whole is what n, seen under our share, means for the receiver as a whole: what is
// learned is shared out again.
func (d *desk) whole(n int) int {
	if d.share.none() {
		return n
	}
	k := int64(d.share.k)
	return int((int64(n)*int64(d.share.n) + k - 1) / k) // rounded up: our part of it is n again, not 0
}

// ended learns from the way in which a session ended.
func (d *desk) ended(now time.Time, s *session, r report) {
	d.dirty = true
	switch {
	case r.stale: // closed for lack of use: nothing learned
	case r.poisoned && !d.guardAt(now, s): // one mailbox has said so
	case r.poisoned:
		d.learned.refused.tighten(s.refused-1, now)
		d.pause(now, *r.failure)
	case r.cut && s.told > 0 && r.failure.verdict.Action == verdict.ActVoid: // 421, too many errors
		d.learned.refused.tighten(s.refused, now)
	case r.cut && r.failure.attempt.Stage >= smtp.StageRcpt: // whoever was asked is suspected
		if s.told > 0 {
			d.learned.sessionEnded(s.told, s.refused, now)
		}
	default:
		d.trouble(now, s, *r.failure)
	}
}

// settle books what was asked and hands out the verdicts.
func (d *desk) settle(now time.Time, s *session, r report) {
	fresh, asked, refused, faults := s.rcpts == 0, 0, 0, 0
	s.agreed = d.agreesOnLength(s, &r)
	for _, a := range r.answered {
		if a.told.attempt.Code == 0 { // cannot be asked at this host: nothing was sent
			d.undone(s, 1)
			s.outlet.budget.Undo(1)
			d.options.Sources.Return(s.outlet.index, d.key, s.day, 1)
			continue
		}
		if asked++; asked == 1 && !fresh {
			d.lead.learn(a.sent.Sub(s.at))
		}
		d.slowed(now, s, a, refused)
		if !a.told.accepted() && a.told.verdict.Reason != smtp.Greylisted {
			faults++
		}
		d.done(s, d.replies.seen(a.sent, a.at), 1)
		d.heard(now, s, &a)
		switch {
		case a.told.permanent():
			refused++
			s.outlet.budget.Refused(a.at)
			d.chargeRefusal(now, s, a.probe)
		case a.told.accepted():
			s.outlet.budget.Accepted(a.at)
		default:
			s.outlet.budget.Undo(1)
		}
		if a.told.attempt.Code != 421 {
			s.told++
			if a.told.verdict.Reason == smtp.Greylisted {
				s.greyed++
			}
			d.learned.went(s.told, now)
			s.host.failures, s.host.served = 0, true
		}
	}
	unheard := min(max(0, r.refused-refused), len(r.rest)) // refused, though nobody looked
	for range unheard {
		s.outlet.budget.Refused(now)
	}
	s.outlet.budget.Undo(len(r.rest) - unheard)
	d.dirty = d.dirty || refused+unheard > 0
	d.done(s, now, r.onWire)
	d.undone(s, len(r.rest)-r.onWire)
	d.options.Sources.Return(s.outlet.index, d.key, s.day, len(r.rest)-r.onWire)
	s.errors += faults
	s.rcpts += asked + r.onWire
	s.refused += refused + unheard
	for _, a := range r.answered {
		d.judge(now, s, a)
	}
}

// judge follows the verdict on one probe.
func (d *desk) judge(now time.Time, s *session, a answered) {
	if !s.void.IsZero() && a.at.After(s.void) && a.told.attempt.Code != 0 {
		a.told.attempt.Void = true
		a.probe.note(a.told)
		d.push(s.lane, a.probe) // the receiver rests: it is told when to come back
		return
	}
	d.greylisted(s, &a)
	v := a.told.verdict
	a.probe.note(a.told)
	if v.Outcome != smtp.Undecided {
		d.pauses = 0
		d.answeredWell(now, s, &a)
		d.took(now, s)
		d.answer(a.probe, a.told, a.at)
		return
	}
	d.dirty = true
	switch v.Action {
	case verdict.ActSplit:
		if a.nth > 1 { // the only one of its transaction cannot be split: again later
			d.learned.perTransaction.tighten(a.nth-1, now)
			d.push(s.lane, a.probe)
			return
		}
	case verdict.ActNextMX:
		d.nextHosts(now, s, a)
		return
	case verdict.ActTLS:
		if s.tls != smtp.TLSRequired && d.allowance.TLS != throttle.TLSOff {
			s.lane.setMode(smtp.TLSRequired, now)
			d.push(s.lane, a.probe)
			return
		}
	case verdict.ActVoid:
		if d.guardAt(now, s) {
			d.retry(s.lane, a)
		} else {
			d.suspicious(now, s, a)
		}
		return
	default:
		switch {
		case a.told.attempt.Code == 0: // nothing was sent
		case a.told.attempt.Code == 421 && s.agreed: // sessions are so long here
			d.retry(s.lane, a)
			return
		default:
			d.suspicious(now, s, a)
			return
		}
	}
	d.answer(a.probe, a.told, a.at)
}

// nextHosts moves a probe on to the other hosts of its route. It is the domain's
// fault only when every one of them has said that it does not serve it, which
// verdict.Conclude finds.
func (d *desk) nextHosts(now time.Time, s *session, a answered) {
	p := a.probe
	p.hosts = slices.DeleteFunc(slices.Clone(p.hosts), func(h *wire.Host) bool {
		return h.GetName() == s.host.host
	})
	if reachable(p.hosts) {
		d.push(d.lane(now, p.hosts), p)
		return
	}
	d.conclude(p, a.told, a.at)
}

// conclude answers a probe that has no host left to be asked: again later, unless
// what its hosts said comes to an outcome.
func (d *desk) conclude(p *probe, told verdictOf, at time.Time) {
	if outcome, reason := verdict.Conclude(p.given()); outcome != smtp.Undecided {
		told.verdict = verdict.Verdict{Outcome: outcome, Reason: reason, Blame: smtp.BlameDomain,
			Rule: told.verdict.Rule}
	}
	d.answer(p, told, at)
}

// requeue puts back what was not asked.
func (d *desk) requeue(now time.Time, s *session, r report) {
	for i, p := range r.rest {
		switch {
		case i > 0 || i >= r.onWire || r.failure == nil || r.stale: // it is not what ended the session
			d.push(s.lane, p)
		case s.agreed || !s.void.IsZero() || r.poisoned && d.guardAt(now, s) || r.failure.attempt.Trouble == evidence.TroubleOurs:
			d.retry(s.lane, answered{probe: p, told: *r.failure, at: now})
		default:
			p.note(*r.failure)
			d.suspicious(now, s, answered{probe: p, told: *r.failure, sent: s.sent(), at: now})
		}
	}
}

// agreesOnLength reports whether the receiver ended a session after as many answers as one
// before: it is about the length of sessions, and not about who was asked last.
func (d *desk) agreesOnLength(s *session, r *report) bool {
	told := s.told
	for i := range r.answered {
		if code := r.answered[i].told.attempt.Code; code != 0 && code != 421 {
			told++
		}
	}
	return r.failure != nil && r.cut && told > 0 && told == d.learned.cut.told && told >= d.learned.longest
}

// retry puts a probe back that was on the wire when its session ended. When that
// happens again and again it comes back later: it may be what ends them.
func (d *desk) retry(l *lane, a answered) {
	a.probe.note(a.told)
	if a.probe.tries++; a.probe.tries < triesMax {
		d.push(l, a.probe)
		return
	}
	a.told.verdict.Outcome, a.told.verdict.Action = smtp.Undecided, verdict.ActRetry
	d.answer(a.probe, a.told, a.at)
}

// trouble follows a verdict that speaks of the host or of us, not of an address.
func (d *desk) trouble(now time.Time, s *session, told verdictOf) {
	d.dirty = true
	v := told.verdict
	switch {
	case !s.ready && d.notOpened(now, s, told):
	case v.Action == verdict.ActPause && hasty(v):
		d.tooFast(now, s.outlet, told, s.sent())
	case v.Action == verdict.ActPause || v.Action == verdict.ActVoid:
		d.blame(now, s.outlet, told)
		d.pause(now, told)
	case v.Action == verdict.ActOtherSource:
		d.refused(now, s, told)
	case v.Action == verdict.ActTLS && s.tls != smtp.TLSRequired && d.allowance.TLS != throttle.TLSOff:
		s.lane.setMode(smtp.TLSRequired, now)
	case told.attempt.Stage == smtp.StageTLS && s.tls == smtp.TLSOpportunistic:
		s.lane.setMode(smtp.TLSOff, now) // RFC 7435 §3: rather in clear than not at all
	case v.Action == verdict.ActSlow && s.ready && told.attempt.Stage > smtp.StageHello:
		d.tooFast(now, s.outlet, told, s.sent())
	case told.attempt.Code == 0 && s.host.served && s.host.failures == 0: // once is chance
		d.avoid(now, s.host, told, brokenFor)
	default:
		d.avoid(now, s.host, told, d.wait(v, s.host.failures))
	}
}

// avoid does not dial an address for a while. What fails during that while, as
// sessions that were open beside the first that failed, does not prolong it.
func (d *desk) avoid(now time.Time, c *candidate, told verdictOf, wait time.Duration) {
	c.last = told
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(wait)
	c.failures++
}

// pause rests the whole receiver; each pause in a row is longer.
func (d *desk) pause(now time.Time, told verdictOf) {
	resting := now.Before(d.paused)
	until := now.Add(d.wait(told.verdict, d.pauses))
	if resting && (told.verdict.Wait == 0 || !until.After(d.paused)) {
		return // said by several sessions at once
	}
	d.paused = until
	if !resting {
		d.pausedAt = now
		d.pauses++
	}
	d.halt(func(*session) bool { return true })
	d.rested(now)
	told.verdict.Outcome, told.verdict.Action = smtp.Undecided, verdict.ActRetry
	d.excuse = told
	d.options.Metrics.pauses.Inc()
	d.options.Log.Warn("receiver rested", "receiver", d.key, "stage", told.attempt.Stage.String(),
		"code", told.attempt.Code, "enhanced", told.attempt.Enhanced.String(), "reason",
		told.verdict.Reason.String(), "until", d.paused)
}

// wait is how long the nth trouble in a row keeps us away.
func (d *desk) wait(v verdict.Verdict, nth int) time.Duration {
	if v.Wait > 0 {
		return v.Wait
	}
	waits := d.waits()
	wait := waits[min(nth, len(waits)-1)]
	if v.Reason == smtp.HarvestGuard {
		wait = max(wait, d.options.lasts(harvestFor))
	}
	return wait
}

// endsBatch reports whether an answer ends what its session was given.
// One that may be about more than its address does: what comes next is to be chosen anew.
func endsBatch(told *verdictOf) bool {
	v := &told.verdict
	return stops(v.Action) || v.Outcome == smtp.Undecided && told.attempt.Code != 0
}
