package verdict

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// said makes an attempt with a verdict as rules make it.
func said(host string, code int, outcome smtp.Outcome, reason smtp.Reason) evidence.Attempt {
	return evidence.Attempt{Stage: smtp.StageRcpt, Host: host, Code: code, Outcome: outcome, Reason: reason}
}

func TestConclude(t *testing.T) {
	yes := said("mx1", 250, smtp.Valid, smtp.MailboxExists)
	no := said("mx1", 550, smtp.Invalid, smtp.MailboxNotFound)
	later := said("mx1", 451, smtp.Undecided, smtp.Greylisted)
	relay1 := said("mx1", 550, smtp.Undecided, smtp.DomainNotHosted)
	relay2 := said("mx2", 521, smtp.Undecided, smtp.NoMailService)
	soft := said("mx2", 454, smtp.Undecided, smtp.DomainNotHosted)
	lying := relay2
	lying.Enhanced = smtp.EnhancedCode{4, 7, 1}
	void := func(a evidence.Attempt) evidence.Attempt {
		a.Void = true
		return a
	}
	list := func(a ...evidence.Attempt) []evidence.Attempt { return a }
	tells := evidence.AcceptBehaviour{Accepted: 2, Refused: 1}
	all := evidence.AcceptBehaviour{Accepted: evidence.ControlsEnough}
	unclear := evidence.AcceptBehaviour{Accepted: evidence.ControlsEnough - 1}
	for _, c := range []struct {
		name    string
		given   evidence.Case
		outcome smtp.Outcome
		reason  smtp.Reason
	}{
		{"nothing yet", evidence.Case{}, smtp.Undecided, smtp.ReasonNone},
		{"nothing ever", evidence.Case{GaveUp: true}, smtp.Unknown, smtp.Internal},
		{"no such domain", evidence.Case{NoRoute: smtp.DomainNotFound}, smtp.Invalid, smtp.DomainNotFound},
		{"null MX", evidence.Case{NoRoute: smtp.NoMailService}, smtp.Invalid, smtp.NoMailService},
		{"DNS is away", evidence.Case{NoRoute: smtp.DNSFailed}, smtp.Undecided, smtp.ReasonNone},
		{"DNS stays away", evidence.Case{NoRoute: smtp.DNSFailed, GaveUp: true}, smtp.Unknown, smtp.DNSFailed},
		{"refused", evidence.Case{Attempts: list(later, no)}, smtp.Invalid, smtp.MailboxNotFound},
		{"refused, void", evidence.Case{Attempts: list(void(no))}, smtp.Undecided, smtp.ReasonNone},
		{"void behind a deferral", evidence.Case{Attempts: list(later, void(no)), GaveUp: true}, smtp.Unknown,
			smtp.Greylisted},
		{"accepted, domain tells", evidence.Case{Attempts: list(yes), Behaviour: tells}, smtp.Valid, smtp.MailboxExists},
		{"accepted, as all", evidence.Case{Attempts: list(yes), Behaviour: all}, smtp.CatchAll, smtp.AcceptAll},
		{"accepted, unclear", evidence.Case{Attempts: list(yes), Behaviour: unclear}, smtp.Undecided, smtp.ReasonNone},
		{"accepted, never clear", evidence.Case{Attempts: list(yes), GaveUp: true, Why: smtp.TimedOut}, smtp.Unknown,
			smtp.TimedOut},
		{"deferred", evidence.Case{Attempts: list(later)}, smtp.Undecided, smtp.ReasonNone},
		{"deferred for ever", evidence.Case{Attempts: list(later), GaveUp: true}, smtp.Unknown, smtp.Greylisted},
		{"no time was left", evidence.Case{Attempts: list(later), GaveUp: true, Why: smtp.ReceiverRateLimited},
			smtp.Unknown, smtp.ReceiverRateLimited},
		{"one host of two denies", evidence.Case{Attempts: list(relay1), Hosts: 2}, smtp.Undecided, smtp.ReasonNone},
		{"both deny", evidence.Case{Attempts: list(relay1, relay2), Hosts: 2}, smtp.Invalid, smtp.NoMailService},
		{"both deny, how many is not known", evidence.Case{Attempts: list(relay1, relay2)}, smtp.Undecided, smtp.ReasonNone},
		{"the same twice", evidence.Case{Attempts: list(relay1, relay1), Hosts: 2}, smtp.Undecided, smtp.ReasonNone},
		{"one for now only", evidence.Case{Attempts: list(relay1, soft), Hosts: 2}, smtp.Undecided, smtp.ReasonNone},
		{"one by its enhanced code for now only", evidence.Case{Attempts: list(relay1, lying), Hosts: 2}, smtp.Undecided,
			smtp.ReasonNone},
		{"one changed its mind", evidence.Case{Attempts: list(relay1, relay2, soft), Hosts: 2}, smtp.Undecided,
			smtp.ReasonNone},
		{"one is void", evidence.Case{Attempts: list(void(relay1), relay2), Hosts: 2}, smtp.Undecided, smtp.ReasonNone},
	} {
		if outcome, reason := Conclude(c.given); outcome != c.outcome || reason != c.reason {
			t.Errorf("%s: %v %v, want %v %v", c.name, outcome, reason, c.outcome, c.reason)
		}
	}
}

