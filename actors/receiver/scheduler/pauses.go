package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// pause is a pause of the whole receiver. The zero value: there is none.
type pause struct {
	until     time.Time // nothing is asked before
	since     time.Time
	inRow     int       // pauses in a row without an answer about an address
	judgement Judgement // the answer to probes meanwhile
}

// avoid keeps an address from being dialled for a while. Failures in that time, such as of sessions opened beside the
// first, don't prolong it.
func (c *candidate) avoid(now time.Time, told Judgement, wait time.Duration) {
	c.last = told
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(wait)
	c.failures++
}

// pauseReceiver pauses the whole receiver; each pause in a row is longer.
func (ps *paths) pauseReceiver(now time.Time, told Judgement) {
	resting := now.Before(ps.receiver.until)
	until := now.Add(ps.penaltyWait(told.Verdict, ps.receiver.inRow))
	if resting && (told.Verdict.Wait == 0 || !until.After(ps.receiver.until)) {
		return // said by several sessions at once
	}
	ps.receiver.until = until
	if !resting {
		ps.receiver.since = now
		ps.receiver.inRow++
	}
	ps.halt(Halt{})
	told = withCause(told)
	told.Verdict.Outcome, told.Verdict.Action = smtp.Undecided, verdict.ActRetry
	ps.receiver.judgement = told
	ps.options.Metrics.pauses.Inc()
	ps.options.Log.Warn("receiver rested", "receiver", ps.key, "stage", told.Attempt.Stage.String(),
		"code", told.Attempt.Code, "enhanced", told.Attempt.Enhanced.String(), "reason",
		told.Verdict.Reason.String(), "until", ps.receiver.until)
}

// throttled takes a reply about our pace that is about no address, such as to MAIL. The whole receiver pauses if it
// named a time.
func (ps *paths) throttled(now, sent time.Time, o *egressPath, told Judgement) {
	ps.dirty = true
	if told.Verdict.Wait > 0 && told.Verdict.Reason != smtp.Greylisted { // which waits for its address
		ps.pauseReceiver(now, told)
		return
	}
	e := o.pace.Bad(throttle.Try{Sent: sent, Result: throttle.Deferred, Kind: kindOf(&told.Attempt)}, now)
	if e == throttle.Unchanged {
		return
	}
	ps.halt(Halt{path: o})
	ps.record(now, o.pace.Explain(now).Why)
}

// refuseSource takes one host's refusal of a source before any RCPT. If no other host of the queue can be asked from
// it, the source is suspended at this receiver.
func (ps *paths) refuseSource(now time.Time, l *route, at *candidate, o *egressPath, told Judgement) {
	told = withCause(told)
	at.avoid(now, told, ps.penaltyWait(told.Verdict, at.failures))
	for _, c := range l.candidates {
		if !now.Before(c.until) && o.Reaches(c.at) {
			return
		}
	}
	ps.suspendSource(now, l, o, told)
}

// suspendSource keeps a source from the hosts of a queue, and from the whole receiver when one queue after the other
// refuses it. The next source takes over, with its own sessions and refusal budget.
func (ps *paths) suspendSource(now time.Time, l *route, o *egressPath, told Judgement) {
	if l.suspensionOf(now, o) != nil {
		return // said by several sessions at once
	}
	told.Verdict.Outcome, told.Verdict.Action = smtp.Undecided, verdict.ActRetry
	r := l.refusalOf(o)
	first, most := ps.firstSuspension(), ps.options.restHour().Of(suspendMost)
	r.extend(now, told, first, most)
	for _, c := range l.candidates { // another source may be taken where this one was not
		if c.last.Verdict.Action == verdict.ActOtherSource {
			c.until, c.failures = now, 0
		}
	}
	o.refusing[l.key] = struct{}{}
	everywhere := len(o.refusing) >= queuesInRow
	if everywhere {
		o.extend(now, told, first, most)
		clear(o.refusing)
	}
	where := Halt{path: o, route: l}
	if everywhere {
		where.route = nil
	}
	ps.halt(where)
	ps.dirty = true
	if everywhere || len(ps.routes) == 1 {
		ps.blameSource(now, o, told)
	}
	ps.options.Metrics.sourcesSuspended.Inc()
	ps.options.Log.Warn("source rested at a receiver", "receiver", ps.key, "source", o.name, "stage",
		told.Attempt.Stage.String(), "code", told.Attempt.Code, "enhanced", told.Attempt.Enhanced.String(),
		"reason", told.Verdict.Reason.String(), "rule", told.Verdict.Rule, "whole", everywhere, "until", r.until)
}

