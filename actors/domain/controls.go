package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

const (
	// controlOrdinal is the ordinal of control probes. Addresses have smaller ordinals.
	controlOrdinal = wire.ControlOrdinal

	// unclearMax is how many control probes in a row may show nothing, such as a refusal by policy. After unclearMax such
	// probes, the acceptances are given up. Guess.
	unclearMax = 3

	// unclearFor is how long we ask no control probe and give up all acceptances after unclearMax unclear control probes.
	// Guess: long enough not to annoy the receiver, short enough that a large file isn't lost.
	unclearFor = 10 * time.Minute

	// controlBehind: a first chunk of at least this many addresses includes the first control probe. Such a domain nearly
	// always needs a control probe, and a later one would cost another round trip and queue. A smaller domain may need
	// none.
	controlBehind = 4

	// staysRefusedFor: a control probe counts as refused if temporary replies say for this long that its mailbox doesn't
	// exist. Greylisting doesn't mention mailboxes, and a receiver's own check of a mailbox takes seconds. Guess.
	staysRefusedFor = time.Minute
)

// controls find out whether acceptances count: from control probes of this run and of earlier ones, and from witnesses.
type controls struct {
	*job
	route   *route
	retries *retries

	controlProbe
	acceptances
	witnesses witnesses

	unclear int // control probes in a row that showed nothing
	doubt   smtp.Reason
	until   time.Time // until then no control probe is asked and acceptances are given up
}

// controlProbe asks for a mailbox that nobody has. Control probes are asked one at a time, with growing pauses. Each
// control probe uses a new name, unless a greylist knows, or may know, an earlier one.
type controlProbe struct {
	locals   randomLocals
	local    string           // the name that is asked
	let      string           // a name that has waited out the greylist, or soon will have; empty: none
	deferred string           // the name that was first deferred since a control probe became necessary; empty: none
	witness  bool             // a witness is asked instead of a made-up name
	bare     evidence.Attempt // refusal of a control probe that needs a witness; zero: none
	asking   bool             // the control probe is ready, out or deferred
	early    bool             // a control probe may be asked before any address was accepted
	owed     bool             // the early control probe waits for what the cluster knows
	asked    int              // control probes since one became necessary
	next     time.Time
	notes    []evidence.Attempt // attempts for the AcceptBehaviour; never changed, only replaced
}

func (k *controlProbe) noteAttempts(list []evidence.Attempt) {
	notes := slices.Concat(k.notes, list)
	k.notes = notes[max(0, len(notes)-evidence.ControlsMax):]
}

func (k *controls) localOf(ordinal uint32) string {
	if ordinal == controlOrdinal {
		return k.local
	}
	return k.work.Local(ordinal)
}

// nextControl returns when the next control probe is due; zero: nothing waits for a control probe.
func (k *controls) nextControl() time.Time {
	if len(k.accepted) == 0 || k.asking {
		return time.Time{}
	}
	return later(k.next, k.canaryBy)
}

// beginControl makes a new control probe, to be offered now.
func (k *controls) beginControl() {
	k.endCanary()
	k.asking, k.witness, k.next, k.local, k.deferred = true, false, time.Time{}, k.let, ""
	if k.local == "" {
		k.local = k.locals.next()
	}
	k.asked++
}

// beginControlEarly begins the first control probe before an acceptance, if it will likely be needed. beginControlEarly
// reports whether it began one.
func (k *controls) beginControlEarly(known bool) bool {
	if known || !k.early || k.asking || k.isRecalling() {
		return false
	}
	k.early = false
	k.beginControl()
	return true
}

// askControlEarly is beginControlEarly for a control probe that waits together with greylisted addresses. While a
// harvest guard is suspected, acceptances need a control probe even if the behaviour is known.
func (k *controls) askControlEarly(now time.Time) {
	if k.owed = k.isRecalling(); !k.owed && k.beginControlEarly(k.knowsNext(now)) {
		k.offerControl(now)
	}
}

// knowsBehaviour reports whether we know how the next host answers: it tells mailboxes apart, or it accepts everything.
func (k *controls) knowsBehaviour(now time.Time) bool {
	_, known := k.behaviourOf(now, k.route.answeringHost()).CatchAll()
	return known
}

