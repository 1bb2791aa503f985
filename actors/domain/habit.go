package domain

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// accept files an address that was accepted, until it is known what that is worth.
func (a *agenda) accept(now time.Time, p pending, c evidence.Case) {
	a.archive.keep(&p, c)
	a.controls.accepted = append(a.controls.accepted, p)
}

// askCluster has it found out what other nodes know of the domain, while its route is: what is accepted
// waits for that before the receiver is asked.
func (a *agenda) askCluster(now time.Time) {
	if _, known := a.habit(now).CatchAll(); known || a.controls.recalled || !a.options.Facts.Shared() {
		return
	}
	a.controls.recalled, a.controls.recallBy = true, now.Add(recallWithin)
	a.steps = append(a.steps, recall{})
}

// pop takes one of the addresses that were accepted.
func (a *agenda) pop(list *[]pending) (pending, evidence.Case) {
	n := len(*list) - 1
	p := (*list)[n]
	if *list = (*list)[:n]; n == 0 {
		*list = nil
	}
	return p, a.archive.take(&p)
}

// habit is what is known of the domain now, with the control probes of this run.
//
// That a real address was refused as one that does not exist is no part of it: some
// receivers refuse by pattern, or from a list of names that once were abused, and
// accept everything else. Only control probes count.
func (a *agenda) habit(now time.Time) evidence.Habit {
	h := a.options.Facts.Habit(a.work.Domain, now)
	h.Controls = a.controls.notes
	return h
}

// believes says whether the worth of an acceptance is known. Behind many refusals it
// is not: some guards accept everything from then on, and so silence who asks. A
// control probe that is refused behind the acceptance proves that none was at work,
// for guards do not tire within minutes.
func (a *agenda) believes(h evidence.Habit, now time.Time) bool {
	catchAll, known := h.CatchAll()
	return known && (catchAll || !a.options.Facts.Suspect(a.work.Domain, now))
}

// weigh goes on with what was accepted: it is believed as far as the domain's habit is
// known, or a control probe is asked, or it is given up.
func (a *agenda) weigh(now time.Time) {
	if len(a.controls.accepted)+len(a.controls.proven) == 0 || !a.controls.recallBy.IsZero() {
		return
	}
	h := a.habit(now)
	if a.believes(h, now) {
		a.controls.proven = append(a.controls.proven, a.controls.accepted...)
		a.controls.accepted, a.controls.canaryBy, a.controls.canaryFrom = nil, time.Time{}, time.Time{}
	}
	for len(a.controls.proven) > 0 && !a.cut() {
		p, c := a.pop(&a.controls.proven)
		if c.Habit = h; !a.conclude(now, p.ordinal, c) { // what was known is over
			a.accept(now, p, c)
			break
		}
	}
	_, known := h.CatchAll()
	a.setCanary(now, known)
	switch {
	case len(a.controls.accepted) == 0:
	case a.controls.inDoubt(now):
		for len(a.controls.accepted) > 0 && !a.cut() {
			p, c := a.pop(&a.controls.accepted)
			c.Habit = h
			a.giveUp(now, p, c, a.controls.doubt)
		}
	case known && now.Before(a.controls.canaryBy) && a.busy(now):
	default:
		a.control(now)
	}
}

// setCanary decides when a control probe is asked for what is accepted at a domain that tells mailboxes apart.
func (a *agenda) setCanary(now time.Time, known bool) {
	if !known || len(a.controls.accepted) == 0 || a.controls.asking {
		return
	}
	if a.controls.canaryFrom.IsZero() {
		a.controls.canaryFrom = now
		a.controls.canaryBy = now.Add(a.options.Facts.Hour.Of(canaryAfter))
	}
	switch n := len(a.controls.accepted); {
	case n >= canaryMost:
		a.controls.canaryBy = now
	case n >= canaryFew:
		a.controls.canaryBy = earlier(a.controls.canaryBy, later(now, a.controls.canaryFrom.Add(canarySoon)))
	}
}

// needsControl says whether something waits for a control probe, or a witness.
func (a *agenda) needsControl() bool {
	return len(a.controls.accepted) > 0 || a.controls.witness && len(a.witnesses.doubted) > 0
}

// weighed is how many addresses wait to be believed.
func (a *agenda) weighed() int {
	return len(a.controls.accepted) + len(a.controls.proven) + len(a.witnesses.doubted)
}

// busy says whether there are other addresses to be asked, or that are.
func (a *agenda) busy(now time.Time) bool {
	for _, s := range a.shards {
		if len(s.chunks) > 0 || s.waiting(a.since(now)) {
			return true
		}
	}
	return false
}

// prove notes that a control probe was refused at a time: what was accepted before,
// was by an honest receiver.
func (a *agenda) prove(at time.Time) {
	rest := a.controls.accepted[:0]
	for _, p := range a.controls.accepted {
		if a.archive.time(p).After(at) {
			rest = append(rest, p)
		} else {
			a.controls.proven = append(a.controls.proven, p)
		}
	}
	a.controls.accepted, a.controls.canaryBy, a.controls.canaryFrom = rest, time.Time{}, time.Time{}
}

// guarded: a mailbox that nobody has was accepted behind many refusals, so a guard is
// at work that accepts everything in silence.
func (a *agenda) guarded(now time.Time) {
	until := now.Add(a.options.Facts.Hour.Of(guardFor))
	a.options.Facts.Guard(a.work.Domain, until)
	a.steps = append(a.steps, guardSeen{until})
}

// rest, while a guard is at work that this or another actor of the node saw, takes
// back what is out, and makes void what was accepted since the last good
// control probe: it is asked again when the guard has had time to forget us.
func (a *agenda) rest(now time.Time) {
	wait := a.options.Facts.Rest(a.work.Domain).Sub(now)
	accepted := a.controls.accepted
	a.controls.accepted = nil
	for _, p := range accepted {
		c := a.archive.take(&p)
		for i := range c.Attempts {
			if c.Attempts[i].Outcome == smtp.Valid {
				c.Attempts[i].Void = true
			}
		}
		a.again(now, a.shardOf(p.ordinal), p, c, answerOf{reason: smtp.HarvestGuard, wait: wait})
	}
	for _, s := range a.shards {
		a.recall(s)
	}
}
