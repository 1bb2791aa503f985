package verdict

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// TestADenialForNowIsNone draws refusals of missing mailboxes for now, with and without what the next host said:
// alone they are asked again and in the end unknown, and a refusal for good that is quoted twice is one. What
// speaks of us, of a verification that goes on or of trouble never is.
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
		if o, _ := Conclude(once); o != smtp.Unknown {
			t.Errorf("%s: once %v", reply, o)
		}
		want := smtp.Unknown
		if quotes {
			want = smtp.Invalid
		}
		twice := once
		twice.Attempts = append(twice.Attempts, a)
		if o, _ := Conclude(twice); o != want {
			t.Errorf("%s: twice %v, want %v", reply, o, want)
		}
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
			if o, _ := Conclude(twice); o != smtp.Unknown {
				t.Errorf("%s, and then %s: %v", reply, name, o)
			}
		}
	}
}
