package scheduler

import (
	"fmt"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// knownOdd is what is said of an address that is known to be odd itself.
const knownOdd = "it was put off before too, and that was not about anybody else"

// causeOf returns a belief as evidence has it.
func causeOf(b throttle.Belief) evidence.Cause {
	scope := [...]evidence.Scope{throttle.ScopeAddress: evidence.ScopeAddress, throttle.ScopeDomain: evidence.ScopeDomain,
		throttle.ScopeTenant: evidence.ScopeTenant, throttle.ScopeHost: evidence.ScopeHost,
		throttle.ScopeReceiver: evidence.ScopeReceiver}[b.Scope]
	if b.Scope == throttle.ScopeReceiver && b.Refused {
		scope = evidence.ScopeSource
	}
	return evidence.NewCause(scope, b.Why)
}

// setCause notes what the newest attempt at an address is believed to be about.
func (p *Probe) setCause(c evidence.Cause) {
	if n := len(p.attempts); n > 0 && c != (evidence.Cause{}) {
		p.attempts[n-1].Cause = c
	}
}

// sameAs reports whether an attempt is one that was noted before, but for its cause, and takes over
// a cause that is newer.
func sameAs(noted *evidence.Attempt, a evidence.Attempt) bool {
	c := a.Cause
	a.Cause = noted.Cause
	if a != *noted {
		return false
	}
	if c != (evidence.Cause{}) {
		noted.Cause = c
	}
	return true
}

// isDoubting reports whether a belief about the receiver holds from this source.
func (o *egressPath) isDoubting() bool { return o.experiment.Open() || o.cautious }

// explainTrial notes in the evidence what is believed of a bad answer: by what it led to, by a belief
// about the receiver that holds, or by one about its domain or list. Those that wait for a second look
// and whose trials led to it are told too.
func (su *suspicions) explainTrial(o *egressPath, a *Answered, t throttle.Trial, b throttle.Belief, doubting bool) {
	switch {
	case b.Scope == throttle.ScopeReceiver:
		su.explainAll(a, o.cause, b)
	case doubting:
		a.Probe.setCause(o.cause)
	case b.Scope == throttle.ScopeHost:
		su.explainAll(a, causeOf(b), b)
	default:
		if narrow, known := o.causes.Narrow(t); known {
			a.Probe.setCause(causeOf(narrow))
		}
	}
}

// explainAll notes a cause for an answer and for those that led to it and wait for a second look.
func (su *suspicions) explainAll(a *Answered, c evidence.Cause, b throttle.Belief) {
	a.Probe.setCause(c)
	for _, one := range su.suspects {
		if !one.trial.Sent.Before(b.First) && one.told.Attempt.Source == a.Told.Attempt.Source &&
			(b.Host == "" || b.Host == one.trial.Host) {
			one.probe.setCause(c)
		}
	}
}

// explainFailed notes what a second look showed that got a bad answer again.
func (o *egressPath) explainFailed(a *Answered, first time.Time) {
	switch {
	case o.causes.Calm():
		a.Probe.setCause(evidence.NewCause(evidence.ScopeAddress, fmt.Sprintf(
			"asked again %s later it got %s again, while others were answered",
			max(time.Second, a.Sent.Sub(first).Round(time.Second)), words(a.Told.Attempt))))
	case o.isDoubting():
		a.Probe.setCause(o.cause)
	}
}

// explainAssumed notes that an address is taken for what others were that got the same.
func (o *egressPath) explainAssumed(p *Probe, t throttle.Trial) {
	if n := len(p.attempts); n > 0 && p.attempts[n-1].Cause == (evidence.Cause{}) && !t.OfItself &&
		o.causes.OddChance(t.Said) > 0.5 {
		p.setCause(evidence.NewCause(evidence.ScopeAddress,
			fmt.Sprintf("most others that got %s got a bad answer again when they were asked again", t.Said)))
	}
}

// withCause adds to what keeps us away that it is about no address: it was said before one was asked, or by
// a guard. What was believed because of trials says so already.
func withCause(told Judgement) Judgement {
	a := &told.Attempt
	switch {
	case a.Cause != (evidence.Cause{}) || a.Code == 0:
	case told.Verdict.Action == verdict.ActVoid:
		a.Cause = evidence.NewCause(evidence.ScopeReceiver, "a guard against harvesting had refused several addresses")
	case a.Stage < smtp.StageRcpt && told.Verdict.Action == verdict.ActOtherSource:
		a.Cause = evidence.NewCause(evidence.ScopeSource,
			"refused at stage "+a.Stage.String()+", before any address was asked")
	case a.Stage < smtp.StageRcpt:
		a.Cause = evidence.NewCause(evidence.ScopeReceiver,
			"said at stage "+a.Stage.String()+", before any address was asked")
	}
	return told
}
