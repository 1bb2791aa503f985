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
	before := controls(c.Habit.Controls)
	c.Habit.Controls = slices.Clone(c.Habit.Controls)
	for i := range c.Habit.Controls {
		r.Decide(&c.Habit.Controls[i])
	}
	// The counts are also of runs whose controls are not here: only what became
	// of these can change them.
	after := controls(c.Habit.Controls)
	c.Habit.Accepted = max(0, c.Habit.Accepted+after.accepted-before.accepted)
	c.Habit.Refused = max(0, c.Habit.Refused+after.refused-before.refused)
	outcome, reason := Conclude(c)
	return c, outcome, reason
}

// tally counts answers to control probes.
type tally struct{ accepted, refused int }

func controls(list []evidence.Attempt) (t tally) {
	for _, a := range list {
		switch accepted, refused := Control(a); {
		case accepted:
			t.accepted++
		case refused:
			t.refused++
		}
	}
	return t
}

// Control says what the answer to a control probe shows, from the verdict that it
// carries. Only a refusal of that very mailbox shows that mailboxes are told apart,
// and only an acceptance, or an answer that is given before delivery to nobody, that
// they are not. Anything else shows nothing; so does a refusal that proves that a
// mailbox exists, and one of a whole domain.
func Control(a evidence.Attempt) (accepted, refused bool) {
	if a.Stage != smtp.StageRcpt || a.Void {
		return false, false
	}
	switch a.Outcome {
	case smtp.Valid, smtp.CatchAll:
		return a.Code/100 == 2, false
	case smtp.Invalid:
		about := a.Reason == smtp.MailboxNotFound || a.Reason == smtp.MailboxDisabled || a.Reason == smtp.MailboxFull
		return false, about && a.Code >= 500
	}
	return false, false
}
