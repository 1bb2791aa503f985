package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// Three things keep us from asking, each for longer when it happens in a row:
//   - the whole receiver pauses, after a reply that asks for less, or after words of a harvest guard (pauseReceiver);
//   - a source is suspended at hosts that refuse it, or at the whole receiver (suspendSource);
//   - a host isn't dialled after it failed (candidate.avoid).
//
// takeTrouble chooses among them by the verdict on how a session ended or failed to open.

// pause is a pause of the whole receiver. The zero value is no pause.
type pause struct {
	until     time.Time // nothing is asked before this time
	since     time.Time
	inRow     int       // pauses in a row, with no answer about an address in between
	judgement Judgement // the answer to probes during the pause
}

// avoid keeps a host's address from being dialled for a while. Failures in that time, for example of sessions dialled
// together, don't make it longer.
func (c *candidate) avoid(now time.Time, judged Judgement, wait time.Duration) {
	c.last = judged
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(wait)
	c.failures++
}

// pauseReceiver pauses the whole receiver. Each pause in a row is longer.
func (ps *paths) pauseReceiver(now time.Time, judged Judgement) {
	paused := now.Before(ps.receiver.until)
	until := now.Add(ps.penaltyWait(judged.Verdict, ps.receiver.inRow))
	if paused && (judged.Verdict.Wait == 0 || !until.After(ps.receiver.until)) {
		return // several sessions report the same refusal
	}
	ps.receiver.until = until
	if !paused {
		ps.receiver.since = now
		ps.receiver.inRow++
	}
	ps.halt(Halt{})
	judged = withCause(judged)
	judged.Verdict.Outcome, judged.Verdict.Action = smtp.Undecided, verdict.ActRetry
	ps.receiver.judgement = judged
	ps.options.Metrics.pauses.Inc()
	ps.options.Log.Warn("receiver paused", "receiver", ps.key, "stage", judged.Attempt.Stage.String(),
		"code", judged.Attempt.Code, "enhanced", judged.Attempt.Enhanced.String(), "reason",
		judged.Verdict.Reason.String(), "until", ps.receiver.until)
}

// throttled handles a reply that is about our rate and not about an address, such as a reply to MAIL. If the reply
// names a time, the whole receiver pauses.
func (ps *paths) throttled(now, sent time.Time, o *egressPath, judged Judgement) {
	ps.dirty = true
	if judged.Verdict.Wait > 0 && judged.Verdict.Reason != smtp.Greylisted { // greylisting delays only its address
		ps.pauseReceiver(now, judged)
		return
	}
	e := o.pace.Bad(throttle.Try{Sent: sent, Result: throttle.Deferred, Kind: kindOf(&judged.Attempt)}, now)
	if e == throttle.Unchanged {
		return
	}
	ps.halt(Halt{path: o})
	ps.noteChange(now, o.pace.Explain().Why)
}

// refuseSource handles a host's refusal of a source before any RCPT. If the source can ask no other host of the queue,
// the source is suspended.
func (ps *paths) refuseSource(now time.Time, l *route, at *candidate, o *egressPath, judged Judgement) {
	judged = withCause(judged)
	at.avoid(now, judged, ps.penaltyWait(judged.Verdict, at.failures))
	for _, c := range l.candidates {
		if !now.Before(c.until) && o.Reaches(c.at) {
			return
		}
	}
	ps.suspendSource(now, l, o, judged)
}

// suspendSource suspends a source at the hosts of a queue. Once queuesInRow queues refuse the source, it is suspended
// at the whole receiver. The next source takes over, with its own sessions and refusal budget.
func (ps *paths) suspendSource(now time.Time, l *route, o *egressPath, judged Judgement) {
	if l.suspensionOf(now, o) != nil {
		return // several sessions report the same refusal
	}
	judged.Verdict.Outcome, judged.Verdict.Action = smtp.Undecided, verdict.ActRetry
	r := l.refusalOf(o)
	first, most := ps.firstSuspension(), ps.options.suspensionHour().Of(suspendMost)
	r.extend(now, judged, first, most)
	for _, c := range l.candidates { // the hosts may accept another source
		if c.last.Verdict.Action == verdict.ActOtherSource {
			c.until, c.failures = now, 0
		}
	}
	o.refusing[l.key] = struct{}{}
	everywhere := len(o.refusing) >= queuesInRow
	if everywhere {
		o.extend(now, judged, first, most)
		clear(o.refusing)
	}
	where := Halt{path: o, route: l}
	if everywhere {
		where.route = nil
	}
	ps.halt(where)
	ps.dirty = true
	if everywhere || len(ps.routes) == 1 {
		ps.blameSource(now, o, judged)
	}
	ps.options.Metrics.sourcesSuspended.Inc()
	ps.options.Log.Warn("source suspended at a receiver", "receiver", ps.key, "source", o.name, "stage",
		judged.Attempt.Stage.String(), "code", judged.Attempt.Code, "enhanced", judged.Attempt.Enhanced.String(),
		"reason", judged.Verdict.Reason.String(), "rule", judged.Verdict.Rule, "whole", everywhere, "until", r.until)
}

