package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// An address is given up, which makes it unknown as its last attempt says,
//   - GiveUpAfter after the first attempt that was made for it (again), or when its next one would be later,
//   - when the file's deadline has come (expire),
//   - when its receiver has given nobody a good answer for GiveUpAfter though it was asked, also when nobody
//     could ask about this address (giveUpBarren).
//
// Waiting for our own limits, for budgets and pauses uses none of that time.

// giveUp ends an address that nobody can find out about: its case is closed as it is.
// why is smtp.ReasonNone when the last attempt says it.
func (pl *planner) giveUp(now time.Time, p pending, c evidence.Case, why smtp.Reason) {
	last, asked := c.Last()
	switch {
	case why == smtp.DNSFailed:
		c.NoRoute = why
	case !asked || why != last.Reason:
		c.Why = why
	}
	c.GaveUp = true
	pl.conclude(now, p.ordinal, c)
}

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
func (pl *planner) outOfTime(now time.Time, p *pending, c evidence.Case) bool {
	if d := pl.work.Deadline; !d.IsZero() && !pl.start.Add(p.due).Before(d) {
		return true
	}
	rcpt := func(t evidence.Attempt) bool { return t.Stage == smtp.StageRcpt && !t.Others }
	if p.ordinal == controlOrdinal || c.Omitted > 0 || slices.ContainsFunc(c.Attempts, rcpt) {
		return p.due-p.since > pl.options.GiveUpAfter
	}
	return pl.since(now)-p.since >= pl.options.GiveUpAfter
}

// noteBarren takes from the receiver for how long its hosts gave nobody a good answer. It counts from the
// first offer of this work at most, or from the end of the last time in which our ledger stalled. What is with a receiver that answers nobody is taken back.
func (pl *planner) noteBarren(now time.Time, m interface {
	GetBarrenMs() int64
	GetBarrenReason() uint32
}) {
	s := &pl.backlog
	s.barren = smtp.ReasonNone
	lasting := min(wire.Until(now, m.GetBarrenMs()).Sub(now), now.Sub(pl.offeredAt))
	if m.GetBarrenMs() <= 0 || lasting < pl.options.GiveUpAfter {
		return
	}
	s.barren = smtp.ConnectionFailed
	if n := m.GetBarrenReason(); n > 0 && n <= 255 && smtp.Reason(n).Known() {
		s.barren = smtp.Reason(n)
	}
	if s.reached && len(s.chunks) > 0 {
		pl.steps = append(pl.steps, tell{&wire.Cancel{Task: s.task, GiveBack: true}})
	}
}

// giveUpBarren ends everything that waits for a receiver that answers nobody. What is out comes back from there.
func (pl *planner) giveUpBarren(now time.Time) {
	pl.drain(now, true, func(p pending, c evidence.Case) { pl.giveUpAt(now, p, c) })
}

// giveUpAt gives up an address of a receiver that answers nobody.
func (pl *planner) giveUpAt(now time.Time, p pending, c evidence.Case) {
	why := pl.backlog.barren
	if _, asked := c.Last(); asked {
		why = smtp.ReasonNone
	}
	pl.giveUpOne(now, p, c, why)
}

// giveUpOne gives up an address, or what rests on the control probe that it is.
func (pl *planner) giveUpOne(now time.Time, p pending, c evidence.Case, why smtp.Reason) {
	if p.ordinal != controlOrdinal {
		pl.giveUp(now, p, c, why)
		return
	}
	if last, asked := c.Last(); asked && why == smtp.ReasonNone {
		why = last.Reason
	}
	pl.uncontrolled(now, why)
}

// expire ends all that is not out when the deadline has come. What waited for a time
// is what its last attempt says; for all else the receiver never let us ask in time.
// What is out comes back from there.
func (pl *planner) expire(now time.Time) {
	since := pl.since(now)
	pl.drain(now, true, func(p pending, c evidence.Case) {
		why := smtp.ReceiverRateLimited
		if _, asked := c.Last(); asked && p.due > since {
			why = smtp.ReasonNone
		}
		pl.giveUpOne(now, p, c, why)
	})
	pl.endDoubt(now)
	if len(pl.controls.accepted) > 0 && !pl.controls.asking && !pl.controls.inDoubt(now) {
		pl.uncontrolled(now, smtp.ReceiverRateLimited)
	}
}
