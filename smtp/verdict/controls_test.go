package verdict

import (
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// TestControl: only an answer about that very mailbox shows something.
func TestControl(t *testing.T) {
	for _, c := range []struct {
		name    string
		stage   smtp.Stage
		code    int
		outcome smtp.Outcome
		reason  smtp.Reason
		void    bool
		want    [2]bool
	}{
		{"accepted", smtp.StageRcpt, 250, smtp.Valid, smtp.MailboxExists, false, [2]bool{true, false}},
		{"answered to nobody", smtp.StageRcpt, 252, smtp.CatchAll, smtp.NoRcptAnswer, false, [2]bool{true, false}},
		{"accepted and void", smtp.StageRcpt, 250, smtp.Valid, smtp.MailboxExists, true, [2]bool{}},
		{"refused, so it exists", smtp.StageRcpt, 450, smtp.Valid, smtp.MailboxBusy, false, [2]bool{}},
		{"refused for its list", smtp.StageRcpt, 550, smtp.CatchAll, smtp.MailboxRestricted, false, [2]bool{}},
		{"missing", smtp.StageRcpt, 550, smtp.Invalid, smtp.MailboxNotFound, false, [2]bool{false, true}},
		{"disabled", smtp.StageRcpt, 550, smtp.Invalid, smtp.MailboxDisabled, false, [2]bool{false, true}},
		{"full", smtp.StageRcpt, 552, smtp.Invalid, smtp.MailboxFull, false, [2]bool{false, true}},
		{"missing and void", smtp.StageRcpt, 550, smtp.Invalid, smtp.MailboxNotFound, true, [2]bool{}},
		{"missing for now", smtp.StageRcpt, 450, smtp.Invalid, smtp.MailboxNotFound, false, [2]bool{}},
		{"another domain's", smtp.StageRcpt, 550, smtp.Invalid, smtp.DomainNotHosted, false, [2]bool{}},
		{"no mail at all", smtp.StageRcpt, 556, smtp.Invalid, smtp.NoMailService, false, [2]bool{}},
		{"not at RCPT", smtp.StageMail, 250, smtp.Valid, smtp.MailboxExists, false, [2]bool{}},
		{"again", smtp.StageRcpt, 450, smtp.Undecided, smtp.Greylisted, false, [2]bool{}},
	} {
		accepted, refused := Control(evidence.Attempt{Stage: c.stage, Code: c.code, Outcome: c.outcome,
			Reason: c.reason, Void: c.void})
		effort.Is(t, [2]bool{accepted, refused}, c.want, c.name)
	}
}
