package scheduler

import (
	"strconv"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// TestWhatIsRepeatedIsJudgedAsBefore: a reply that was said before has the judgement that it would have by
// itself, but for its time, and is judged anew by other rules and where it names who is asked.
func TestWhatIsRepeatedIsJudgedAsBefore(t *testing.T) {
	o := testOptions(openedWide())
	rules := verdict.Builtin()
	o.Rules = func() *verdict.Rules { return rules }
	var k Repeated
	asked, judged := 0, 0
	ask := func(code int, text, local string) {
		asked++
		address := smtp.Address{Local: local, Domain: "example.org"}
		answer := smtp.Answer{At: begin.Add(time.Duration(asked) * time.Second),
			Reply: smtp.Reply{Code: code, Lines: []string{text, "bye"}}}
		raw := evidence.Raw{At: answer.At, Host: "mx.example.org", Stage: smtp.StageRcpt, Reply: answer.Reply,
			Address: address, Source: "192.0.2.1", Hello: "probe.example"}
		got := k.Judge(&o, address, answer, func() evidence.Raw { judged++; return raw })
		if want := o.Judge(raw); got != want {
			t.Errorf("%d %s for %s: %+v, want %+v", code, text, local, got, want)
		}
	}
	expect := func(what string, want int) {
		t.Helper()
		effort.Is(t, judged, want, what, "judged times")
		judged = 0
	}
	for _, local := range []string{"anna", "a.b", "C.D"} {
		ask(250, "Ok", local)
		ask(550, "No such user", local)
		ask(450, "No such user", local)
	}
	expect("three replies", 3)
	ask(550, "user a.b unknown", "x")
	ask(550, "user a.b unknown", "y")
	expect("about somebody else", 1)
	ask(550, "user a.b unknown", "A.B")
	ask(550, "user a.b unknown", "a.ü")
	expect("about who is asked, or perhaps", 2)
	ask(550, "user <x@example.org> unknown", "x")
	ask(550, "user <y@example.org> unknown", "y")
	ask(550, "user <y@example.org> unknown", "x")
	expect("with the address of who is asked, and of another", 2)
	other := *rules
	rules = &other
	ask(250, "Ok", "anna")
	expect("by other rules", 1)
	for i := range 3 * repeatedMax {
		ask(550, "error "+strconv.Itoa(i), "anna")
	}
	if len(k.known) > repeatedMax {
		t.Errorf("%d replies are remembered", len(k.known))
	}
}
