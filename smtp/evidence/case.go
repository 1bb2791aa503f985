package evidence

import (
	"time"

	"rollcall/smtp"
)

const (
	// AttemptsMax bounds the attempts of a Case: the first AttemptsFirst and the
	// newest others. A route has at most 5 hosts that are tried and 8 addresses, so
	// the last pass over them is always whole.
	AttemptsMax = 16

	// AttemptsFirst is how many of the first attempts are kept whatever follows: they
	// show how it began.
	AttemptsFirst = 4

	// ControlsMax bounds the control probes that a Case shows.
	ControlsMax = 8

	// WitnessWithin is how long after a refusal in bare words the acceptance of another
	// address shows that we are heard, and were so when it came. Guess: long enough to ask
	// one more, and shorter than filters keep somebody out.
	WitnessWithin = 20 * time.Second

	// ControlsEnough is how many control probes must be accepted, and none refused,
	// before "accepts every address" is believed.
	ControlsEnough = 3
)

// Case is all that the outcome of one address rests on.
type Case struct {
	Attempts []Attempt // oldest first, at most AttemptsMax
	Omitted  int       // attempts that are left out behind the first AttemptsFirst

	NoRoute smtp.Reason // what DNS said instead of a route; smtp.ReasonNone: there was one, or nobody asked
	Hosts   int         // of the route; 0: not known

	Behaviour AcceptBehaviour // what was known of the domain when an acceptance was judged

	// GaveUp says that the engine stopped asking, and Why it did; smtp.ReasonNone:
	// because of what the last attempt says.
	GaveUp bool
	Why    smtp.Reason
}

// Add appends an attempt and keeps to AttemptsMax.
func (c *Case) Add(a Attempt) {
	if len(c.Attempts) == AttemptsMax {
		c.Attempts = append(c.Attempts[:AttemptsFirst], c.Attempts[AttemptsFirst+1:]...)
		c.Omitted++
	}
	c.Attempts = append(c.Attempts, a)
}

// Last returns the newest attempt that is not void.
func (c *Case) Last() (Attempt, bool) {
	for i := len(c.Attempts) - 1; i >= 0; i-- {
		if !c.Attempts[i].Void {
			return c.Attempts[i], true
		}
	}
	return Attempt{}, false
}

// AcceptBehaviour is what is known of a domain's way to answer: does its receiver tell the
// mailboxes that it has from those that it has not, before delivery?
type AcceptBehaviour struct {
	// Accepted and Refused count the control probes that were answered, by whomever
	// they were asked; those that were not answered clearly count in neither.
	Accepted, Refused int
	First, Last       time.Time // of these answers

	// Controls are the control probes of this very run, oldest first, at most
	// ControlsMax. Their attempts name no address: a control probe is nobody's. Those that
	// are witnesses are about other addresses that were accepted, and count in neither.
	Controls []Attempt
}

// Witnessed reports whether another address of the domain was accepted soon after an attempt, at the same host and
// from the same source. Then the attempt was not refused for what we are.
func (h *AcceptBehaviour) Witnessed(a *Attempt) bool {
	for i := range h.Controls {
		w := &h.Controls[i]
		if after := w.At.Sub(a.At); w.Witness && w.Code/100 == 2 && !w.Void && w.Host == a.Host && w.Source == a.Source &&
			after >= 0 && after <= WitnessWithin {
			return true
		}
	}
	return false
}

// CatchAll reports whether the domain accepts every address; known is false while that
// is not clear. One refusal of a mailbox that cannot exist shows that mailboxes are
// told apart; it takes ControlsEnough acceptances, and no refusal, to show that they
// are not.
func (h AcceptBehaviour) CatchAll() (catchAll, known bool) {
	switch {
	case h.Refused > 0:
		return false, true
	case h.Accepted >= ControlsEnough:
		return true, true
	}
	return false, false
}
