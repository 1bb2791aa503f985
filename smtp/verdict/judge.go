package verdict

import (
	"strings"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Decide judges a and writes the verdict into it.
func (r *Rules) Decide(a *evidence.Attempt) Verdict {
	v := r.Judge(*a)
	a.Outcome, a.Bare, a.Reason, a.Blame, a.Rule, a.Version = v.Outcome, v.Bare, v.Reason, v.Blame, v.Rule, v.Version
	return v
}

// Judge returns the verdict on a. It is pure, and total: any attempt has a verdict; without a matching rule it is
// "again".
//
// After ActNextMX at the last host of the route: DomainNotHosted and NoMailService from every host mean invalid;
// anything else means to ask again later. ActSplit for the only RCPT of a transaction means ActRetry.
func (r *Rules) Judge(a evidence.Attempt) Verdict {
	if a.Code == 0 {
		v := noReply(&a)
		v.Version = builtinVersion
		return v
	}
	if a.Stage == smtp.StageRcpt && a.Code == 250 && !r.hosts.look(a.Host) { // the most frequent answer
		return r.accepted
	}
	v := r.judge(&a, r.hosts.of(a.Host))
	guessed := v.Rule == "450" // only the code suggests greylisting
	if (v.Reason == smtp.ReceiverBusy && v.Action == ActRetry || guessed) && r.deniesForNow(a) {
		v.Reason, v.Blame, v.Action = smtp.NotAccepted, smtp.BlameAddress, ActRetry
	}
	return v
}

// deniesForNow reports whether a temporary refusal would say "missing mailbox" if it were permanent. Some servers
// never refuse a mailbox permanently, such as Postfix for recipients that it could not verify (RFC 5321 §4.2.1
// leaves the choice to them). It decides nothing by itself: see evidence.Case.
func (r *Rules) deniesForNow(a evidence.Attempt) bool {
	if a.Stage != smtp.StageRcpt || a.Code/10 != 45 {
		return false
	}
	if a.Code += 100; a.Enhanced[0] == 4 {
		a.Enhanced[0] = 5
	}
	a.Text = strings.Replace(a.Text, "unverified address: ", "undeliverable address: ", 1) // Postfix; the cause follows
	v := r.judge(&a, &r.hosts.everywhere)                                                  // not the rules of one host
	return v.Outcome == smtp.Invalid && !v.Bare && v.Reason == smtp.MailboxNotFound
}

// notAnAnswer is the verdict on replies that are not allowed at their stage, such as 354 to RCPT.
var notAnAnswer = Verdict{
	Reason: smtp.Protocol, Blame: smtp.BlameReceiver, Action: ActRetry, Rule: "not-an-answer",
	Version: builtinVersion,
}

func noReply(a *evidence.Attempt) Verdict {
	v := Verdict{Blame: smtp.BlameReceiver, Action: ActRetry}
	switch a.Trouble {
	case evidence.TroubleMalformed:
		return Verdict{Outcome: smtp.Unknown, Reason: smtp.Internal, Rule: "no-reply-malformed"}
	case evidence.TroubleNoUTF8: // RFC 6531 §3.2: another host may offer it
		v.Reason, v.Action, v.Rule = smtp.EAIUnsupported, ActNextMX, "no-reply-eai"
		return v
	case evidence.TroubleForbidden:
		v.Reason, v.Blame, v.Rule = smtp.ConnectionFailed, smtp.BlameDomain, "no-reply-forbidden"
	case evidence.TroubleNoTLS:
		v.Reason, v.Action, v.Rule = smtp.TLSFailed, ActNextMX, "no-reply-starttls"
	case evidence.TroubleProtocol:
		v.Reason, v.Rule = smtp.Protocol, "no-reply-protocol"
	case evidence.TroubleTimeout:
		v.Reason, v.Rule = smtp.TimedOut, "no-reply-timeout"
	case evidence.TroubleConnection:
		v.Reason, v.Rule = smtp.ConnectionFailed, "no-reply-connection"
		if a.Stage == smtp.StageTLS {
			v.Reason, v.Rule = smtp.TLSFailed, "no-reply-tls"
		}
	case evidence.TroubleIntercepted:
		v.Reason, v.Rule = smtp.Intercepted, "no-reply-intercepted"
	default: // we ended it, or never began
		return Verdict{Reason: smtp.Internal, Action: ActRetry, Rule: "no-reply-internal"}
	}
	if a.Stage == smtp.StageConnect || a.Stage == smtp.StageGreeting || a.Stage == smtp.StageHello {
		v.Action = ActNextMX // RFC 5321 §5.1: this host is out of order now
	}
	return v
}