// TestWhatGivesInvalid: whatever a case holds, invalid rests on what DNS said for good,
// on a last word about the address, or on a refusal for good by every host.
func TestWhatGivesInvalid(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		c := evidence.Case{Hosts: rapid.IntRange(0, 3).Draw(t, "hosts"), GaveUp: rapid.Bool().Draw(t, "gave up"),
			NoRoute: rapid.SampledFrom([]smtp.Reason{0, 0, 0, smtp.DNSFailed, smtp.NoMailService}).Draw(t, "no route")}
		for range rapid.IntRange(0, 5).Draw(t, "attempts") {
			a := said(rapid.SampledFrom([]string{"mx1", "mx2"}).Draw(t, "host"),
				rapid.SampledFrom([]int{0, 250, 450, 550}).Draw(t, "code"),
				rapid.SampledFrom([]smtp.Outcome{smtp.Undecided, smtp.Undecided, smtp.Valid}).Draw(t, "outcome"),
				rapid.SampledFrom([]smtp.Reason{smtp.DomainNotHosted, smtp.SourceBlocked, smtp.TimedOut}).Draw(t, "reason"))
			a.Void = rapid.Bool().Draw(t, "void")
			c.Add(a)
		}
		outcome, _ := Conclude(c)
		if outcome != smtp.Invalid || c.NoRoute == smtp.NoMailService {
			return
		}
		hosts := map[string]bool{}
		for _, a := range c.Attempts {
			if !a.Void && a.Code == 550 && a.Reason == smtp.DomainNotHosted {
				hosts[a.Host] = true
			}
		}
		effort.FatalIf(t, c.Hosts == 0 || len(hosts) < c.Hosts, "invalid from %+v", c)
	})
}

// TestADenialForNowIsNone draws refusals of missing mailboxes for now, with and without what the next host said:
// alone they are asked again and in the end unknown, and a refusal for good that is quoted twice is one. A reply
// about us, about a verification in progress or about trouble never is.
func TestADenialForNowIsNone(t *testing.T) {
	rules := Builtin()
	r := rand.New(rand.NewPCG(9, 28))
	codes := []string{"450 4.1.1", "451 4.1.1", "450 5.1.1", "450"}
	missing := []string{"User unknown in virtual mailbox table", "User unknown in local recipient table", "No such user here",
		"unknown user: \"john.doe@example.com\"", "Der Benutzer existiert nicht: user unknown"}
	hosts := []string{"host 10.0.0.5[10.0.0.5] said: ", "host mail.inner.example[192.0.2.9] said: "}
	quoted := []string{"550 5.1.1 User unknown", "550 No such user here", "554 5.1.1 <john.doe@example.com>: Recipient address rejected: User unknown"}
	others := []string{"Address verification in progress", "host 10.0.0.5[10.0.0.5] said: 550 5.7.1 Client host blocked",
		"host 10.0.0.5[10.0.0.5] said: 554 5.7.1 relay access denied", "connect to 10.0.0.5[10.0.0.5]:25: Connection timed out",
		"Greylisted, see http://postgrey.example.com", "host 10.0.0.5[10.0.0.5] said: 450 4.3.0 try again later"}
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	for range 500 {
		reply, denies, quotes := pick(codes)+" <john.doe@example.com>: Recipient address rejected: ", true, false
		switch r.IntN(3) {
		case 0:
			reply += pick(missing)
		case 1:
			reply += pick([]string{"undeliverable", "unverified"}) + " address: " + pick(hosts) + pick(quoted) + " (in reply to RCPT TO command)"
			quotes = true
		default:
			reply += pick([]string{"undeliverable", "unverified"}) + " address: " + pick(others)
			denies = false
		}
		parsed := effort.Must(ParseReply(reply))(t)
		a := evidence.Note(evidence.Raw{Stage: smtp.StageRcpt, Host: "mx.example.com", Reply: parsed, At: time.Now(),
			Address: smtp.Address{Local: "john.doe", Domain: "example.com"}})
		rules.Decide(&a)
		effort.Is(t, a.Outcome, smtp.Undecided, reply, a.Reason, a.Rule)
		effort.Is(t, a.Reason == smtp.NotAccepted, denies, reply)
		_, refused := Control(a)
		effort.ErrorIf(t, refused, "%s: refuses a control probe", reply)
		once := evidence.Case{Attempts: []evidence.Attempt{a}, Hosts: 1, GaveUp: true}
		o, _ := Conclude(once)
		effort.ErrorIf(t, o != smtp.Unknown, "%s: once %v", reply, o)
		want := smtp.Unknown
		if quotes {
			want = smtp.Invalid
		}
		twice := once
		twice.Attempts = append(twice.Attempts, a)
		o, _ = Conclude(twice)
		effort.ErrorIf(t, o != want, "%s: twice %v, want %v", reply, o, want)
		for name, other := range map[string]func(*evidence.Attempt){
			"at another host": func(b *evidence.Attempt) { b.Host = "mx2.example.com" },
			"void":            func(b *evidence.Attempt) { b.Void = true },
			"of others":       func(b *evidence.Attempt) { b.Others = true },
			"busy":            func(b *evidence.Attempt) { b.Reason = smtp.ReceiverBusy },
			"quoted for now": func(b *evidence.Attempt) {
				b.Text = strings.ReplaceAll(b.Text, " said: 5", " said: 4")
			},
		} {
			b := a
			other(&b)
			twice.Attempts[1] = b
			o, _ := Conclude(twice)
			effort.ErrorIf(t, o != smtp.Unknown, "%s, and then %s: %v", reply, name, o)
		}
	}
}
