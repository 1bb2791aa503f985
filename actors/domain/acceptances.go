package domain

import (
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// recalledHosts is how many of a route's hosts, in order of preference, the cluster is asked about: nearly always
	// the first answers, and the second while that is down.
	recalledHosts = 2

	// One control probe serves all acceptances gathered so far. It is asked when there are canaryMost of them, when
	// there are canaryFew and the first has waited canarySoon, when the first has waited canaryAfter, or when there is
	// nothing else to ask. So a large domain never holds back more than canaryMost acceptances, and at one address a
	// second control probes add under 2 % of RCPTs.
	canaryMost  = 400
	canaryFew   = 50
	canarySoon  = time.Second
	canaryAfter = time.Minute

	// backupFor is how long a backup has to accept everything before the domain, whose primary didn't answer, is called
	// catch-all: a primary that restarts, or has too many of our sessions, is back by then. Guess.
	backupFor = time.Minute
)

// acceptances are the accepted addresses whose host isn't yet known to tell mailboxes apart. They wait for the control
// probes of one host at a time.
type acceptances struct {
	host     string    // the host that accepted them
	accepted []pending // until the host's behaviour is known
	proven   []pending // accepted, and the acceptance counts
	// A control probe is asked at canaryBy at the latest, for acceptances that wait since canaryFrom; zero: none is
	// needed.
	canaryBy, canaryFrom time.Time
	recalled             bool      // the cluster was asked what it knows of the domain
	recallBy             time.Time // until when they wait for its answer; zero: they don't
}

// endCanary withdraws the need for a control probe that confirms acceptances.
func (a *acceptances) endCanary() { a.canaryBy, a.canaryFrom = time.Time{}, time.Time{} }

// takeAccepted removes the acceptances that wait for control probes, and returns them.
func (a *acceptances) takeAccepted() []pending {
	accepted := a.accepted
	a.accepted = nil
	a.endCanary()
	return accepted
}

// proveBefore notes when a control probe was refused: acceptances before that are true.
func (a *acceptances) proveBefore(at time.Time) {
	rest := a.accepted[:0]
	a.proven = slices.Grow(a.proven, len(a.accepted))
	for _, p := range a.accepted {
		if p.newestTime().After(at) {
			rest = append(rest, p)
		} else {
			a.proven = append(a.proven, p)
		}
	}
	a.accepted = rest
	a.endCanary()
}

// isRecalling reports whether acceptances wait for the cluster's answer.
func (a *acceptances) isRecalling() bool { return !a.recallBy.IsZero() }

// setCanary decides when the next control probe confirms acceptances of a domain that tells mailboxes apart.
func (a *acceptances) setCanary(now time.Time, longest time.Duration) {
	if a.canaryFrom.IsZero() {
		a.canaryFrom, a.canaryBy = now, now.Add(longest)
	}
	switch n := len(a.accepted); {
	case n >= canaryMost:
		a.canaryBy = now
	case n >= canaryFew:
		a.canaryBy = earliest(a.canaryBy, later(now, a.canaryFrom.Add(canarySoon)))
	}
}

// askCluster asks what other nodes know about the domain's hosts; acceptances wait for the answer before control probes
// are sent.
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

// behaviourOf returns what is known of how a host answers for the domain, the control probes of this run included. A
// behaviour belongs to a host: a backup may accept everything that the primary tells apart.
//
// Only control probes count, not refusals of real addresses: some receivers refuse by pattern, or names that were
// abused once, and accept everything else.
func (k *controls) behaviourOf(now time.Time, host string) evidence.AcceptBehaviour {
	h := k.options.Facts.Behaviour(k.route.behaviourKey(host), now)
	others := func(note evidence.Attempt) bool { return note.Host != host }
	if h.Controls = k.notes; slices.ContainsFunc(h.Controls, others) {
		h.Controls = slices.DeleteFunc(slices.Clone(h.Controls), others)
	}
	return h
}

// knowsWorth reports whether it is known if an acceptance counts. After many refusals it can't: some harvest guards
// accept everything from then on. If a control probe is refused after the acceptance, no guard was active: guards don't
// relax within minutes.
func (k *controls) knowsWorth(h evidence.AcceptBehaviour, host string, now time.Time) bool {
	catchAll, known := h.CatchAll()
	return known && (catchAll || !k.options.Facts.Suspect(k.route.behaviourKey(host), now))
}

// takeAcceptance concludes about an accepted address, or files it until the host's behaviour is known.
func (k *controls) takeAcceptance(now time.Time, p pending, c evidence.Case) {
	last, _ := c.Last()
	if h := k.behaviourOf(now, last.Host); !k.knowsWorth(h, last.Host, now) || !k.settleByBehaviour(now, p, c, h) {
		k.fileAcceptance(now, p, c)
	}
}

// fileAcceptance lets an acceptance wait. If it comes from another host than the ones that wait already, the address is
// asked again.
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

// voidAcceptance discards an acceptance and asks the address again: soon at first, then by the configured waits.
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

// settleByBehaviour concludes about an accepted address from its host's behaviour h, or asks it again if that host's
// answers don't count. False: the behaviour isn't known.
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

// weighAccepted concludes about the acceptances if the behaviour is known; otherwise it asks a control probe or gives
// them up. busy: there are other addresses to ask.
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
		if !k.settleByBehaviour(now, p, c, h) { // what was known has expired
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
	case known && now.Before(k.canaryBy) && busy, k.asking || now.Before(k.next):
	default:
		k.beginControl()
		k.offerControl(now)
	}
}

// countWeighed returns how many addresses wait to be judged.
func (k *controls) countWeighed() int {
	return len(k.accepted) + len(k.proven) + len(k.witnesses.doubted)
}

// deferWeighed defers every address that waits to be judged, so that it ends as the deferred ones do.
func (k *controls) deferWeighed() {
	k.endControl()
	for _, p := range slices.Concat(k.takeAccepted(), k.proven, k.witnesses.doubted) {
		k.retries.pushDeferred(p)
	}
	k.proven, k.witnesses.doubted = nil, nil
}
