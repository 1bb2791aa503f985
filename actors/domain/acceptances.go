package domain

import (
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// recalledHosts is how many hosts of a route we ask the cluster about, in order of preference. Nearly always the first
	// host answers. The second host answers while the first is down.
	recalledHosts = 2

	// One control probe decides about all acceptances gathered so far. The control probe is asked for canaryMost
	// acceptances; for canaryFew when the first has waited for canarySoon; for any number when the first has waited for
	// canaryAfter; and when nothing else is left to ask. So a large domain holds back at most canaryMost acceptances, and
	// control probes add under 2 % of RCPTs at one address a second.
	canaryMost  = 400
	canaryFew   = 50
	canarySoon  = time.Second
	canaryAfter = time.Minute

	// backupFor: if the primary doesn't answer, a backup must accept everything for this long before we call the domain
	// catch-all. A primary that restarts, or has too many of our sessions, is back by then. Guess.
	backupFor = time.Minute
)

// acceptances are the accepted addresses whose host may accept everything. Acceptances wait for the control probes of
// one host at a time.
type acceptances struct {
	host     string    // the host that accepted them
	accepted []pending // wait until the host's behaviour is known
	proven   []pending // acceptances that can be settled, because the host's behaviour is known
	// The acceptances wait since canaryFrom, and a control probe must be asked for them by canaryBy; zero: none is needed.
	canaryBy, canaryFrom time.Time
	recalled             bool      // we asked what the cluster knows of the domain
	recallBy             time.Time // until when acceptances wait for the cluster's answer; zero: no wait
}

// endCanary notes that no control probe is needed to confirm acceptances.
func (a *acceptances) endCanary() { a.canaryBy, a.canaryFrom = time.Time{}, time.Time{} }

func (a *acceptances) takeAccepted() []pending {
	accepted := a.accepted
	a.accepted = nil
	a.endCanary()
	return accepted
}

// proveBefore notes when a control probe was refused. Acceptances before that time count.
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

// askCluster asks what other nodes know about the domain's hosts. Acceptances wait for the answer, and only then for
// control probes.
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

// behaviourOf returns what is known of how a host answers for the domain, the control probes of this run included. Each
// host has its own behaviour: a backup may accept everything while the primary tells mailboxes apart.
//
// Only control probes count. Refusals of real addresses don't count, because some receivers refuse by pattern, or names
// that were abused once, and accept everything else.
func (k *controls) behaviourOf(now time.Time, host string) evidence.AcceptBehaviour {
	h := k.options.Facts.Behaviour(k.route.behaviourKey(host), now)
	others := func(note evidence.Attempt) bool { return note.Host != host }
	if h.Controls = k.notes; slices.ContainsFunc(h.Controls, others) {
		h.Controls = slices.DeleteFunc(slices.Clone(h.Controls), others)
	}
	return h
}

// knowsWorth reports whether we know that an acceptance counts, or that it doesn't. After many refusals we don't know
// this, because some harvest guards then accept everything. If a control probe is refused later, no guard was active:
// guards don't relax within minutes.
func (r *route) knowsWorth(h evidence.AcceptBehaviour, host string, now time.Time) bool {
	catchAll, known := h.CatchAll()
	return known && (catchAll || !r.options.Facts.Suspect(r.behaviourKey(host), now))
}

// takeAcceptance settles an accepted address if the host's behaviour is known, or keeps it until then.
func (k *controls) takeAcceptance(now time.Time, p pending, c evidence.Case) {
	last, _ := c.Last()
	if h := k.behaviourOf(now, last.Host); !k.route.knowsWorth(h, last.Host, now) || !k.settleByBehaviour(now, p, c, h) {
		k.fileAcceptance(now, p, c)
	}
}

// fileAcceptance keeps an acceptance until the host's behaviour is known. If acceptances of another host already wait,
// the address is asked again instead.
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

// voidAcceptance discards an acceptance and asks the address again: soon at first, then after the configured waits.
func (k *controls) voidAcceptance(now time.Time, p pending, c evidence.Case) {
	wait := time.Duration(0)
	if p.waits < namedInRow {
		wait = time.Second << (3 * p.waits)
	}
	k.voidAcceptanceFor(now, p, c, answerOf{reason: smtp.BackupOnly, wait: wait})
}

// voidAcceptanceFor is voidAcceptance with a reason and a wait; 0: the configured wait.
func (k *controls) voidAcceptanceFor(now time.Time, p pending, c evidence.Case, m answerOf) {
	for i := range c.Attempts {
		if o := c.Attempts[i].Outcome; o == smtp.Valid || o == smtp.CatchAll && c.Attempts[i].Code/100 == 2 {
			c.Attempts[i].Void = true
		}
	}
	k.askAgain(now, p, c, m)
}

// acceptedBefore reports whether the same host accepted the address in an earlier, discarded attempt.
func acceptedBefore(c evidence.Case, last evidence.Attempt) bool {
	return slices.ContainsFunc(c.Attempts, func(t evidence.Attempt) bool {
		return t.Void && t.Code/100 == 2 && t.Host == last.Host
	})
}

// settleByBehaviour settles an accepted address by its host's behaviour h, or asks the address again if answers of that
// host don't count. False: the behaviour isn't known.
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

// weighAccepted settles the acceptances if the behaviour is known. Otherwise weighAccepted asks a control probe or
// gives the acceptances up. busy: there are other addresses to ask.
func (k *controls) weighAccepted(now time.Time, busy bool) {
	if len(k.accepted)+len(k.proven) == 0 || k.isRecalling() {
		return
	}
	h := k.behaviourOf(now, k.host)
	if k.route.knowsWorth(h, k.host, now) {
		k.proven = append(k.proven, k.takeAccepted()...)
	}
	for len(k.proven) > 0 && !k.isCut() {
		p, c := k.retries.popOf(&k.proven)
		if !k.settleByBehaviour(now, p, c, h) { // what was known of the behaviour has expired
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

// deferWeighed defers every address that waits to be judged. So these addresses end like deferred ones.
func (k *controls) deferWeighed() {
	k.endControl()
	for _, p := range slices.Concat(k.takeAccepted(), k.proven, k.witnesses.doubted) {
		k.retries.pushDeferred(p)
	}
	k.proven, k.witnesses.doubted = nil, nil
}
