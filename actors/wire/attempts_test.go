package wire

import (
	"rollcall/config/effort"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// attemptsOf reads one answer of a message.
func attemptsOf(r *Results, a *Answer) []evidence.Attempt {
	reader := NewReader(&Results{Texts: r.Texts, Answers: []*Answer{a}})
	return reader.AttemptsOf(a)
}

// checkAttempts fails when the attempts of an answer are not within their bounds.
func checkAttempts(t *testing.T, r *Results, a *Answer) {
	t.Helper()
	attempts := attemptsOf(r, a)
	effort.ErrorIf(t, len(attempts) > evidence.AttemptsMax, "%d attempts", len(attempts))
	for _, one := range attempts {
		effort.ErrorIf(t, one.Stage > smtp.StageRset || !one.Trouble.Known() || one.Outcome > smtp.Error ||
			!one.Blame.Known() || one.Reason != smtp.ReasonNone && !one.Reason.Known() || one.Code < 0 ||
			one.Code > 999 || len(one.Text) > evidence.TextMax ||
			max(len(one.Host), len(one.Source), len(one.Rule)) > evidence.NameMax || !one.Cause.Scope.Known() ||
			len(one.Cause.Why) > evidence.WhyMax, "%+v", one)
	}
}

// TestAttemptsTravel: they arrive as they were sent, and what they share is sent once.
func TestAttemptsTravel(t *testing.T) {
	at := time.Date(2026, 11, 20, 9, 0, 0, 1e6, time.UTC)
	sent := []evidence.Attempt{
		{At: at, Stage: smtp.StageGreeting, Host: "mx1.example", Source: "192.0.2.1", Trouble: evidence.TroubleTimeout,
			Reason: smtp.TimedOut, Blame: smtp.BlameReceiver, Rule: "no-reply-timeout",
			Cause: evidence.NewCause(evidence.ScopeReceiver, "3 of the last 3 new addresses got nothing")},
		{At: at.Add(time.Second), Stage: smtp.StageRcpt, Host: "mx2.example", Source: "192.0.2.1", TLS: true, Wide: true,
			Void: true, Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 606}, Text: "user unknown", Outcome: smtp.Invalid,
			Reason: smtp.MailboxNotFound, Blame: smtp.BlameAddress, Rule: "not-found", Version: 1<<32 - 1},
		{At: at.Add(time.Minute), Stage: smtp.StageRcpt, Host: "mx2.example", Source: "192.0.2.1", Code: 250,
			Text: "ok", Outcome: smtp.Valid, Reason: smtp.MailboxExists, Rule: "accepted"},
	}
	var texts Texts
	r := &Results{Answers: []*Answer{{Ordinal: 1, Attempts: texts.Attempts(sent)},
		{Ordinal: 2, Attempts: texts.Attempts(sent)}, {Ordinal: 3}}}
	r.Texts = texts.List()
	if want := 9; len(r.Texts) != want { // two hosts, a source, three rules, two texts, a cause
		t.Errorf("%d texts, want %d: %q", len(r.Texts), want, r.Texts)
	}
	got := passed(t, r)
	for i, want := range [][]evidence.Attempt{sent, sent, {}} {
		effort.Same(t, attemptsOf(got, got.Answers[i]), want, "answer", i)
	}
}

// TestAttemptsOfNewerProgramsAreReadAsFarAsTheyAreKnown: nothing is out of bounds.
func TestAttemptsOfNewerProgramsAreReadAsFarAsTheyAreKnown(t *testing.T) {
	big := uint32(1<<32 - 1)
	odd := &Attempt{AtMs: 1, Stage: big, Host: 1, Source: 2, Rule: big, Text: 1, Flags: big, Code: big, Enhanced: big,
		Trouble: big, Outcome: big, Reason: big, Blame: big, Cause: big, Why: 1}
	r := &Results{Texts: [][]byte{[]byte(strings.Repeat("x", 5000))}}
	a := &Answer{Attempts: []*Attempt{odd}}
	checkAttempts(t, r, a)
	got := attemptsOf(r, a)[0]
	want := evidence.Attempt{At: time.UnixMilli(1).UTC(), Host: strings.Repeat("x", evidence.NameMax),
		Text: strings.Repeat("x", evidence.TextMax), TLS: true, Wide: true, Void: true, Others: true, Bare: true}
	effort.Same(t, got, want)
	for range evidence.AttemptsMax + 3 {
		a.Attempts = append(a.Attempts, &Attempt{Code: 550})
	}
	if all := attemptsOf(r, a); len(all) != evidence.AttemptsMax || all[0].Code != 550 {
		t.Errorf("%d attempts, first %+v", len(all), all[0])
	}
}

func TestGreylistedProbes(t *testing.T) {
	for _, from := range []string{"192.0.2.1", "2001:db8::1", ""} {
		p := &Probe{Local: "anna"}
		_, _, ok := p.Greylisted()
		effort.ErrorIf(t, ok, "a new probe was greylisted")
		p.Greylist(5*time.Minute, from)
		ago, got, ok := passed(t, p).Greylisted()
		effort.ErrorIf(t, !ok || ago != 5*time.Minute || got != from, "%q: %v, %q, %v", from, ago, got, ok)
	}
	p := &Probe{}
	p.Greylist(0, "no address")
	ago, from, ok := p.Greylisted()
	effort.ErrorIf(t, !ok || ago != time.Millisecond || from != "", "%v, %q, %v", ago, from, ok)
	n := proto.Size(p)
	effort.ErrorIf(t, n > 10, "%d bytes", n)
}
