package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
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
	excuse   Judgement // what probes are told while paused
}

// throttled follows a word about haste that was said of no address, as to MAIL. The whole receiver rests when a time was named.
func (pe *penalties) throttled(now time.Time, s *session, told Judgement) {
	pe.dirty = true
	if told.Verdict.Wait > 0 && told.Verdict.Reason != smtp.Greylisted { // which waits for its address
		pe.pauseReceiver(now, told)
		return
	}
	e := s.path.pace.Bad(throttle.Try{Sent: s.sent(), Result: throttle.PutOff, Kind: words(told.Attempt)}, now)
	if e == throttle.Unchanged {
		return
	}
	pe.halt(Halt{path: s.path})
	pe.record(now, s.path.pace.Explain(now).Why)
}

// forgetPause ends the rest of the receiver, and forgets those before it.
func (pe *penalties) forgetPause() {
	pe.paused, pe.pausedAt, pe.pauses, pe.excuse = time.Time{}, time.Time{}, 0, Judgement{}
}

// downFor is how long a host is left alone after so many tries that failed.
func (pe *penalties) downFor(failures int) time.Duration {
	wait := min(downMost, time.Second<<min(failures, 10))
	return pe.options.Stretched(wait + pe.jitter(wait/10))
}

// avoidHost does not dial an address for a while. What fails during that while, as
// sessions that were open beside the first that failed, does not prolong it.
func (pe *penalties) avoidHost(now time.Time, c *candidate, told Judgement, wait time.Duration) {
	c.last = told
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(wait)
	c.failures++
}

// pauseReceiver rests the whole receiver; each pause in a row is longer.
func (pe *penalties) pauseReceiver(now time.Time, told Judgement) {
	resting := now.Before(pe.paused)
	until := now.Add(pe.penaltyWait(told.Verdict, pe.pauses))
	if resting && (told.Verdict.Wait == 0 || !until.After(pe.paused)) {
		return // said by several sessions at once
	}
	pe.paused = until
	if !resting {
		pe.pausedAt = now
		pe.pauses++
	}
	pe.halt(Halt{})
	told = withCause(told)
	told.Verdict.Outcome, told.Verdict.Action = smtp.Undecided, verdict.ActRetry
	pe.excuse = told
	pe.options.Metrics.pauses.Inc()
	pe.options.Log.Warn("receiver rested", "receiver", pe.key, "stage", told.Attempt.Stage.String(),
		"code", told.Attempt.Code, "enhanced", told.Attempt.Enhanced.String(), "reason",
		told.Verdict.Reason.String(), "until", pe.paused)
}

// refuseSource follows a refusal of a source, whatever the address, by one host, before
// any RCPT. When no other host of the queue can be asked from it the source is
// rested at this receiver.
func (pe *penalties) refuseSource(now time.Time, s *session, told Judgement) {
	told = withCause(told)
	pe.avoidHost(now, s.host, told, pe.penaltyWait(told.Verdict, s.host.failures))
	for _, c := range s.queue.candidates {
		if !now.Before(c.until) && s.path.Reaches(c.at) {
			return
		}
	}
	pe.suspendSource(now, s.queue, s.path, told)
}

// suspendSource keeps a source away from the hosts of a queue for hours, and from the whole
// receiver when one queue after the other refuses it. The next source takes over,
// with sessions and a harm budget of its own.
func (pe *penalties) suspendSource(now time.Time, l *hostQueue, o *egressPath, told Judgement) {
	if l.suspensionOf(now, o) != nil {
		return // said by several sessions at once
	}
	told.Verdict.Outcome, told.Verdict.Action = smtp.Undecided, verdict.ActRetry
	r := l.refusalOf(o)
	first, most := pe.restFirst(), pe.options.restHour().Of(suspendMost)
	r.extend(now, told, first, most)
	for _, c := range l.candidates { // another source may be taken where this one was not
		if c.last.Verdict.Action == verdict.ActOtherSource {
			c.until, c.failures = now, 0
		}
	}
	o.refusing[l.Key()] = struct{}{}
	everywhere := len(o.refusing) >= queuesInRow
	if everywhere {
		o.extend(now, told, first, most)
		clear(o.refusing)
	}
	where := Halt{path: o, queue: l}
	if everywhere {
		where.queue = nil
	}
	pe.halt(where)
	pe.dirty = true
	if everywhere || len(pe.queues.all) == 1 {
		pe.paths.blameSource(now, o, told)
	}
	pe.options.Metrics.sourcesRested.Inc()
	pe.options.Log.Warn("source rested at a receiver", "receiver", pe.key, "source", o.name, "stage",
		told.Attempt.Stage.String(), "code", told.Attempt.Code, "enhanced", told.Attempt.Enhanced.String(),
		"reason", told.Verdict.Reason.String(), "rule", told.Verdict.Rule, "whole", everywhere, "until", r.until)
}

// tellWaiting tells every waiting probe to come back when the pause is over.
func (pe *penalties) tellWaiting(now time.Time) {
	told := pe.excuse
	told.Attempt.Others = true
	told.Verdict.Wait = pe.paused.Sub(now)
	if pe.fair.Queued() == 0 {
		return
	}
	for _, l := range pe.queues.all {
		for l.Queued() > 0 {
			p := pe.queues.popProbe(l)
			p.recheck = nil
			p.note(told)
			pe.inbox.answerProbe(p, told, now)
		}
	}
}

// consequenceOf is until when a firing keeps us away; zero: it does not.
func (pe *penalties) consequenceOf(now time.Time, f *firing) time.Time {
	until := f.path.until
	if r := f.queue.refusals[f.path]; r != nil {
		until = later(until, r.until)
	}
	_, rests := f.path.pace.Permits(now)
	until = later(later(until, rests), pe.paused)
	if !until.After(now) {
		return time.Time{}
	}
	return until
}
