package domain

import (
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// recalledHosts is of how many of a route's hosts, the preferred ones, the cluster is asked: nearly always the
	// first answers, and the second while it is down.
	recalledHosts = 2

	// backupFor is how long a backup that accepts everything has to do so before that is believed of a domain whose
	// primary was not heard: one that restarts, or has too many of our sessions, is back by then. Guess.
	backupFor = time.Minute
)

// acceptances are the addresses that were accepted, until it is known what that is worth. They wait for the control
// probes of one host at a time.
type acceptances struct {
	host     string    // where those in accepted were
	accepted []pending // until it is known what that is worth
	proven   []pending // accepted, and that is worth something
	// A control probe is asked for what is accepted at canaryBy at the latest, and it waits since canaryFrom; zero:
	// none has to be.
	canaryBy, canaryFrom time.Time
	recalled             bool      // the cluster was asked what it knows of the domain
	recallBy             time.Time // they wait so long for its answer; zero: they do not
}

// endCanary: no control probe has to be asked for what is accepted.
func (a *acceptances) endCanary() { a.canaryBy, a.canaryFrom = time.Time{}, time.Time{} }

// takeAccepted takes what waits for control probes away.
func (a *acceptances) takeAccepted() []pending {
	accepted := a.accepted
	a.accepted = nil
	a.endCanary()
	return accepted
}

// proveBefore notes that a control probe was refused at a time: what was accepted before, was by an honest receiver.
func (a *acceptances) proveBefore(log *attemptLog, at time.Time) {
	rest := a.accepted[:0]
	a.proven = slices.Grow(a.proven, len(a.accepted))
	for _, p := range a.accepted {
		if log.newestTime(p).After(at) {
			rest = append(rest, p)
		} else {
			a.proven = append(a.proven, p)
		}
	}
	a.accepted = rest
	a.endCanary()
}

// isRecalling reports whether they wait for what the cluster knows.
func (a *acceptances) isRecalling() bool { return !a.recallBy.IsZero() }

// setCanary decides when a control probe is asked for what is accepted at a domain that tells mailboxes apart.
func (a *acceptances) setCanary(now time.Time, longest time.Duration) {
	if a.canaryFrom.IsZero() {
		a.canaryFrom, a.canaryBy = now, now.Add(longest)
	}
	switch n := len(a.accepted); {
	case n >= canaryMost:
		a.canaryBy = now
	case n >= canaryFew:
		a.canaryBy = earlier(a.canaryBy, later(now, a.canaryFrom.Add(canarySoon)))
	}
}

// askCluster has it found out what other nodes know of the domain's hosts: what is accepted waits for that
// before control probes are asked.
func (k *controls) askCluster(now time.Time) {
	if k.recalled || !k.options.Facts.Shared() || k.knowsBehaviour(now) {
		return
	}
	k.recalled, k.recallBy = true, now.Add(recallWithin)
	var keys []string
	for _, h := range k.route.Hosts[:min(len(k.route.Hosts), recalledHosts)] {
		keys = append(keys, behaviourKey(k.work.Domain, h.Name))
	}
	k.addStep(recall{keys})
}

// behaviourOf is what is known now of how a host answers for the domain, with the control probes of this run. A
// behaviour belongs to a host: a backup may accept everything that the primary tells apart.
//
// That a real address was refused as one that does not exist is no part of it: some
// receivers refuse by pattern, or from a list of names that once were abused, and
// accept everything else. Only control probes count.
func (k *controls) behaviourOf(now time.Time, host string) evidence.AcceptBehaviour {
	h := k.options.Facts.Behaviour(k.route.behaviourKey(host), now)
	others := func(note evidence.Attempt) bool { return note.Host != host }
	if h.Controls = k.notes; slices.ContainsFunc(h.Controls, others) {
		h.Controls = slices.DeleteFunc(slices.Clone(h.Controls), others)
	}
	return h
}

// knowsWorth reports whether the worth of an acceptance is known. Behind many refusals it
// is not: some guards accept everything from then on, and so silence who asks. A
// control probe that is refused behind the acceptance proves that none was at work,
// for guards do not tire within minutes.
func (k *controls) knowsWorth(h evidence.AcceptBehaviour, host string, now time.Time) bool {
	catchAll, known := h.CatchAll()
	return known && (catchAll || !k.options.Facts.Suspect(k.route.behaviourKey(host), now))
}

// takeAcceptance ends an address that was accepted, or files it until it is known what that is worth.
func (k *controls) takeAcceptance(now time.Time, p pending, c evidence.Case) {
	last, _ := c.Last()
	if h := k.behaviourOf(now, last.Host); !k.knowsWorth(h, last.Host, now) || !k.settleByBehaviour(now, p, c, h) {
		k.fileAcceptance(now, p, c)
	}
}

// fileAcceptance has an acceptance wait. Those of another host than the one that the others wait for are asked again.
func (k *controls) fileAcceptance(now time.Time, p pending, c evidence.Case) {
	last, _ := c.Last()
	if len(k.accepted) > 0 && k.host != last.Host {
		k.voidAcceptance(now, p, c)
		return
	}
	k.host = last.Host
	k.retries.log.keepCase(&p, c)
	k.accepted = append(k.accepted, p)
}