// knowsNext reports whether we know what the next acceptance is worth (knowsWorth).
func (k *controls) knowsNext(now time.Time) bool {
	host := k.route.answeringHost()
	return k.route.knowsWorth(k.behaviourOf(now, host), host, now)
}

// recallOver ends the wait for the cluster's answer.
func (k *controls) recallOver(now time.Time) {
	if k.recallBy = (time.Time{}); k.owed {
		k.askControlEarly(now)
	}
}

// offerControl offers the control probe like a due address, because many addresses may wait for it.
func (k *controls) offerControl(now time.Time) {
	since := k.since(now)
	p := pending{ordinal: controlOrdinal, since: since, due: since - 1} // 0 is "none" in deferredCounts.control
	k.retries.pushDeferred(p)
}

// endControl ends the control probes, because no acceptance needs them. A control probe that is out comes back unused.
func (k *controls) endControl() {
	k.asking, k.asked, k.unclear = false, 0, 0
	k.next = time.Time{}
}

// keepName keeps the name of a control probe that isn't needed now, if it was deferred because it was greylisted. The
// name has waited for some time, and a later control probe would wait from the beginning with a new one.
func (k *controlProbe) keepName(reason smtp.Reason) {
	if !k.witness && k.let == "" && reason == smtp.Greylisted {
		k.let = k.local
	}
}

func (k *controls) pauseControls(now time.Time) {
	pauses := k.options.ControlPauses
	k.asking = false
	k.next = now.Add(pauses[min(k.asked, len(pauses))-1])
}

// endsAt estimates when we will know whether the domain accepts everything. Nearly all domains refuse the first control
// probe, and are decided then. A domain that accepts the first control probe accepts the next ones too. deferred is
// when a deferred control probe is expected to be answered; 0: it isn't deferred.
func (k *controls) endsAt(now time.Time, deferred time.Duration) time.Time {
	end, pauses := later(now, k.nextControl()), k.options.ControlPauses
	if deferred > 0 {
		end = later(end, k.start.Add(deferred))
	}
	if accepted := k.behaviourOf(now, k.host).Accepted; accepted > 0 {
		for i := accepted + 1; i < evidence.ControlsEnough; i++ {
			end = end.Add(pauses[min(i-1, len(pauses)-1)])
		}
	}
	return end
}

// isNeeded reports whether an address waits for a control probe or a witness, or a greylisted address may soon.
func (k *controls) isNeeded(now time.Time) bool {
	if len(k.accepted) > 0 || k.witness {
		return len(k.accepted)+len(k.witnesses.doubted) > 0
	}
	switch k.retries.again[controlOrdinal].reason {
	case smtp.ReasonNone: // asked early
		return !k.knowsNext(now)
	case smtp.Greylisted:
		return !k.knowsBehaviour(now)
	}
	return false
}

func (k *controls) takeAnswer(now time.Time, p pending, c evidence.Case, m answerOf) {
	if k.witness {
		k.takeTestimony(now, c, m)
		return
	}
	last, asked := c.Last()
	answered := asked && len(m.attempts) > 0
	var accepted, refused bool
	if answered {
		accepted, refused = verdict.Control(last)
	}
	if accepted || refused {
		k.route.hearHost(last)
	}
	if accepted && k.options.Facts.Suspect(behaviourKey(k.work.Domain, last.Host), now) {
		m.attempts[len(m.attempts)-1].Void = true
		k.noteAttempts(m.attempts)
		k.endControl()
		k.meetGuard(now)
		return
	}
	k.noteAttempts(m.attempts)
	switch {
	case refused || k.staysRefused(c):
		if p.reason == smtp.Greylisted || k.local == k.deferred {
			k.let = k.local
		}
		k.tellsApart(now, last)
	case accepted:
		k.let = ""
		k.options.Facts.Learn(behaviourKey(k.work.Domain, last.Host), true, now)
		k.unclear = 0
		k.pauseControls(now)
		k.moveTo(now, last.Host)
	case answered && last.Outcome == smtp.Invalid && last.Bare && k.witnesses.known:
		k.bare = last
		k.askWitness(now)
	case answered && last.Unreadable() && verdict.Unread(last.Rule): // no later reply will be more readable
		k.giveUpAccepted(now, last.Reason)
	case !answered || last.Outcome == smtp.Undecided && !closed(c):
		switch {
		case last.Reason == smtp.NotAccepted && m.wait == 0:
			m.wait = k.options.Facts.Hour.Of(staysRefusedFor)
		case answered && p.reason != smtp.Greylisted && isOfMailbox(last):
			k.otherName(last.Code/100 == 4)
		}
		k.askAgain(now, p, c, m)
	default:
		k.tellsNothing(now, last.Reason)
	}
}

