package verdict

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Texts about us come under any code and behind any words: that is how a peer's own fault became "invalid mailbox"
// elsewhere. These are the codes and words that a receiver keeps for a mailbox that is not there.
var (
	mailboxCodes = []string{
		"550 ", "550 5.1.1 ", "551 ", "552 5.2.2 ", "553 ", "553 5.3.0 ", "554 5.7.1 ", "525 ", "556 ",
		"550 5.0.0 ", "550 5.1.0 ", "550 5.1.2 ", "550 5.1.3 ", "550 5.1.6 ", "550 5.1.10 ", "550 5.2.1 ",
		"550 5.4.1 ", "550 5.5.0 ",
	}
	mailboxOpenings = []string{
		"", "mailbox unavailable: ", "user unknown; ", "Recipient address rejected: ", "User does not exist - ",
		"<john.doe@example.com>: Recipient rejected, ",
	}
)

// ownFaults are the replies of testdata that are about us or about the receiver.
func ownFaults(t *testing.T) []goldenLine {
	t.Helper()
	list := goldenLines(t, "testdata/replies/public-own-faults.txt")
	effort.FatalIf(t, len(list) < 400, "only %d replies", len(list))
	return list
}

// relayOpenings refuse to relay, which at the only host of a domain comes to invalid.
var relayOpenings = []string{"", "Relaying denied - ", "Relay access denied; ", "We do not relay. "}

// What is about us is unknown in the end, at a domain's only host too; where its words say that it is about us,
// whatever is said of relays beside them.
func TestOwnFaultsAreUnknownAtTheOnlyHost(t *testing.T) {
	tells, tried := evidence.AcceptBehaviour{Accepted: 2, Refused: 1}, 0
	for _, line := range ownFaults(t) {
		if !strings.Contains(line.verdict, "| source |") {
			continue
		}
		code, text, _ := strings.Cut(line.reply, " ")
		plain, err := Sample("rcpt | "+line.reply, "mx.example.com")
		effort.OK(t, err, line.place)
		openings := relayOpenings[:1]
		switch Builtin().Judge(plain).Rule {
		case "blocked", "blocked-languages", "identity", "rate-hard":
			openings = relayOpenings
		}
		for _, opening := range openings {
			a, err := Sample("rcpt | "+code+" "+opening+text, "mx.example.com")
			effort.OK(t, err, line.place)
			Builtin().Decide(&a)
			for _, behaviour := range []evidence.AcceptBehaviour{{}, tells} {
				tried++
				c := evidence.Case{Attempts: []evidence.Attempt{a}, Hosts: 1, GaveUp: true, Behaviour: behaviour}
				outcome, reason := Conclude(c)
				effort.Is(t, outcome, smtp.Unknown, line.place, reason, "by", a.Rule, opening, text)
			}
		}
	}
	effort.ErrorIf(t, tried < 1000, "only %d were tried", tried)
}

// The words of every rule, inside a link, leave a reply's verdict what it is without the link. Left out are
// rules that read links.
func TestWordsInsideLinksDecideNothing(t *testing.T) {
	replies := []string{
		"550 5.1.1 <john.doe@example.com>: User unknown", "552 5.2.2 Mailbox full", "550 5.2.1 Account disabled", "550 Refused",
		"554 5.7.1 Refused", "450 4.2.0 Greylisted", "421 4.7.0 Too many connections", "250 2.1.5 Ok",
	}
	forms := []string{"%s See https://%s.example.org/x", "%s (http://www.example.org/%s.html?x=1)", "%s: help.example.org/%s/42",
		"%s www.example.org/#%s", "%s-https://example.org/a/%s", "%s 详情https://example.org/a/%s"}
	reads := regexp.MustCompile("spamhaus|spamcop|sorbs|uceprotect|barracuda|abuseat|spamauditor|proofpoint|cloudmark|vade|" +
		"sender(base|score)|talos|spfbl|abusix|mailspike|help-spam|nosuchuser|receiving|rate-that|account.*reach|no-such-user")
	t.Parallel()
	tried, try := 0, effort.EveryNth(7)
	for _, r := range Builtin().rules {
		for _, phrase := range r.phrases {
			word := strings.ReplaceAll(strings.Trim(phrase, "*^\\ "), " ", "-")
			if reads.MatchString(word) || !isASCII(word) {
				continue
			}
			for i, reply := range replies {
				for _, host := range []string{"mx.example.com", "mta5.am0.yahoodns.net", "gmail-smtp-in.l.google.com"} {
					if tried++; !try() {
						continue
					}
					form := fmt.Sprintf(forms[(tried+i)%len(forms)], reply, word)
					with, err := Sample("rcpt | "+form, host)
					without, err2 := Sample("rcpt | "+reply, host)
					if got, want := Builtin().Judge(with).golden(), Builtin().Judge(without).golden(); err != nil || err2 != nil || got != want {
						t.Errorf("%s at %s: %s, without the link %s; %v %v", form, host, got, want, err, err2)
					}
				}
			}
		}
	}
	effort.ErrorIf(t, tried < 50_000, "only %d were tried", tried)
}