// voidAcceptance asks an address again whose acceptance counts for nothing: soon at first, then by the configured
// waits.
func (k *controls) voidAcceptance(now time.Time, p pending, c evidence.Case) {
	wait := time.Duration(0)
	if p.waits < namedInRow {
		wait = time.Second << (3 * p.waits)
	}
	k.voidAcceptanceFor(now, p, c, answerOf{reason: smtp.BackupOnly, wait: wait})
}

// voidAcceptanceFor is voidAcceptance with a reason, and the time until the address is asked again; 0: as configured.
func (k *controls) voidAcceptanceFor(now time.Time, p pending, c evidence.Case, m answerOf) {
	for i := range c.Attempts {
		if o := c.Attempts[i].Outcome; o == smtp.Valid || o == smtp.CatchAll && c.Attempts[i].Code/100 == 2 {
			c.Attempts[i].Void = true
		}
	}
	k.askAgain(now, p, c, m)
}

// acceptedBefore reports whether an address was accepted before its last attempt, by the same host.
func acceptedBefore(c evidence.Case, last evidence.Attempt) bool {
	return slices.ContainsFunc(c.Attempts, func(t evidence.Attempt) bool {
		return t.Void && t.Code/100 == 2 && t.Host == last.Host
	})
}

// settleByBehaviour ends an address that was accepted by the behaviour h of its host, or has it asked again where that
// host counts for nothing. False: the behaviour is not known.
func (k *controls) settleByBehaviour(now time.Time, p pending, c evidence.Case, h evidence.AcceptBehaviour) bool {
	last, _ := c.Last()
	if last.Outcome == smtp.Valid {
		c.Behaviour = h
	}
	catchAll, _ := c.Behaviour.CatchAll()
	switch everything := catchAll || last.Outcome == smtp.CatchAll && last.Code/100 == 2; {
	case everything && k.route.isOutranked(now, last.Host):
		c.Behaviour = evidence.AcceptBehaviour{}
		k.voidAcceptance(now, p, c)
		return true
	case everything && k.route.isBackup(last.Host) && !acceptedBefore(c, last):
		c.Behaviour = evidence.AcceptBehaviour{}
		k.voidAcceptanceFor(now, p, c, answerOf{reason: smtp.BackupOnly, wait: k.options.Facts.Hour.Of(backupFor)})
		return true
	}
	return k.conclude(now, p.ordinal, c)
}

// weighAccepted goes on with what was accepted: it is believed as far as the domain's behaviour is
// known, or a control probe is asked, or it is given up. busy: there are others to ask.
func (k *controls) weighAccepted(now time.Time, busy bool) {
	if len(k.accepted)+len(k.proven) == 0 || k.isRecalling() {
		return
	}
	h := k.behaviourOf(now, k.host)
	if k.knowsWorth(h, k.host, now) {
		k.proven = append(k.proven, k.takeAccepted()...)
	}
	for len(k.proven) > 0 && !k.isCut() {
		p, c := k.retries.popOf(&k.proven)
		if !k.settleByBehaviour(now, p, c, h) { // what was known is over
			k.fileAcceptance(now, p, c)
			break
		}
	}
	_, known := h.CatchAll()
	if known && len(k.accepted) > 0 && !k.asking {
		k.setCanary(now, k.options.Facts.Hour.Of(canaryAfter))
	}
	switch {
	case len(k.accepted) == 0:
	case now.Before(k.until):
		for len(k.accepted) > 0 && !k.isCut() {
			p, c := k.retries.popOf(&k.accepted)
			c.Behaviour = h
			k.giveUp(now, p, c, k.doubt)
		}
	case known && now.Before(k.canaryBy) && busy:
	default:
		k.askControl(now)
	}
}

// countWeighed is how many addresses wait to be believed.
func (k *controls) countWeighed() int {
	return len(k.accepted) + len(k.proven) + len(k.witnesses.doubted)
}

// voidAccepted, while a guard is at work that this or another actor of the node saw, makes void what was accepted
// since the last good control probe: it is asked again when the guard has had time to forget us.
func (k *controls) voidAccepted(now time.Time) {
	wait := k.route.pausedUntil().Sub(now)
	for _, p := range k.takeAccepted() {
		c := k.retries.log.takeCase(&p)
		k.voidAcceptanceFor(now, p, c, answerOf{reason: smtp.HarvestGuard, wait: wait})
	}
}

// closeAll makes everything that waits invalid: DNS says that the domain takes no mail, also not for an address
// that was accepted before.
func (k *controls) closeAll(now time.Time) {
	k.endControl()
	k.accepted = slices.Concat(k.accepted, k.proven, k.witnesses.doubted)
	k.proven, k.witnesses.doubted = nil, nil
	for len(k.accepted) > 0 && !k.isCut() {
		p, c := k.retries.popOf(&k.accepted)
		c.NoRoute = k.route.closed
		k.conclude(now, p.ordinal, c)
	}
}
