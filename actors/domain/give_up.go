package domain

import (
	"cmp"
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// An address is given up, which makes it unknown as its last attempt says,
//   - GiveUpAfter after the first attempt that was made for it (outOfTime), or when its next one would be later,
//   - when the file's deadline has come (expireAll),
//   - when its receiver has given no address a good answer for GiveUpAfter though it was asked, even if
//     this address couldn't be asked (giveUpBarren).
//
// Time spent waiting for our own limits, budgets and pauses doesn't count.

// untimed reports whether the wait after an answer doesn't count towards giving up: the address wasn't asked, or the
// receiver is paused, or our source suspended.
func untimed(m answerOf) bool {
	if len(m.attempts) == 0 {
		return m.reason == smtp.ReceiverRateLimited || m.reason == smtp.HarvestGuard
	}
	return !slices.ContainsFunc(m.attempts, func(t evidence.Attempt) bool { return !t.Others })
}

// isRcptFor reports whether an attempt of an address got as far as its own RCPT.
func isRcptFor(t evidence.Attempt) bool { return t.Stage == smtp.StageRcpt && !t.Others }

// outOfTime reports whether an address that is asked again when it is due is given up instead. A wait that is longer
// than the time left ends it only if a RCPT was sent for it.
func (r *retries) outOfTime(now time.Time, p *pending, c evidence.Case) bool {
	if d := r.work.Deadline; !d.IsZero() && !r.start.Add(p.due).Before(d) {
		return true
	}
	if p.ordinal == controlOrdinal || c.Omitted > 0 || slices.ContainsFunc(c.Attempts, isRcptFor) {
		return p.due-p.since > r.options.GiveUpAfter
	}
	return r.since(now)-p.since >= r.options.GiveUpAfter
}

// At the deadline expireAll ends all addresses that are not at a receiver. A deferred one ends as its last attempt
// says; about the others the receiver didn't let us ask in time. Addresses at a receiver end when it returns them.
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

// noteBarren notes how long the receiver's hosts have given nobody a good answer, counted from the first offer of this
// work, or from the last stall of our ledger, at the earliest. What is out at such a receiver is taken back.
func (b *backlog) noteBarren(now time.Time, m interface {
	GetBarrenMs() int64
	GetBarrenReason() uint32
}) {
	b.retries.barren = smtp.ReasonNone
	lasting := min(wire.Until(now, m.GetBarrenMs()).Sub(now), now.Sub(b.offeredAt))
	if m.GetBarrenMs() <= 0 || lasting < b.options.GiveUpAfter {
		return
	}
	b.retries.barren = cmp.Or(wire.ReasonOf(m.GetBarrenReason()), smtp.ConnectionFailed)
	if b.receiver.reached && len(b.chunks) > 0 {
		b.addStep(tell{&wire.Cancel{Task: b.task, GiveBack: true}})
	}
}

// whyBarren is the reason to give up an address of a receiver that answers nobody; smtp.ReasonNone when its last
// attempt says it.
func (r *retries) whyBarren(c evidence.Case) smtp.Reason {
	if _, asked := c.Last(); asked {
		return smtp.ReasonNone
	}
	return r.barren
}

// giveUpBarren ends everything that waits for a receiver that answers nobody. What is out ends when the receiver gives
// it back.
func (pl *planner) giveUpBarren(now time.Time) {
	pl.drainWaiting(now, true, func(p pending, c evidence.Case) {
		pl.controls.giveUp(now, p, c, pl.retries.whyBarren(c))
	})
}