// consequenceOf returns until when a firing keeps us away; zero: the firing has no such effect.
func (ps *paths) consequenceOf(now time.Time, at place) time.Time {
	until := at.path.until
	if r := at.route.refusals[at.path]; r != nil {
		until = later(until, r.until)
	}
	_, resumes := at.path.pace.Permits()
	until = later(later(until, resumes), ps.receiver.until)
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

const (
	// brokenFor is how long a host that has served us isn't dialled after one connection breaks. If only some connections
	// break, a longer wait would hold up all addresses. A server forks a process in less than two seconds.
	brokenFor = 2 * time.Second
)

// trouble is what ended a session, or kept it from opening.
type trouble struct {
	judgement Judgement
	ready     bool         // the session had been open
	heard     bool         // the session had got an answer
	tls       smtp.TLSMode // the mode in which the session was opened
	sent      time.Time    // when the presumed cause was sent
}

// takeTrouble acts on a verdict that is about the host or about us, not about an address.
func (ps *paths) takeTrouble(now time.Time, at place, t trouble) {
	ps.dirty = true
	judged, v, mayTLS := t.judgement, t.judgement.Verdict, t.tls != smtp.TLSRequired && ps.limits.TLS != throttle.TLSOff
	switch {
	case judged.NoHELO && ps.limits.TLS != throttle.TLSRequired:
		at.route.setMode(smtp.TLSOffHELO, now)
	case v.Action == verdict.ActPause && rateLimited(v):
		ps.throttled(now, t.sent, at.path, judged)
	case v.Action == verdict.ActPause || v.Action == verdict.ActVoid:
		ps.blameSource(now, at.path, judged)
		ps.pauseReceiver(now, judged)
	case v.Action == verdict.ActOtherSource:
		ps.refuseSource(now, at.route, at.host, at.path, judged)
	case v.Action == verdict.ActTLS && mayTLS:
		at.route.setMode(smtp.TLSRequired, now)
	case judged.Attempt.Stage == smtp.StageTLS && t.tls == smtp.TLSOpportunistic:
		at.route.setMode(smtp.TLSOff, now) // RFC 7435 §3: cleartext is better than nothing
	case t.ready && !t.heard && judged.Attempt.TLS && judged.Attempt.Code == 0 && t.tls == smtp.TLSOpportunistic &&
		judged.Attempt.Trouble != evidence.TroubleOurs:
		at.route.setMode(smtp.TLSOff, now) // TLS breaks right after the handshake
	case v.Action == verdict.ActSlow && t.ready && judged.Attempt.Stage > smtp.StageHello:
		ps.throttled(now, t.sent, at.path, judged)
	case judged.Attempt.Code == 0 && at.host.served && at.host.failures == 0: // a single failure may be chance
		at.host.avoid(now, judged, brokenFor)
	default:
		at.host.avoid(now, judged, ps.penaltyWait(v, at.host.failures))
	}
}

// harvestFor is how long a receiver isn't asked after its harvest guard has spoken, if it names no time. Cisco's guard
// counts by the hour.
const harvestFor = time.Hour

// penaltyWaits returns the waits of penalties that name no time.
func (e *env) penaltyWaits() []time.Duration {
	if own := e.limits.Waits.List(); len(own) > 0 {
		return own
	}
	return e.options.Waits
}

// firstWait returns the shortest configured wait before an address is asked again.
func (e *env) firstWait() time.Duration { return e.penaltyWaits()[0] }

// firstSuspension returns the length of a source's first suspension. The length is at most firstWait.
func (e *env) firstSuspension() time.Duration {
	return min(e.options.suspensionHour().Of(suspendFirst), e.firstWait())
}

// unreportedFor returns how much of a suspension may remain unreported to clients: all of a short first suspension, but
// only the end of a later one.
func (e *env) unreportedFor(r *suspension) time.Duration {
	most := min(suspendUnreported, e.firstWait()*4/3)
	if r.count > 1 {
		most /= 20
	}
	return most
}

// penaltyWait returns how long the nth trouble in a row keeps us away.
func (e *env) penaltyWait(v verdict.Verdict, nth int) time.Duration {
	if v.Wait > 0 {
		return v.Wait
	}
	waits := e.penaltyWaits()
	wait := waits[min(nth, len(waits)-1)]
	if v.Reason == smtp.HarvestGuard {
		wait = max(wait, e.options.scaleHour(harvestFor))
	}
	return wait
}

// downFor returns how long a host isn't dialled after a number of failures.
func (e *env) downFor(failures int) time.Duration {
	wait := min(downMost, time.Second<<min(failures, 10))
	return e.options.Stretched(wait + e.jitter(wait/10))
}

// sooner returns the earlier of two times. The zero time stands for none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// takeFact learns from a fact about our sources, TLS or a harvest guard.
func (ps *paths) takeFact(now time.Time, at place, f Fact) {
	switch f.what {
	case answered:
		ps.receiver.inRow = 0
		ps.noteTaken(now, at.route, at.path)
	case underTLS:
		at.route.setMode(smtp.TLSRequired, now)
	case guardWoke:
		ps.pauseReceiver(now, f.about.Judgement)
	}
}
