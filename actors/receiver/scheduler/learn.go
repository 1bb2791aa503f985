package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// Fact is one conclusion from a report. learn makes all facts. queues, sessions and paths each handle their own,
// independent of one another.
type Fact struct {
	what  finding
	probe *Probe    // the address that the fact is about, if there is one
	about *Answered // the answer; nil: the address wasn't asked
}

type finding uint8

const (
	untouched  finding = iota // the address wasn't asked, and waits as before
	answered                  // the answer says something about the address
	worthless                 // the answer came after a guard woke up
	unaskable                 // the address can't be asked here
	tooMany                   // the host accepts fewer RCPTs in a transaction
	notHere                   // the host doesn't serve the domain
	underTLS                  // the host demands TLS
	goneWith                  // its session ended, but not because of this address
	suspicious                // the answer may be about more than the address
	suspected                 // the address was on the wire when its session ended

	guardWoke   // a harvest guard has ended the session
	guardCounts // a harvest guard that counts by the session has ended the session
	overRefused // the session ended after too many refusals
	wasCut      // the session was ended while addresses were asked
	troubled    // the session ended with words about the host or about us
)

// situation describes the reporting session for learn.
type situation struct {
	void    time.Time // answers after this time don't count; zero: all count
	agreed  bool      // the session ended after as many answers as an earlier one
	guard   bool      // enough was refused to wake a harvest guard
	counts  bool      // guard, but in this session alone, by software that counts by the session
	mayTLS  bool      // TLS wasn't tried yet, and may be tried
	sent    time.Time // when the presumed cause of its end was sent
	taken   int       // the most RCPTs of a transaction that were answered
	answers int       // answers of the session, those of the report included
}

// learn appends the facts of a report, in the order of its answers.
func learn(facts []Fact, now time.Time, r *Report, in situation) []Fact {
	for i := range r.Answered {
		a := &r.Answered[i]
		facts = append(facts, Fact{in.findAnswer(a), a.Probe, a})
	}
	for i, p := range r.Unanswered {
		if i > 0 || r.OnWire == 0 || r.Failure == nil || r.Stale { // another address ended the session, or none did
			facts = append(facts, Fact{what: untouched, probe: p})
			continue
		}
		one, what := &Answered{Probe: p, Judgement: *r.Failure, Sent: in.sent, At: now}, suspected
		ours := r.Failure.Attempt.Trouble == evidence.TroubleOurs
		if in.agreed || !in.void.IsZero() || r.Poisoned && in.guard || ours {
			what = goneWith
		}
		facts = append(facts, Fact{what, p, one})
	}
	if what, learned := in.findEnd(r); learned {
		facts = append(facts, Fact{what: what, about: &Answered{Judgement: *r.Failure, At: now}})
	}
	return facts
}

// findAnswer returns the fact of the answer to an address.
func (in *situation) findAnswer(a *Answered) finding {
	code, v := a.Judgement.Attempt.Code, &a.Judgement.Verdict
	switch {
	case !in.void.IsZero() && a.At.After(in.void) && code != 0:
		return worthless
	case v.Outcome != smtp.Undecided:
		return answered
	case v.Action == verdict.ActSplit && in.taken > 0 && a.Nth > in.taken:
		return tooMany
	case v.Action == verdict.ActNextMX:
		return notHere
	case v.Action == verdict.ActTLS && in.mayTLS:
		return underTLS
	case v.Action == verdict.ActVoid && in.guard:
		return goneWith
	case v.Action == verdict.ActVoid, v.Action == verdict.ActSplit:
		return suspicious
	case v.Action == verdict.ActTLS, code == 0:
		return unaskable
	case code == 421 && in.agreed: // the length of sessions is limited here
		return goneWith
	}
	return suspicious
}

// findEnd returns the fact of a session's end; false: there is none.
func (in *situation) findEnd(r *Report) (finding, bool) {
	switch {
	case r.Failure == nil || r.Stale: // the session stays open, or was closed while idle
		return 0, false
	case r.Poisoned && in.counts:
		return guardCounts, true
	case r.Poisoned, r.Cut && in.answers == 0 && r.Failure.Verdict.Action == verdict.ActVoid:
		return guardWoke, in.guard // if guard is false, this is the reply of a single mailbox
	case r.Cut && in.answers > 0 && r.Failure.Verdict.Action == verdict.ActVoid: // the receiver said 421, too many errors
		return overRefused, true
	case r.Cut && r.Failure.Attempt.Stage >= smtp.StageRcpt: // the address under way is suspect
		return wasCut, true
	}
	return troubled, true
}
