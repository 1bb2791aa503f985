package smtp

import (
	"io"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// The numbers are stored: a change here makes old ledgers lie.
func TestOutcomesKeepTheirNumbers(t *testing.T) {
	want := []string{"undecided", "valid", "invalid", "catch_all", "unknown", "error"}
	for i, name := range want {
		o := Outcome(i)
		effort.ErrorIf(t, o.String() != name || o.Final() != (i > 0) || o.Free() != (name == "unknown"),
			"%d: %v, final %v, free %v; want %s", i, o, o.Final(), o.Free(), name)
	}
	o := Outcome(len(want))
	effort.ErrorIf(t, o.Final() || o.String() != "outcome(6)", "%v is final", o)
	for _, o := range Outcomes {
		effort.ErrorIf(t, !o.Final(), "%v is shown but not final", o)
	}
}

func TestReasonsKeepTheirNumbers(t *testing.T) {
	want := strings.Fields(`none mailbox_exists accept_all no_rcpt_answer mailbox_not_found mailbox_disabled
		mailbox_full mailbox_restricted mailbox_busy domain_not_found no_mail_service domain_not_hosted syntax
		greylisted receiver_busy receiver_rate_limited source_blocked source_identity tls_failed timeout
		connection_failed protocol eai_unsupported policy harvest_guard internal dns_failed backup_only
		not_accepted intercepted not_simulated`)
	for i, token := range want {
		r := Reason(i)
		effort.Is(t, r.String(), token, i, r, "known")
		effort.Is(t, r.Known(), i > 0, i, r, "known")
		message := r.Message()
		effort.ErrorIf(t, r.Known() && (!strings.HasPrefix(message, token+" ") || !strings.HasSuffix(message, ".")),
			"%s: message %q", token, message)
		// The results show it in a cell: nothing there that a spreadsheet would run.
		if i > 0 && (strings.ContainsAny(message[:1], "=+-@") || strings.ContainsAny(message, "\"\r\n\t")) {
			t.Errorf("%s: message %q", token, message)
		}
	}
	r := Reason(len(want))
	effort.ErrorIf(t, r.Known() || r.Message() != Internal.Message() || r.String() != "reason(31)", "%v is known", r)
}

func TestFailureHidesTheReceiversText(t *testing.T) {
	const secret = "john@example.com"
	f := &Failure{Stage: StageMail, Reply: Reply{550, EnhancedCode{5, 7, 1}, []string{secret}}}
	effort.Is(t, f.Error(), "smtp: mail refused with 550 5.7.1")
	f = &Failure{Stage: StageConnect, Err: io.EOF}
	effort.ErrIs(t, f, io.EOF)
	effort.Is(t, f.Error(), "smtp: connect: EOF")
}
