package verdict

import (
	"slices"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Replay judges all attempts of a case anew, and the control probes of its run, and
// concludes. c stays as it is. smtp.Undecided means that these rules would have gone
// on asking.
//
// All of the evidence counts, also where these rules would have stopped asking at an
// earlier attempt. What no rule decides stays: that an attempt was void, the route,
// and that the engine gave up.
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
	// The counts are also of runs whose controls are not here: only what became
	// of these can change them.
	after := Controls(&c.Behaviour)
	c.Behaviour.Accepted = max(0, c.Behaviour.Accepted+after.Accepted-before.Accepted)
	c.Behaviour.Refused = max(0, c.Behaviour.Refused+after.Refused-before.Refused)
	outcome, reason := Conclude(c)
	return c, outcome, reason
}

// Tally counts answers to control probes.
type Tally struct{ Accepted, Refused int }

// Controls counts the answers to the control probes that a behaviour has. A refusal in bare
// words counts when a witness stands by it.
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

// Control says what the answer to a control probe shows, from the verdict that it
// carries. Only a refusal of that very mailbox shows that mailboxes are told apart,
// and only an acceptance, or an answer that is given before delivery to nobody, that
// they are not. Anything else shows nothing; so does a refusal that proves that a
// mailbox exists, one of a whole domain, and one in bare words: see Controls.
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
