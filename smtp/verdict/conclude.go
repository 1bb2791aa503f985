package verdict

import (
	"strings"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Conclude returns the outcome of a case and its reason, from the verdicts of its attempts. It is pure, and the only
// place where an outcome is made: the engine and every replay call it. smtp.Undecided means that the case is not
// closed.
func Conclude(c evidence.Case) (smtp.Outcome, smtp.Reason) {
	if c.NoRoute != smtp.ReasonNone {
		return withoutRoute(c)
	}
	last, asked := c.Last()
	switch {
	case !asked:
		return open(c, smtp.Internal)
	case last.Outcome == smtp.Valid:
		return acceptance(c, last)
	case last.Outcome == smtp.Invalid && last.Bare && !c.Behaviour.Witnessed(&last):
		return open(c, smtp.Policy)
	case last.Outcome != smtp.Undecided:
		return last.Outcome, last.Reason
	case quotedTwice(c):
		return smtp.Invalid, smtp.MailboxNotFound
	case c.Hosts > 0 && denials(c) >= c.Hosts:
		return smtp.Invalid, last.Reason
	}
	return open(c, last.Reason)
}

// withoutRoute returns the outcome without a route: a definite answer of DNS is invalid (RFC 5321 §5.1, RFC 7505
// §3); no answer is a temporary fault of ours or of the domain.
func withoutRoute(c evidence.Case) (smtp.Outcome, smtp.Reason) {
	switch c.NoRoute {
	case smtp.DomainNotFound, smtp.NoMailService:
		return smtp.Invalid, c.NoRoute
	case smtp.NotSimulated:
		return smtp.Unknown, c.NoRoute
	}
	return open(c, c.NoRoute)
}

// acceptance returns the outcome of an acceptance, which depends on the domain's accept behaviour.
func acceptance(c evidence.Case, last evidence.Attempt) (smtp.Outcome, smtp.Reason) {
	switch catchAll, known := c.Behaviour.CatchAll(); {
	case !known:
		return open(c, last.Reason)
	case catchAll:
		return smtp.CatchAll, smtp.AcceptAll
	}
	return smtp.Valid, last.Reason
}

// open returns the outcome of a case that is not closed: unknown, once the engine has given up.
func open(c evidence.Case, reason smtp.Reason) (smtp.Outcome, smtp.Reason) {
	switch {
	case !c.GaveUp:
		return smtp.Undecided, smtp.ReasonNone
	case c.Why != smtp.ReasonNone:
		return smtp.Unknown, c.Why
	}
	return smtp.Unknown, reason
}

// quotedTwice reports whether the two newest attempts at an address are temporary refusals that quote a permanent
// refusal of the mailbox by the next host, as Postfix sends after its probes (unverified_recipient_reject_code).
func quotedTwice(c evidence.Case) bool {
	n, host := 0, ""
	for i := len(c.Attempts) - 1; i >= 0 && n < 2; i-- {
		a := &c.Attempts[i]
		if a.Void {
			continue
		}
		if a.Reason != smtp.NotAccepted || a.Others || !quotesRefusal(a.Text) || n > 0 && a.Host != host {
			return false
		}
		n, host = n+1, a.Host
	}
	return n == 2
}

// quotesRefusal reports whether a cleaned text quotes another host's permanent refusal.
func quotesRefusal(text string) bool {
	for _, said := range []string{" said: ", " was: ", " responded: ", " replied: "} {
		_, quoted, found := strings.Cut(text, said)
		if found && len(quoted) > 3 && quoted[0] == '5' && quoted[1] >= '0' && quoted[1] <= '9' && quoted[2] >= '0' &&
			quoted[2] <= '9' && !strings.HasPrefix(quoted[3:], " 4.") {
			return true
		}
	}
	return false
}

// Denies reports whether an attempt is its host's permanent statement that it takes no mail, or none for the domain.
// The code and the enhanced code must both be permanent.
func Denies(a evidence.Attempt) bool {
	return a.Code/100 == 5 && a.Enhanced[0] != 4 && a.Outcome == smtp.Undecided &&
		(a.Reason == smtp.DomainNotHosted || a.Reason == smtp.NoMailService)
}

// denials counts the hosts whose newest reply says that they take no mail, or none for the domain (RFC 7504 §4).
func denials(c evidence.Case) int {
	denied := map[string]bool{}
	for _, a := range c.Attempts {
		if !a.Void {
			denied[a.Host] = Denies(a)
		}
	}
	n := 0
	for _, no := range denied {
		if no {
			n++
		}
	}
	return n
}
