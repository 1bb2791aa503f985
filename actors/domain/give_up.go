package domain

import (
	"cmp"
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// An address is given up, and becomes unknown with the reason of its last attempt,
//   - when GiveUpAfter (6 hours: retry.give_up_after) has passed since its first attempt, or when its next attempt
//     would come later (outOfTime);
//   - at the file's deadline, 72 hours (expireAll);
//   - when its receiver was asked for GiveUpAfter and gave no address a good answer (giveUpBarren). Addresses that
//     couldn't be asked are given up too.
//
// Time spent waiting for our own limits, budgets and pauses doesn't count.

// untimed reports whether the wait after an answer doesn't count towards giving up. The wait doesn't count if the
// address wasn't asked because the receiver is paused or our source is suspended.
func untimed(m answerOf) bool {
	if len(m.attempts) == 0 {
		return m.reason == smtp.ReceiverRateLimited || m.reason == smtp.HarvestGuard
	}
	return !slices.ContainsFunc(m.attempts, func(t evidence.Attempt) bool { return !t.Others })
}

// isRcptFor reports whether an attempt sent a RCPT for the address itself.
func isRcptFor(t evidence.Attempt) bool { return t.Stage == smtp.StageRcpt && !t.Others }

// outOfTime reports whether an address must be given up now. If a RCPT was sent for it, it is given up when its next
// attempt would come too late. An address without a RCPT is given up when the time has passed.
func (r *retries) outOfTime(now time.Time, p *pending, c evidence.Case) bool {
	if d := r.work.Deadline; !d.IsZero() && !r.start.Add(p.due).Before(d) {
		return true
	}
	if p.ordinal == controlOrdinal || c.Omitted > 0 || slices.ContainsFunc(c.Attempts, isRcptFor) {
		return p.due-p.since > r.options.GiveUpAfter
	}
	return r.since(now)-p.since >= r.options.GiveUpAfter
}

// expireAll ends, at the deadline, all addresses that aren't at a receiver. A deferred address ends with the reason of
// its last attempt. For other addresses the reason is that the receiver's limits left no time. Addresses at a receiver
// end when they come back.
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

// noteBarren notes how long the receiver's hosts have given no address a good answer. Time before the first offer of
// this work, or before the end of the ledger's last stall, doesn't count. If the time is too long, noteBarren takes
// back what is at the receiver.
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

// whyBarren returns the reason for giving up an address whose receiver gives no good answers; smtp.ReasonNone: the last
// attempt has the reason.
func (r *retries) whyBarren(c evidence.Case) smtp.Reason {
	if _, asked := c.Last(); asked {
		return smtp.ReasonNone
	}
	return r.barren
}

// giveUpBarren ends all addresses that wait for a receiver that gives no good answers. Addresses at the receiver end
// when they come back.
func (pl *planner) giveUpBarren(now time.Time) {
	pl.drainWaiting(now, true, func(p pending, c evidence.Case) {
		pl.controls.giveUp(now, p, c, pl.retries.whyBarren(c))
	})
}
