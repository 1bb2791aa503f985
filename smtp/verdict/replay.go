package verdict

import (
	"slices"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Replay judges all attempts of a case and the control probes of its run again, and concludes. It does not change c.
// smtp.Undecided means that with these rules the engine would have continued.
//
// All evidence counts, even if these rules would have stopped asking earlier. Facts that no rule decides stay: void
// attempts, the route, and that the engine gave up.
func (r *Rules) Replay(c evidence.Case) (evidence.Case, smtp.Outcome, smtp.Reason) {
	c.Attempts = slices.Clone(c.Attempts) // cases that were unpacked together share the controls
	for i := range c.Attempts {
		r.Decide(&c.Attempts[i])
	}
	before := Controls(&c.Behaviour)
	c.Behaviour.Controls = slices.Clone(c.Behaviour.Controls)
	for i := range c.Behaviour.Controls {
		r.Decide(&c.Behaviour.Controls[i])
	}
	// The counts include earlier runs, whose controls are not here. So only add the difference of these controls.
	after := Controls(&c.Behaviour)
	c.Behaviour.Accepted = max(0, c.Behaviour.Accepted+after.Accepted-before.Accepted)
	c.Behaviour.Refused = max(0, c.Behaviour.Refused+after.Refused-before.Refused)
	outcome, reason := Conclude(c)
	return c, outcome, reason
}

// Tally counts answers to control probes.
type Tally struct{ Accepted, Refused int }

// Controls counts the answers to a behaviour's control probes. A bare refusal counts only with a witness.
func Controls(h *evidence.AcceptBehaviour) (t Tally) {
	for i := range h.Controls {
		a := h.Controls[i]
		a.Bare = a.Bare && !h.Witnessed(&a)
		switch accepted, refused := Control(a); {
		case accepted:
			t.Accepted++
		case refused:
			t.Refused++
		}
	}
	return t
}

// Control reports what the answer to a control probe shows, by its verdict. Only a refusal of that mailbox shows
// that the receiver tells mailboxes apart. Only an acceptance shows that it does not. Anything else shows nothing,
// such as a refusal that proves that a mailbox exists, a refusal of a whole domain, or a bare refusal (see Controls).
func Control(a evidence.Attempt) (accepted, refused bool) {
	if a.Stage != smtp.StageRcpt || a.Void || a.Witness {
		return false, false
	}
	switch a.Outcome {
	case smtp.Valid, smtp.CatchAll:
		return a.Code/100 == 2, false
	case smtp.Invalid:
		about := a.Reason == smtp.MailboxNotFound || a.Reason == smtp.MailboxDisabled || a.Reason == smtp.MailboxFull
		return false, about && a.Code >= 500 && !a.Bare
	}
	return false, false
}
