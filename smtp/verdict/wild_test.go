package verdict

import (
	"strings"
	"testing"

	"rollcall/smtp"
)

// draw gives every sentence that a form such as "(a|b) c" stands for.
func draw(t *testing.T, form string) []string {
	t.Helper()
	list, err := expand(form)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// judgeAt judges a reply to RCPT of a host.
func judgeAt(t *testing.T, reply, host string) Verdict {
	t.Helper()
	a, err := Sample("rcpt | "+reply, host)
	if err != nil {
		t.Fatalf("%q: %v", reply, err)
	}
	return Builtin().Judge(a)
}

// The size of a message says nothing about a mailbox, under any code at any host.
func TestSizeIsNotFullness(t *testing.T) {
	hosts := providerHosts(t)
	for _, code := range []string{"552 5.3.4 ", "552 5.2.3 ", "550 5.3.4 ", "554 5.2.3 ", "552 ", "550 5.0.0 ", "552 5.2.2 ", "452 4.3.4 "} {
		for _, text := range append(
			draw(t, "(Message|Your mail|E-mail|The attachment) (size exceeds|length exceeds|exceeds|exceeded|is larger than) (the|its|our) (limit|maximum size|quota)"),
			draw(t, "(Message|Mail|E-Mail|Letter|File) (|is )too (big|large|long)(| for this mailbox)")...) {
			for host := range hosts {
				if v := judgeAt(t, code+text, host); v.Outcome != smtp.Undecided || v.Reason == smtp.MailboxFull {
					t.Errorf("%s%s at %s: %s by %s", code, text, host, v.golden(), v.Rule)
				}
			}
		}
	}
	for _, text := range []string{"mailbox full", "over the quota", "Maximum size exceeded"} {
		for _, code := range []string{"552 5.3.4 ", "550 5.2.3 "} {
			if v := judgeAt(t, code+text, "mx.example.com"); v.Outcome != smtp.Undecided || v.Reason == smtp.MailboxFull {
				t.Errorf("%s%s: %s by %s", code, text, v.golden(), v.Rule)
			}
		}
	}
}

// Too many messages in a mailbox are its trouble; too many from us, or in a session, are ours.
func TestManyMessagesInAMailboxAreNotOurPace(t *testing.T) {
	full := append(draw(t, "(|There are |Sorry, )too (many messages|many mails|much mail) in (this|the|user's|recipient's) (mailbox|inbox|account)"),
		draw(t, "(|User's |This )(mailbox|account|inbox|folder) (has|holds|contains) too (many messages|many emails|much mail)")...)
	ours := draw(t, "(|You have sent )too many (messages|mails|emails) (from your host|in this session|per connection|in the last hour|sent)")
	for _, code := range []string{"552 ", "552 5.2.2 ", "550 ", "550 5.1.1 ", "554 5.0.0 ", "452 ", "450 4.2.2 ", "421 4.2.2 "} {
		for _, text := range full {
			v := judgeAt(t, code+text, "mx.example.com")
			if v.Reason != smtp.MailboxFull || v.Blame != smtp.BlameAddress || code[0] == '5' && (v.Outcome != smtp.Invalid || v.Bare) {
				t.Errorf("%s%s: %s by %s", code, text, v.golden(), v.Rule)
			}
		}
		for _, text := range ours {
			if v := judgeAt(t, code+text, "mx.example.com"); v.Blame == smtp.BlameAddress {
				t.Errorf("%s%s: %s by %s", code, text, v.golden(), v.Rule)
			}
		}
	}
}

// What refuses senders is no word about a mailbox that was closed, or whose directory lacks a name.
func TestWordsOfRefusalsInSentencesAboutMailboxes(t *testing.T) {
	for _, text := range append(
		draw(t, "(Mailbox|Account|User) (is |was |has been |)(blocked|closed|suspended) (for inactivity|due to inactivity|because of non-use|by administrator)"),
		draw(t, "(|The )(user|recipient) (|is )not listed in (the|our) (directory|company address book|user list)")...) {
		for _, code := range []string{"550 ", "550 5.1.1 ", "550 5.2.1 ", "553 "} {
			if v := judgeAt(t, code+text, "mx.example.com"); v.Outcome != smtp.Invalid || v.Bare {
				t.Errorf("%s%s: %s by %s", code, text, v.golden(), v.Rule)
			}
		}
		ours := strings.NewReplacer("Mailbox", "Your IP", "Account", "Your host", "User", "Sender", "user", "sender", "recipient", "IP").Replace(text)
		if v := judgeAt(t, "550 "+ours, "mx.example.com"); v.Outcome == smtp.Invalid && !v.Bare {
			t.Errorf("550 %s: %s by %s", ours, v.golden(), v.Rule)
		}
	}
}
