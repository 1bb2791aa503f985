package domain

import (
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// accept files an address that was accepted, until it is known what that is worth. Acceptances wait for the
// control probes of one host at a time: those of another host are asked again.
func (pl *planner) accept(now time.Time, p pending, c evidence.Case) {
	last, _ := c.Last()
	if len(pl.controls.accepted) > 0 && pl.controls.host != last.Host {
		pl.disregard(now, p, c)
		return
	}
	pl.controls.host = last.Host
	pl.retries.log.keep(&p, c)
	pl.controls.accepted = append(pl.controls.accepted, p)
}

// disregard asks an address again whose acceptance counts for nothing: soon at first, then by the configured
// waits.
func (pl *planner) disregard(now time.Time, p pending, c evidence.Case) {
	wait := time.Duration(0)
	if p.waits < namedInRow {
		wait = time.Second << (3 * p.waits)
	}
	pl.disregardFor(now, p, c, wait)
}

// disregardFor is disregard with the time until the address is asked again; 0: as configured.
func (pl *planner) disregardFor(now time.Time, p pending, c evidence.Case, wait time.Duration) {
	voidAcceptances(c)
	m := answerOf{reason: smtp.BackupOnly, wait: wait}
	pl.again(now, p, c, m)
}

// voidAcceptances marks the acceptances of a case as worth nothing.
func voidAcceptances(c evidence.Case) {
	for i := range c.Attempts {
		if o := c.Attempts[i].Outcome; o == smtp.Valid || o == smtp.CatchAll && c.Attempts[i].Code/100 == 2 {
			c.Attempts[i].Void = true
		}
	}
}

// recalledHosts is of how many of a route's hosts, the preferred ones, the cluster is asked: nearly always the first
// answers. Guess.
const recalledHosts = 2

// askCluster has it found out what other nodes know of the domain's hosts: what is accepted waits for that
// before control probes are asked.
func (pl *planner) askCluster(now time.Time) {
	if _, known := pl.habit(now, pl.answering()).CatchAll(); known || pl.controls.recalled || !pl.options.Facts.Shared() {
		return
	}
	pl.controls.recalled, pl.controls.recallBy = true, now.Add(recallWithin)
	var keys []string
	for _, h := range pl.route.Hosts[:min(len(pl.route.Hosts), recalledHosts)] {
		keys = append(keys, habitKey(pl.work.Domain, h.Name))
	}
	pl.steps = append(pl.steps, recall{keys})
}

// pop takes one of the addresses that were accepted.
func (pl *planner) pop(list *[]pending) (pending, evidence.Case) {
	n := len(*list) - 1
	p := (*list)[n]
	if *list = (*list)[:n]; n == 0 {
		*list = nil
	}
	return p, pl.retries.log.take(&p)
}

// habit is what is known now of how a host answers for the domain, with the control probes of this run. A
// habit belongs to a host: a backup may accept everything that the primary tells apart.
//
// That a real address was refused as one that does not exist is no part of it: some
// receivers refuse by pattern, or from a list of names that once were abused, and
// accept everything else. Only control probes count.
func (pl *planner) habit(now time.Time, host string) evidence.Habit {
	h := pl.options.Facts.Habit(pl.key(host), now)
	others := func(note evidence.Attempt) bool { return note.Host != host }
	if h.Controls = pl.controls.notes; slices.ContainsFunc(h.Controls, others) {
		h.Controls = slices.DeleteFunc(slices.Clone(h.Controls), others)
	}
	return h
}

// key is habitKey of a host for the domain. It is kept for the host that was asked for last: nearly always the same.
func (pl *planner) key(host string) string {
	if r := &pl.route; r.keyed != host || r.keyOf == "" {
		r.keyed, r.keyOf = host, habitKey(pl.work.Domain, host)
	}
	return pl.route.keyOf
}

// answering is the host whose answers are expected next: the one that answered last about an address, or the
// first of the route. Empty while there is no route.
func (pl *planner) answering() string {
	if pl.route.answered == "" && len(pl.route.Hosts) > 0 {
		return pl.route.Hosts[0].Name
	}
	return pl.route.answered
}

// outranked reports whether a host that accepts everything says nothing about the domain's mailboxes, because
// mail goes to another host of the route that tells them apart: one of the same preference that is known to, or
// one that goes before it (RFC 5321 section 5.1) and has answered in this run, unless it accepts everything too.
func (pl *planner) outranked(now time.Time, host string) bool {
	rank, ranked := pl.route.rank(host)
	return slices.ContainsFunc(pl.route.Hosts, func(h mx.Host) bool {
		if h.Name == host || ranked && h.Preference > rank {
			return false
		}
		catchAll, known := pl.options.Facts.Habit(habitKey(pl.work.Domain, h.Name), now).CatchAll()
		return known && !catchAll || !known && h.Preference < rank && pl.route.heard[h.Name]
	})
}

// backupFor is how long a backup that accepts everything has to do so before that is believed of a domain whose
// primary was not heard: one that restarts, or has too many of our sessions, is back by then. Guess.
const backupFor = time.Minute

// acceptedBefore reports whether an address was accepted before its last attempt, by the same host.
func acceptedBefore(c evidence.Case, last evidence.Attempt) bool {
	return slices.ContainsFunc(c.Attempts, func(t evidence.Attempt) bool {
		return t.Void && t.Code/100 == 2 && t.Host == last.Host
	})
}

// settle ends an address that was accepted by the habit h of its host, or has it asked again where that host
// counts for nothing. False: the habit is not known.
func (pl *planner) settle(now time.Time, p pending, c evidence.Case, h evidence.Habit) bool {
	last, _ := c.Last()
	if last.Outcome == smtp.Valid {
		c.Habit = h
	}
	catchAll, _ := c.Habit.CatchAll()
	switch everything := catchAll || last.Outcome == smtp.CatchAll && last.Code/100 == 2; {
	case everything && pl.outranked(now, last.Host):
		c.Habit = evidence.Habit{}
		pl.disregard(now, p, c)
		return true
	case everything && pl.route.isBackup(last.Host) && !acceptedBefore(c, last):
		c.Habit = evidence.Habit{}
		pl.disregardFor(now, p, c, pl.options.Facts.Hour.Of(backupFor))
		return true
	}
	return pl.conclude(now, p.ordinal, c)
}

// believes says whether the worth of an acceptance is known. Behind many refusals it
// is not: some guards accept everything from then on, and so silence who asks. A
// control probe that is refused behind the acceptance proves that none was at work,
// for guards do not tire within minutes.
func (pl *planner) believes(h evidence.Habit, host string, now time.Time) bool {
	catchAll, known := h.CatchAll()
	return known && (catchAll || !pl.options.Facts.Suspect(pl.key(host), now))
}

// weigh goes on with what was accepted: it is believed as far as the domain's habit is
// known, or a control probe is asked, or it is given up.
func (pl *planner) weigh(now time.Time) {
	if len(pl.controls.accepted)+len(pl.controls.proven) == 0 || !pl.controls.recallBy.IsZero() {
		return
	}
	h := pl.habit(now, pl.controls.host)
	if pl.believes(h, pl.controls.host, now) {
		pl.controls.proven = append(pl.controls.proven, pl.controls.accepted...)
		pl.controls.accepted, pl.controls.canaryBy, pl.controls.canaryFrom = nil, time.Time{}, time.Time{}
	}
	for len(pl.controls.proven) > 0 && !pl.cut() {
		p, c := pl.pop(&pl.controls.proven)
		if !pl.settle(now, p, c, h) { // what was known is over
			pl.accept(now, p, c)
			break
		}
	}
	_, known := h.CatchAll()
	pl.setCanary(now, known)
	switch {
	case len(pl.controls.accepted) == 0:
	case pl.controls.inDoubt(now):
		for len(pl.controls.accepted) > 0 && !pl.cut() {
			p, c := pl.pop(&pl.controls.accepted)
			c.Habit = h
			pl.giveUp(now, p, c, pl.controls.doubt)
		}
	case known && now.Before(pl.controls.canaryBy) && pl.busy(now):
	default:
		pl.control(now)
	}
}

// setCanary decides when a control probe is asked for what is accepted at a domain that tells mailboxes apart.
func (pl *planner) setCanary(now time.Time, known bool) {
	if !known || len(pl.controls.accepted) == 0 || pl.controls.asking {
		return
	}
	if pl.controls.canaryFrom.IsZero() {
		pl.controls.canaryFrom = now
		pl.controls.canaryBy = now.Add(pl.options.Facts.Hour.Of(canaryAfter))
	}
	switch n := len(pl.controls.accepted); {
	case n >= canaryMost:
		pl.controls.canaryBy = now
	case n >= canaryFew:
		pl.controls.canaryBy = earlier(pl.controls.canaryBy, later(now, pl.controls.canaryFrom.Add(canarySoon)))
	}
}

// needsControl says whether something waits for a control probe, or a witness.
func (pl *planner) needsControl() bool {
	return len(pl.controls.accepted) > 0 || pl.controls.witness && len(pl.witnesses.doubted) > 0
}

// weighed is how many addresses wait to be believed.
func (pl *planner) weighed() int {
	return len(pl.controls.accepted) + len(pl.controls.proven) + len(pl.witnesses.doubted)
}

// busy says whether there are other addresses to be asked, or that are.
func (pl *planner) busy(now time.Time) bool {
	return len(pl.backlog.chunks) > 0 || pl.backlog.waiting(pl.since(now))
}

// prove notes that a control probe was refused at a time: what was accepted before,
// was by an honest receiver.
func (pl *planner) prove(at time.Time) {
	rest := pl.controls.accepted[:0]
	for _, p := range pl.controls.accepted {
		if pl.retries.log.time(p).After(at) {
			rest = append(rest, p)
		} else {
			pl.controls.proven = append(pl.controls.proven, p)
		}
	}
	pl.controls.accepted, pl.controls.canaryBy, pl.controls.canaryFrom = rest, time.Time{}, time.Time{}
}

// guarded: a mailbox that nobody has was accepted behind many refusals, so a guard is
// at work that accepts everything in silence.
func (pl *planner) guarded(now time.Time) {
	until := now.Add(pl.options.Facts.Hour.Of(guardFor))
	pl.options.Facts.Guard(habitKey(pl.work.Domain, pl.answering()), until)
	pl.steps = append(pl.steps, guardSeen{until})
}

// rest, while a guard is at work that this or another actor of the node saw, takes
// back what is out, and makes void what was accepted since the last good
// control probe: it is asked again when the guard has had time to forget us.
func (pl *planner) rest(now time.Time) {
	wait := pl.restUntil().Sub(now)
	accepted := pl.controls.accepted
	pl.controls.accepted, pl.controls.canaryBy, pl.controls.canaryFrom = nil, time.Time{}, time.Time{}
	for _, p := range accepted {
		c := pl.retries.log.take(&p)
		voidAcceptances(c)
		pl.again(now, p, c, answerOf{reason: smtp.HarvestGuard, wait: wait})
	}
	pl.recall()
}
