package verdict

import (
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Control reports what the answer to a control probe shows, by its verdict. Only a refusal of that mailbox shows
// that the receiver tells mailboxes apart. Only an acceptance shows that it does not. Anything else shows nothing,
// such as a refusal that proves that a mailbox exists, a refusal of a whole domain, or a bare refusal.
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
