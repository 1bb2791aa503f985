package domain

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// pending is what is kept of one address from its first answer to its outcome. There
// may be as many as a file has rows: 40 bytes each, and 16 for each attempt, which
// the attempt log holds. Its times count from the start of the planner.
type pending struct {
	since   time.Duration // the first answer, from which the time to give up counts
	due     time.Duration // the next attempt
	grey    time.Duration // greylisted for the first time, at the source that from names
	ordinal uint32
	newest  uint32      // note of the newest attempt; 0: there is none
	omitted uint16      // attempts that are not kept
	from    uint16      // number of a source; 0: not greylisted
	reason  smtp.Reason // why it was put off last
	waits   uint8       // how many of the configured waits are used up, at most waitsMax
	kept    uint8       // notes
	marks   uint8
}

// waitsMax is where waits are not counted any more: no configuration has as many.
const waitsMax = 1<<8 - 1

// Bits of pending.marks.
const (
	markNamed = 1 << iota // the receiver named the wait
	markEarly             // asked again before the configured wait was over
	markHeld              // waited for longer than it had to, because our ledger stalled
	markAsked             // a RCPT was sent for it
)

// begin is the record of an address that is answered for the first time, or the one
// that was kept of it, which is taken out of the history.
func (pl *planner) begin(now time.Time, ordinal uint32) pending {
	s := &pl.backlog
	p, before := s.history[ordinal]
	delete(s.history, ordinal)
	if !before {
		p = pending{ordinal: ordinal}
	}
	if !before || ordinal == controlOrdinal && p.reason == smtp.ReasonNone {
		p.since = pl.since(now)
	}
	return p
}

// conclude gives an address its outcome, if its case is closed. It is the only place
// where a Final is made, and verdict.Conclude the only one where an outcome is.
func (pl *planner) conclude(now time.Time, ordinal uint32, c evidence.Case) bool {
	outcome, reason := verdict.Conclude(c)
	if !outcome.Final() {
		return false
	}
	pl.left--
	pl.finals = append(pl.finals, Final{Ordinal: ordinal, Outcome: outcome, Reason: reason,
		At: caseTime(now, c), Case: c})
	return true
}

// caseTime is the time of the last evidence of a case: of the last attempt, unless
// DNS had the last word.
func caseTime(now time.Time, c evidence.Case) time.Time {
	if n := len(c.Attempts); n > 0 && c.NoRoute == smtp.ReasonNone && !c.Attempts[n-1].At.IsZero() {
		return c.Attempts[n-1].At
	}
	return now
}

// cut says whether so much has become final in this turn that the rest waits for the
// next: cases are large, and the parent has to keep up.
func (pl *planner) cut() bool { return len(pl.finals) >= finalsMax }

// drain takes what is not out, as far as it is due or all, until finalsMax are final. It
// reports whether there was nothing left.
func (pl *planner) drain(now time.Time, all bool, do func(pending, evidence.Case)) bool {
	s := &pl.backlog
	for !pl.cut() {
		ordinal, ok := s.take(pl.since(now), false)
		if !ok {
			ordinal, ok = s.take(pl.since(now), true)
		}
		if !ok && all && len(s.deferred) > 0 {
			ordinal, ok = s.pop(), true
		}
		if !ok {
			return true
		}
		p := pl.begin(now, ordinal)
		do(p, pl.retries.log.take(&p))
	}
	return false
}

// closeAll makes everything that is left invalid: DNS says that the domain takes no
// mail, also not for an address that was accepted before.
func (pl *planner) closeAll(now time.Time) {
	pl.controls.end()
	pl.controls.accepted, pl.controls.proven = append(append(pl.controls.accepted, pl.controls.proven...), pl.witnesses.doubted...), nil
	pl.witnesses.doubted = nil
	for len(pl.controls.accepted) > 0 && !pl.cut() {
		p, c := pl.pop(&pl.controls.accepted)
		c.NoRoute = pl.route.closed
		pl.conclude(now, p.ordinal, c)
	}
	pl.drain(now, true, func(p pending, c evidence.Case) {
		if p.ordinal != controlOrdinal {
			c.NoRoute = pl.route.closed
			pl.conclude(now, p.ordinal, c)
		}
	})
}

// putOff makes every address that could be offered now come later: there is no route.
// It goes on in later turns until all are put off.
func (pl *planner) putOff(now time.Time) {
	pl.route.silent = !pl.drain(now, false, func(p pending, c evidence.Case) {
		pl.again(now, p, c, answerOf{reason: smtp.DNSFailed})
	})
}
