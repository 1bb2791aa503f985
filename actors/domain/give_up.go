package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// An address is given up, which makes it unknown as its last attempt says,
//   - GiveUpAfter after the first attempt that was made for it (outOfTime), or when its next one would be later,
//   - when the file's deadline has come (expireAll),
//   - when its receiver has given nobody a good answer for GiveUpAfter though it was asked, also when nobody
//     could ask about this address (giveUpBarren).
//
// Waiting for our own limits, for budgets and pauses uses none of that time.

// untimed reports whether an answer uses none of its address's time: others were asked, or the receiver or
// we have to rest.
func untimed(m answerOf) bool {
	if len(m.attempts) == 0 {
		return m.reason == smtp.ReceiverRateLimited || m.reason == smtp.HarvestGuard
	}
	return !slices.ContainsFunc(m.attempts, func(t evidence.Attempt) bool { return !t.Others })
}

// outOfTime reports whether an address that is asked again when it is due is given up instead. Until RCPT
// was sent for it once, that the receiver names a wait which is longer than there is time doesn't end it.
func (r *retries) outOfTime(now time.Time, p *pending, c evidence.Case) bool {
	if d := r.work.Deadline; !d.IsZero() && !r.start.Add(p.due).Before(d) {
		return true
	}
	rcpt := func(t evidence.Attempt) bool { return t.Stage == smtp.StageRcpt && !t.Others }
	if p.ordinal == controlOrdinal || c.Omitted > 0 || slices.ContainsFunc(c.Attempts, rcpt) {
		return p.due-p.since > r.options.GiveUpAfter
	}
	return r.since(now)-p.since >= r.options.GiveUpAfter
}

// expireAll ends all that is not out when the deadline has come. What waited for a time
// is what its last attempt says; for all else the receiver never let us ask in time.
// What is out comes back from there.
func (pl *planner) expireAll(now time.Time) {
	since := pl.since(now)
	pl.drainWaiting(now, true, func(p pending, c evidence.Case) {
		why := smtp.ReceiverRateLimited
		if _, asked := c.Last(); asked && p.due > since {
			why = smtp.ReasonNone
		}
		pl.controls.giveUp(now, p, c, why)
	})
	pl.controls.endDoubt(now)
	if len(pl.controls.accepted) > 0 && !pl.controls.asking && !now.Before(pl.controls.until) {
		pl.controls.giveUpAccepted(now, smtp.ReceiverRateLimited)
	}
}

// noteBarren takes from the receiver for how long its hosts gave nobody a good answer. It counts from the
// first offer of this work at most, or from the end of the last time in which our ledger stalled. What is with a
// receiver that answers nobody is taken back.
func (b *backlog) noteBarren(now time.Time, m interface {
	GetBarrenMs() int64
	GetBarrenReason() uint32
}) {
	b.retries.barren = smtp.ReasonNone
	lasting := min(wire.Until(now, m.GetBarrenMs()).Sub(now), now.Sub(b.offeredAt))
	if m.GetBarrenMs() <= 0 || lasting < b.options.GiveUpAfter {
		return
	}
	b.retries.barren = smtp.ConnectionFailed
	if n := m.GetBarrenReason(); n > 0 && n <= 255 && smtp.Reason(n).Known() {
		b.retries.barren = smtp.Reason(n)
	}
	if b.receiver.reached && len(b.chunks) > 0 {
		b.addStep(tell{&wire.Cancel{Task: b.task, GiveBack: true}})
	}
}

// whyBarren is why an address is given up whose receiver answers nobody; smtp.ReasonNone when its last attempt
// says it.
func (r *retries) whyBarren(c evidence.Case) smtp.Reason {
	if _, asked := c.Last(); asked {
		return smtp.ReasonNone
	}
	return r.barren
}

// giveUpBarren ends everything that waits for a receiver that answers nobody. What is out comes back from there.
func (pl *planner) giveUpBarren(now time.Time) {
	pl.drainWaiting(now, true, func(p pending, c evidence.Case) {
		pl.controls.giveUp(now, p, c, pl.retries.whyBarren(c))
	})
}
