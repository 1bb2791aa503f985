package scheduler

import (
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// barren measures how long a set of hosts, or a whole receiver, has given nobody a good answer though it was asked:
// from the first try after the last good answer to the newest try, without the time in which our own limits kept us
// away. Waiting addresses are given up by it, even if they couldn't be asked: see package domain.
type barren struct {
	since, last time.Time // zero: the newest try was answered well
	good        time.Time // the last good answer
	reason      smtp.Reason
	whole       *barren // that of the whole receiver, where only one address at a time is asked; nil: this is it
}

// lasting returns how long it has lasted, and why.
func (b *barren) lasting() (time.Duration, smtp.Reason) {
	own := max(0, b.last.Sub(b.since))
	if b.whole != nil {
		if whole, reason := b.whole.lasting(); whole > own {
			return whole, reason
		}
	}
	return own, b.reason
}

// note takes the result of one try begun at a time.
func (b *barren) note(begun, now time.Time, told *Judgement) {
	if b.whole != nil {
		b.whole.note(begun, now, told)
	}
	switch {
	case told.Verdict.Outcome != smtp.Undecided:
		*b = barren{good: now, whole: b.whole}
	case !told.wasAsked() || told.Attempt.Trouble == evidence.TroubleOurs:
	default:
		if b.since.IsZero() {
			b.since = later(begun, b.good)
		}
		b.last, b.reason = now, told.Verdict.Reason
	}
}

// noteReport takes the results of all that a session was given at a time.
func (b *barren) noteReport(begun, now time.Time, r *Report) {
	for i := range r.Answered {
		b.note(r.Answered[i].Sent, now, &r.Answered[i].Judgement)
	}
	if r.Failure != nil && !r.Stale {
		b.note(begun, now, r.Failure)
	}
}

// worthKeeping reports whether it should be stored for after a rest.
func (b *barren) worthKeeping(now time.Time) bool {
	return !b.since.IsZero() && now.Before(b.last.Add(throttle.LearnedFor))
}

// passBarren takes a time in which something kept the receiver from being asked. It doesn't count if that was our own
// limit or an operator. It counts, even without a try, while no session may be opened because the receiver may still
// hold old ones, and while many receivers refuse our sources.
func (qs *queues) passBarren(now time.Time, cause wire.Cause, passed time.Duration, nobody bool) {
	ours, held := false, false
	switch cause {
	case wire.Cause_NO_SOURCE:
		held = qs.paths.all.allSuspended(now, qs.options.Sources, qs.key)
		ours = !held
	case wire.Cause_PAUSED, wire.Cause_BUDGET, wire.Cause_NO_SHARE:
		ours = true
	case wire.Cause_CONNECTIONS:
		held = nobody
	}
	if !ours && !held {
		return
	}
	pass := func(b *barren) {
		switch {
		case b.since.IsZero():
		case ours:
			b.since = b.since.Add(passed)
		default:
			b.last = now
		}
	}
	pass(&qs.barren)
	for _, l := range qs.all {
		pass(&l.barren)
	}
}