// otherName chooses another name for the next control probe. Every other time it takes the first deferred name again,
// because that name may be greylisted, whatever the words of the replies.
func (k *controlProbe) otherName(deferred bool) {
	if k.deferred == "" && deferred {
		k.deferred = k.local
	}
	if k.deferred != "" && k.local != k.deferred {
		k.local = k.deferred
		return
	}
	k.local = k.locals.next()
}

// isOfMailbox reports whether the answer to a control probe may be about its name only. If so, another name may show
// more.
func isOfMailbox(last evidence.Attempt) bool {
	switch last.Reason {
	case smtp.Policy, smtp.MailboxDisabled, smtp.MailboxFull:
		return last.Stage == smtp.StageRcpt
	}
	return false
}

// staysRefused reports whether the host refuses missing mailboxes with a 4xx. Such a host has temporarily refused the
// same control probe twice, while accepting other addresses.
func (k *controls) staysRefused(c evidence.Case) bool {
	last, _ := c.Last()
	return last.Reason == smtp.NotAccepted && len(k.accepted) > 0 && k.host == last.Host &&
		slices.ContainsFunc(c.Attempts, func(t evidence.Attempt) bool {
			return t.Reason == smtp.NotAccepted && !t.Void && !t.Others && t.Host == last.Host &&
				last.At.Sub(t.At) >= k.options.Facts.Hour.Of(staysRefusedFor)
		})
}

func closed(c evidence.Case) bool {
	outcome, _ := verdict.Conclude(c)
	return outcome.Final()
}

// tellsApart notes that a control probe was refused: the host tells mailboxes apart.
func (k *controls) tellsApart(now time.Time, refused evidence.Attempt) {
	k.options.Facts.Learn(behaviourKey(k.work.Domain, refused.Host), false, now)
	k.endControl()
	k.moveTo(now, refused.Host)
	k.proveBefore(refused.At)
}

// moveTo asks the waiting acceptances again if another host answers now, because its control probes say nothing about
// the old host.
func (k *controls) moveTo(now time.Time, host string) {
	if k.host == host {
		return
	}
	for _, p := range k.takeAccepted() {
		c := k.retries.log.takeCase(&p)
		k.voidAcceptance(now, p, c)
	}
}

// tellsNothing notes that the answer to a control probe didn't show the host's behaviour.
func (k *controls) tellsNothing(now time.Time, reason smtp.Reason) {
	k.pauseControls(now)
	if k.unclear++; k.unclear >= unclearMax {
		k.giveUpAccepted(now, reason)
	}
}

// giveUpAccepted gives up the acceptances, because the host's behaviour can't be found out.
func (k *controls) giveUpAccepted(now time.Time, reason smtp.Reason) {
	k.endControl()
	k.doubt, k.until = reason, now.Add(unclearFor)
}

// askAgain asks an address, or the control probe, again later. If its time is over, askAgain gives it up.
func (k *controls) askAgain(now time.Time, p pending, c evidence.Case, m answerOf) {
	if why, over := k.retries.askLater(now, p, c, m); over {
		k.giveUp(now, p, c, why)
	}
}

// giveUp gives up an address or, for a control probe, the acceptances that wait for it. why is smtp.ReasonNone if the
// last attempt has the reason.
func (k *controls) giveUp(now time.Time, p pending, c evidence.Case, why smtp.Reason) {
	if p.ordinal != controlOrdinal {
		k.job.giveUp(now, p.ordinal, c, why)
		return
	}
	if last, asked := c.Last(); asked && why == smtp.ReasonNone {
		why = last.Reason
	}
	k.giveUpAccepted(now, why)
}
