package receiver

import (
	"rollcall/smtp"
	"rollcall/smtp/verdict"
	"time"
)

// penalties are what keeps us away from the receiver, from one of its hosts, or one of our
// sources from it, for a while.
type penalties struct {
	*env
	allowance *allowance
	inbox     *inbox
	pool      *pool
	paths     *paths
	queues    *queues

	paused   time.Time // nothing is asked before
	pausedAt time.Time // since when
	pauses   int       // in a row, without an answer about an address between them
	excuse   verdictOf // what probes are told while paused
}

// tooFast follows a word about haste, about what was sent at a time. The source goes
// slower, and rests for some seconds. The whole receiver rests when a time was named, when
// the verdict is to pause, and when short rests did not help; then those who wait are told.
// Soon says whether the probe can be asked again here within a short while.
func (pe *penalties) tooFast(now time.Time, o *outlet, told verdictOf, sent time.Time) (soon bool) {
	pe.dirty = true
	if o.tempo.OnThrottled(sent, now, words(told.attempt)) {
		e := o.tempo.Explain(now)
		pe.options.Log.Info("receiver wants less", "receiver", pe.key, "source", o.name, "rate", e.Rate, "why", e.Why)
	}
	rest := o.tempo.Explain(now).Until.Sub(now)
	switch {
	case told.verdict.Wait > 0 && told.verdict.Reason != smtp.Greylisted: // which waits for its address
		pe.pause(now, told)
		return false
	case rest > shortRest:
		told.verdict.Wait = rest
		pe.pause(now, told)
		return false
	}
	pe.pool.halt(func(s *session) bool { return s.outlet == o })
	return true
}

// rested tells the tempo of every source that the receiver rests: after that nothing goes
// at the full rate at once.
func (pe *penalties) rested(now time.Time) {
	for _, o := range pe.paths.outlets {
		o.tempo.Rested(pe.paused, now)
	}
}

// downFor is how long a host is left alone after so many tries that failed.
func (pe *penalties) downFor(failures int) time.Duration {
	wait := min(downMost, time.Second<<min(failures, 10))
	return pe.options.waits(wait + time.Duration(pe.rand.Int64N(int64(wait)/10)))
}

// avoid does not dial an address for a while. What fails during that while, as
// sessions that were open beside the first that failed, does not prolong it.
func (pe *penalties) avoid(now time.Time, c *candidate, told verdictOf, wait time.Duration) {
	c.last = told
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(wait)
	c.failures++
}

// pause rests the whole receiver; each pause in a row is longer.
func (pe *penalties) pause(now time.Time, told verdictOf) {
	resting := now.Before(pe.paused)
	until := now.Add(pe.allowance.wait(told.verdict, pe.pauses))
	if resting && (told.verdict.Wait == 0 || !until.After(pe.paused)) {
		return // said by several sessions at once
	}
	pe.paused = until
	if !resting {
		pe.pausedAt = now
		pe.pauses++
	}
	pe.pool.halt(func(*session) bool { return true })
	pe.rested(now)
	told.verdict.Outcome, told.verdict.Action = smtp.Undecided, verdict.ActRetry
	pe.excuse = told
	pe.options.Metrics.pauses.Inc()
	pe.options.Log.Warn("receiver rested", "receiver", pe.key, "stage", told.attempt.Stage.String(),
		"code", told.attempt.Code, "enhanced", told.attempt.Enhanced.String(), "reason",
		told.verdict.Reason.String(), "until", pe.paused)
}

// refused follows a refusal of a source, whatever the address, by one host, before
// any RCPT. When no other host of the lane can be asked from it the source is
// rested at this receiver.
func (pe *penalties) refused(now time.Time, s *session, told verdictOf) {
	pe.avoid(now, s.host, told, pe.allowance.wait(told.verdict, s.host.failures))
	for _, c := range s.lane.candidates {
		if !now.Before(c.until) && s.outlet.Reaches(c.at) {
			return
		}
	}
	pe.rest(now, s.lane, s.outlet, told)
}

// rest keeps a source away from the hosts of a lane for hours, and from the whole
// receiver when one lane after the other refuses it. The next source takes over,
// with sessions and a harm budget of its own.
func (pe *penalties) rest(now time.Time, l *lane, o *outlet, told verdictOf) {
	if l.away(now, o) != nil {
		return // said by several sessions at once
	}
	told.verdict.Outcome, told.verdict.Action = smtp.Undecided, verdict.ActRetry
	r := l.against(o)
	r.add(now, told, pe.options.restHour())
	for _, c := range l.candidates { // another source may be taken where this one was not
		if c.last.verdict.Action == verdict.ActOtherSource {
			c.until, c.failures = now, 0
		}
	}
	o.refusing[l.Key()] = struct{}{}
	everywhere := len(o.refusing) >= lanesInRow
	if everywhere {
		o.add(now, told, pe.options.restHour())
		clear(o.refusing)
	}
	pe.pool.halt(func(s *session) bool { return s.outlet == o && (everywhere || s.lane == l) })
	pe.dirty = true
	if everywhere || len(pe.queues.lanes) == 1 {
		pe.paths.blame(now, o, told)
	}
	pe.options.Metrics.sourcesRested.Inc()
	pe.options.Log.Warn("source rested at a receiver", "receiver", pe.key, "source", o.name, "stage",
		told.attempt.Stage.String(), "code", told.attempt.Code, "enhanced", told.attempt.Enhanced.String(),
		"reason", told.verdict.Reason.String(), "rule", told.verdict.Rule, "whole", everywhere, "until", r.until)
}

// tellAll tells every waiting probe to come back when the pause is over.
func (pe *penalties) tellAll(now time.Time) {
	told := pe.excuse
	told.attempt.Others = true
	told.verdict.Wait = pe.paused.Sub(now)
	if pe.inbox.tasks.queue.Queued() == 0 {
		return
	}
	for _, l := range pe.queues.lanes {
		for l.Queued() > 0 {
			p := pe.queues.pop(l)
			p.suspect = nil
			p.note(told)
			pe.inbox.answer(p, told, now)
		}
	}
}

// consequence is until when a firing keeps us away; zero: it does not.
func (pe *penalties) consequence(now time.Time, f *firing) time.Time {
	until := f.outlet.until
	if r := f.lane.refusals[f.outlet]; r != nil {
		until = later(until, r.until)
	}
	_, rests := f.outlet.tempo.Permits(now)
	until = later(later(until, rests), pe.paused)
	if !until.After(now) {
		return time.Time{}
	}
	return until
}
