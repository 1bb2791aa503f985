package verification

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// TestWhatACustomerIsToldOfAWait: who is waited for, why, and until when.
func TestWhatACustomerIsToldOfAWait(t *testing.T) {
	soon, late := noon.Add(2*time.Hour+4*time.Minute+time.Second), noon.Add(30*time.Hour)
	at := func(n int, receiver, cause string) inspect.Wait {
		return inspect.Wait{Addresses: n, For: inspect.ForReceiver, Receiver: receiver, Cause: cause}
	}
	again := func(n int, receiver string, r smtp.Reason) inspect.Wait {
		return inspect.Wait{Addresses: n, For: inspect.ForRetry, Receiver: receiver, Reason: r.String()}
	}
	budget := at(29812, "mx.example", "budget")
	budget.PerHour = 20
	free := at(3, "mx.example", "free")
	free.PerHour = 20
	tomorrow := noon.AddDate(0, 0, 1).Format("2 January")
	for _, c := range []struct {
		waits  []inspect.Wait
		finish time.Time
		want   string
	}{
		{[]inspect.Wait{budget}, soon, "29,812 addresses wait for mx.example, which takes only a few refusals an hour from strangers " +
			"(we ask about 20 addresses an hour); the last is expected at 14:05 UTC."},
		{[]inspect.Wait{again(1, "a.example", smtp.Greylisted)}, soon,
			"1 address waits for a.example, which makes strangers come back later (greylisting); it is expected at 14:05 UTC."},
		{[]inspect.Wait{at(2, "a.example", "paused"), at(1, "b.example", "penalty")}, time.Time{},
			"2 addresses wait for a.example, where our operators have paused the work, and 1 for another receiver; " +
				"nobody can say when the last will be done."},
		{[]inspect.Wait{at(1, "a.example", "unreached")}, time.Time{},
			"1 address waits for a.example, whose mail servers we cannot reach; nobody can say when it will be done."},
		{[]inspect.Wait{at(30, "b.example", "penalty"), at(20, "a.example", "connections"), again(15, "a.example", smtp.ReceiverBusy),
			at(10, "c.example", "allowance")}, late,
			"35 addresses wait for a.example, to which no more connections may be opened now, and 40 for 2 other receivers; " +
				"the last is expected tomorrow, 3 January, at 18:00 UTC."},
		{[]inspect.Wait{at(3, "a.example", "no share"), at(3, "a.example", "no share")}, late,
			"6 addresses wait for a.example, which this service cannot ask at the moment; " +
				"the last is expected tomorrow, 3 January, at 18:00 UTC."},
		{[]inspect.Wait{free, {Addresses: 1, For: inspect.ForControl, Receiver: "b.example"}, {Addresses: 9, For: inspect.ForLedger}}, soon,
			"3 addresses wait for mx.example, which is being asked now, and 1 for another receiver; " +
				"the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 4, For: inspect.ForControl, Receiver: "b.example"}, {Addresses: 1, For: inspect.ForRoute}}, soon,
			"4 addresses wait for b.example, where we first find out whether every address is accepted, and 1 waits for " +
				"something else; the last is expected at 14:05 UTC."},
		{[]inspect.Wait{again(2, "", smtp.DNSFailed), at(1, "b.example", "no healthy source")}, soon,
			"2 addresses wait for their receiver, whose name servers did not answer, and 1 for another receiver; " +
				"the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 5, For: inspect.ForDomain}, again(4, "a.example", smtp.NoRcptAnswer)}, soon,
			"5 addresses wait for their turn, and 4 for another receiver; the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 1, For: inspect.ForRoute}}, noon.Add(-time.Hour),
			"1 address waits for an answer from name servers; it is expected at 12:00 UTC."},
		{[]inspect.Wait{at(2, "a.example\x1b[2J", "penalty"), again(1, "a@b.example", smtp.Syntax)}, soon,
			"2 addresses wait for their receiver, which wanted us to slow down, and 1 waits for something else; " +
				"the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, noon.Add(19*time.Hour + 12*time.Minute),
			"What is left waits for its receivers; the last is expected tomorrow, " + tomorrow + ", at 07:12 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, noon.Add(71*time.Hour + 12*time.Minute),
			"What is left waits for its receivers; the last is expected on 5 January 2030 at 12:00 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, noon.Add(24*time.Hour + 12*time.Minute),
			"What is left waits for its receivers; the last is expected tomorrow, " + tomorrow + ", at 13:00 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, soon,
			"What is left waits for its receivers; the last is expected at 14:05 UTC."},
	} {
		if got := (survey{at: noon, waits: c.waits, finish: c.finish}).sentence(); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.waits, got, c.want)
		}
	}
}

// TestEachCauseAndReasonIsTold in words of its own.
func TestEachCauseAndReasonIsTold(t *testing.T) {
	told := map[string]string{}
	for _, cause := range inspect.Causes {
		w := inspect.Wait{For: inspect.ForReceiver, Cause: cause}
		if text := waitSentence(w); text == "" || told[text] != "" {
			t.Errorf("%s is told as %q, as %q is", cause, text, told[text])
		} else {
			told[text] = cause
		}
	}
	for r, text := range putOff {
		w := inspect.Wait{For: inspect.ForRetry, Reason: r.String()}
		if waitSentence(w) != text || told[text] != "" || text == putOffAnyhow {
			t.Errorf("%s is told as %q, want %q, as %q is", r, waitSentence(w), text, told[text])
		}
		told[text] = r.String()
	}
}

// TestWhatIsToldFitsIntoTheLedger, whatever is waited for: one sentence, without an address.
func TestWhatIsToldFitsIntoTheLedger(t *testing.T) {
	name := strings.Repeat("long-label.", 23)[:nameMax]
	reason := func(t *rapid.T) string { return smtp.Reason(rapid.IntRange(0, 40).Draw(t, "reason")).String() }
	wait := rapid.Custom(func(t *rapid.T) inspect.Wait {
		what := rapid.SampledFrom([]string{inspect.ForRoute, inspect.ForReceiver, inspect.ForRetry, inspect.ForControl, inspect.ForDomain,
			inspect.ForLedger, "something new"})
		return inspect.Wait{Addresses: rapid.SampledFrom([]int{0, 1, 2, 10_000_000}).Draw(t, "addresses"),
			For: what.Draw(t, "for"), Reason: reason(t),
			Receiver: rapid.SampledFrom([]string{"", name, "mx.example", "x@y.example", name + "x", "ä.example", "\x00"}).Draw(t, "receiver"),
			Cause:    rapid.SampledFrom(append(inspect.Causes[:], "", "something new")).Draw(t, "cause"),
			PerHour:  rapid.SampledFrom([]int{0, 1, 1 << 40}).Draw(t, "per hour")}
	})
	effort.Check(t, func(t *rapid.T) {
		s := survey{at: noon, waits: rapid.SliceOfN(wait, 0, 6).Draw(t, "waits"),
			finish: noon.Add(time.Duration(rapid.IntRange(-1, 1000).Draw(t, "hours")) * time.Hour)}
		if rapid.Bool().Draw(t, "nobody knows") {
			s.finish = time.Time{}
		}
		text := s.sentence()
		if err := ledger.CheckWhy(text); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		plain := strings.ReplaceAll(strings.ReplaceAll(text, name, ""), "mx.example", "")
		if strings.ContainsAny(plain, "@\x00ä\n") || strings.Count(plain, ".") != 1 || !strings.HasSuffix(plain, ".") {
			t.Fatalf("no sentence for customers: %q", text)
		}
	})
}