// consequenceOf returns until when a firing keeps us away; zero: it doesn't.
func (ps *paths) consequenceOf(now time.Time, at place) time.Time {
	until := at.path.until
	if r := at.route.refusals[at.path]; r != nil {
		until = later(until, r.until)
	}
	_, rests := at.path.pace.Permits(now)
	until = later(later(until, rests), ps.receiver.until)
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

const (
	// brokenFor is how long a host that has served us isn't dialled after one connection breaks: if only some break,
	// all addresses would otherwise wait for minutes each time. Two seconds are more than a server needs to fork a
	// process.
	brokenFor = 2 * time.Second
)

// trouble is what ended a session or kept it from opening.
type trouble struct {
	judgement Judgement
	ready     bool         // it was open
	heard     bool         // and something was answered
	tls       smtp.TLSMode // as it was opened
	sent      time.Time    // its presumed cause
}

// takeTrouble acts on a verdict about the host or about us, not about an address.
func (ps *paths) takeTrouble(now time.Time, at place, t trouble) {
	ps.dirty = true
	told, v, mayTLS := t.judgement, t.judgement.Verdict, t.tls != smtp.TLSRequired && ps.limits.TLS != throttle.TLSOff
	switch {
	case told.NoHELO && ps.limits.TLS != throttle.TLSRequired:
		at.route.setMode(smtp.TLSOffHELO, now)
	case v.Action == verdict.ActPause && rateLimited(v):
		ps.throttled(now, t.sent, at.path, told)
	case v.Action == verdict.ActPause || v.Action == verdict.ActVoid:
		ps.blameSource(now, at.path, told)
		ps.pauseReceiver(now, told)
	case v.Action == verdict.ActOtherSource:
		ps.refuseSource(now, at.route, at.host, at.path, told)
	case v.Action == verdict.ActTLS && mayTLS:
		at.route.setMode(smtp.TLSRequired, now)
	case told.Attempt.Stage == smtp.StageTLS && t.tls == smtp.TLSOpportunistic:
		at.route.setMode(smtp.TLSOff, now) // RFC 7435 §3: rather in clear than not at all
	case t.ready && !t.heard && told.Attempt.TLS && told.Attempt.Code == 0 && t.tls == smtp.TLSOpportunistic &&
		told.Attempt.Trouble != evidence.TroubleOurs:
		at.route.setMode(smtp.TLSOff, now) // it breaks right after the handshake
	case v.Action == verdict.ActSlow && t.ready && told.Attempt.Stage > smtp.StageHello:
		ps.throttled(now, t.sent, at.path, told)
	case told.Attempt.Code == 0 && at.host.served && at.host.failures == 0: // once is chance
		at.host.avoid(now, told, brokenFor)
	default:
		at.host.avoid(now, told, ps.penaltyWait(v, at.host.failures))
	}
}

// harvestFor is how long a receiver isn't asked after its harvest guard has spoken, if it names no time: Cisco's counts
// by the hour.
const harvestFor = time.Hour

// penaltyWaits returns the waits of a penalty that names no time.
func (e *env) penaltyWaits() []time.Duration {
	if own := e.limits.Waits.List(); len(own) > 0 {
		return own
	}
	return e.options.Waits
}

// firstWait returns the shortest configured wait before an address is asked again.
func (e *env) firstWait() time.Duration { return e.penaltyWaits()[0] }

// firstSuspension returns how long the first suspension of a source lasts: no longer than firstWait.
func (e *env) firstSuspension() time.Duration {
	return min(e.options.restHour().Of(suspendFirst), e.firstWait())
}

// untoldFor returns how much of a suspension may be left without clients being told: all of the first, and only the end
// of later ones.
func (e *env) untoldFor(r *suspension) time.Duration {
	most := min(suspendUntold, e.firstWait()*4/3)
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

// downFor returns how long a host isn't dialled after so many failed tries.
func (e *env) downFor(failures int) time.Duration {
	wait := min(downMost, time.Second<<min(failures, 10))
	return e.options.Stretched(wait + e.jitter(wait/10))
}

// sooner returns the earlier of two times; zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// takeFact learns from a fact about our sources, TLS, or a trouble.
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
