package scheduler

import (
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// barren measures how long a set of hosts, or the whole receiver, has given no good answer. barren counts from the
// first try after the last good answer to the newest try. Time in which our own limits blocked us doesn't count. After
// a long time package domain gives up the waiting addresses, even unasked ones.
type barren struct {
	since, last time.Time // first and newest try since the last good answer; zero: none
	good        time.Time // the last good answer
	reason      smtp.Reason
	excused     time.Duration // time since then in which only our silent sessions kept us away
	whole       *barren       // the barren time of the whole receiver; nil: this is that time
}

// lasting returns for how long no good answer has come, and why.
func (b *barren) lasting() (time.Duration, smtp.Reason) {
	own := max(0, b.last.Sub(b.since))
	if b.whole != nil {
		if whole, reason := b.whole.lasting(); whole > own {
			return whole, reason
		}
	}
	return own, b.reason
}

// note records the result of a try that began at begun.
func (b *barren) note(begun, now time.Time, judged *Judgement) {
	if b.whole != nil {
		b.whole.note(begun, now, judged)
	}
	switch {
	case judged.Verdict.Outcome != smtp.Undecided:
		*b = barren{good: now, whole: b.whole}
	case !judged.wasAsked() || judged.Attempt.Trouble == evidence.TroubleOurs:
	default:
		if b.since.IsZero() {
			b.since = later(begun, b.good)
		}
		b.last, b.reason = now, judged.Verdict.Reason
	}
}

func (b *barren) noteReport(begun, now time.Time, r *Report) {
	for i := range r.Answered {
		b.note(r.Answered[i].Sent, now, &r.Answered[i].Judgement)
	}
	if r.Failure != nil && !r.Stale {
		b.note(begun, now, r.Failure)
	}
}

// worthKeeping reports whether the queue must be kept so that this time isn't lost.
func (b *barren) worthKeeping(now time.Time) bool {
	return !b.since.IsZero() && now.Before(b.last.Add(throttle.LearnedFor))
}

// passBarren handles a time in which a cause blocked the receiver. If our own limit or an operator was the cause, the
// time doesn't count. The time counts, even without a try, if many receivers refuse our sources, or if no session may
// be opened beside old ones. If only silent sessions stand in the way of a receiver that has answered before, as after
// a cut, smtp.Unended of it is excused: what lasts longer is no single cut.
func (qs *queues) passBarren(now time.Time, cause wire.Cause, passed time.Duration, nobody, silent bool) {
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
		case silent && !b.good.IsZero() && b.excused+passed <= smtp.Unended:
			b.since, b.excused = b.since.Add(passed), b.excused+passed
		default:
			b.last = now
		}
	}
	pass(&qs.barren)
	for _, l := range qs.all {
		pass(&l.barren)
	}
}
