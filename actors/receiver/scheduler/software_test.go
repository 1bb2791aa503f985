package scheduler

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// showing is what hosts show whose software is known to count within a session.
var showing = []throttle.Shown{{Greeting: "mx1.example ESMTP Postfix (Debian)"}, {Greeting: "mx1.example ESMTP Exim 4.98"},
	{Greeting: "mx1.example ESMTP Sendmail 8.18"}, {Greeting: "mx1.example ESMTP Haraka/3.0 ready"},
	{Greeting: "mx1.example ESMTP", Hello: "mx1.example Hello [192.0.2.1], Haraka is at your service. SIZE 0"},
	{Greeting: "mx1.example Microsoft ESMTP MAIL Service ready"}, {Greeting: "mx1.example ESMTP", Hello: "mx1.example XRDST"},
	{Greeting: "mx1.example ESMTP chasquid"}, {Greeting: "mx1.example ESMTP OpenSMTPD"}}

// byDefault is Options.Said for receivers without rules: every field comes from the default.
func byDefault(string, throttle.Field) []throttle.Said {
	return []throttle.Said{{Origin: throttle.Origin{Layer: throttle.LayerDefault}}}
}

// TestKnownSoftwareIsAskedBelowWhatItCounts: whatever mix of answers it gives, no session has more errors than
// the software is known to bear, greylisting included; and no hour holds anybody up.
func TestKnownSoftwareIsAskedBelowWhatItCounts(t *testing.T) {
	for seed := range effort.Seeds(t, 20) {
		r := rand.New(rand.NewPCG(seed, 3))
		shows := showing[r.IntN(len(showing))]
		bears := throttle.SoftwareOf(shows)
		w := newWorld(t, stranger(), seed)
		w.shown = map[string]throttle.Shown{"mx1": shows}
		w.scheduler.options.Said = byDefault
		refused, putOff, grey := r.Float64(), 0.2*r.Float64(), 0.2*r.Float64()
		errors, most := map[*simSession]int{}, 0
		w.reply = func(_ *Probe, s *simSession) smtp.Reply {
			reply := smtp.Reply{Code: 250}
			switch x := w.rand.Float64(); {
			case x < grey:
				reply = smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"greylisted"}}
			case x < grey+putOff:
				reply = smtp.Reply{Code: 452, Enhanced: smtp.EnhancedCode{4, 2, 2}, Lines: []string{"mailbox full"}}
			case x < grey+putOff+refused:
				reply = noSuchUser
			}
			if reply.Code != 250 {
				errors[s]++
				most = max(most, errors[s])
			}
			return reply
		}
		answers := w.heard()
		w.offer(offerOf(1, "d.example", 1, 200, hosts("mx1")))
		w.run(begin.Add(20 * time.Minute))
		if most > bears.PerSession || most == 0 {
			t.Errorf("seed %d, %s: %d errors in a session, %d are borne", seed, bears.Name, most, bears.PerSession)
		}
		if n := len(answers["d.example"]); n < 150 {
			t.Errorf("seed %d, %s: %d of 200 answered in 20 minutes", seed, bears.Name, n)
		}
	}
}

// TestSoftwareIsBelievedOfAllHosts: while every host shows software that counts by the session, that which
// bears least decides. One host that shows anything else brings the budget of an hour back, and so
// does forgetting all. What a session shows that could not be opened counts for nothing.
func TestSoftwareIsBelievedOfAllHosts(t *testing.T) {
	postfix, exchange := throttle.Shown{Greeting: "mx1.example ESMTP Postfix", Host: "mx1.example"},
		throttle.Shown{Greeting: "mx2.example Microsoft ESMTP MAIL Service ready", Host: "mx2.example"}
	unknown := throttle.Shown{Greeting: "mx3.example ESMTP", Host: "mx3.example"}
	gateway := throttle.Shown{Greeting: "mx4.example ESMTP Postfix", Host: "mx4.pphosted.com"}
	stalwart := throttle.Shown{Greeting: "mx5.example Stalwart ESMTP at your service", Host: "mx5.example"}
	failed := judgedAt(begin, "mx3.example", smtp.Address{}, &smtp.Failure{Stage: smtp.StageHello})
	for _, tc := range []struct {
		shown      []throttle.Shown
		failed     *Judgement
		perHour    int
		perSession int
		name, host string
	}{
		{[]throttle.Shown{postfix}, nil, throttle.CountMax, 8, "Postfix", "mx1.example"},
		{[]throttle.Shown{postfix, exchange}, nil, throttle.CountMax, 3, "Exchange", "mx2.example"},
		{[]throttle.Shown{exchange, postfix, postfix}, nil, throttle.CountMax, 3, "Exchange", "mx2.example"},
		{[]throttle.Shown{postfix, unknown}, nil, 20, 2, "", "mx3.example"},
		{[]throttle.Shown{unknown, postfix, postfix}, nil, 20, 2, "", "mx3.example"},
		{[]throttle.Shown{postfix, unknown, gateway, unknown}, nil, 20, 2, "Proofpoint", "mx4.pphosted.com"},
		{[]throttle.Shown{gateway}, nil, 20, 2, "Proofpoint", "mx4.pphosted.com"},
		{[]throttle.Shown{stalwart}, nil, 1, 2, "Stalwart", "mx5.example"},
		{[]throttle.Shown{gateway, stalwart, postfix, unknown}, nil, 1, 2, "Stalwart", "mx5.example"},
		{[]throttle.Shown{unknown}, nil, 20, 2, "nothing", ""},
		{nil, nil, 20, 2, "nothing", ""},
		{[]throttle.Shown{postfix}, &failed, 20, 2, "nothing", ""},
	} {
		d, _ := begun("example", testOptions(stranger()), begin)
		d.options.Said = byDefault
		for _, shown := range tc.shown {
			d.SessionOpened(begin, 99, shown, tc.failed)
		}
		a, name, host, bySession := d.takeAllowance(begin), "nothing", "", tc.perHour == throttle.CountMax
		if s := d.Detail(begin).Software; s != nil {
			name, host = s.Name, s.Host
			if s.Decides != (tc.perHour != 20) || bySession && s.PerSession != tc.perSession || s.Name != "" && s.Where == "" {
				t.Errorf("%+v: %+v", tc.shown, s)
			}
		}
		if a.RefusedPerHour != tc.perHour || a.RefusedPerSession != tc.perSession || name != tc.name || host != tc.host {
			t.Errorf("%+v: %d refusals an hour, %d in a session, %q by %q", tc.shown, a.RefusedPerHour, a.RefusedPerSession,
				name, host)
		}
		forgotten := d.Forget(begin, ForgetBlock)
		if again := d.takeAllowance(begin); again != a {
			t.Errorf("%+v: without a block %d refusals an hour", tc.shown, again.RefusedPerHour)
		}
		told := strings.Join(append(forgotten, d.Forget(begin, ForgetAll)...), "\n")
		want := map[string]string{"": "that mx3.example shows no software that is known", "nothing": "",
			"Proofpoint": "that mx4.pphosted.com runs Proofpoint, by the name of its host",
			"Stalwart":   "that mx5.example runs Stalwart, by its greeting"}
		if bySession {
			want[tc.name] = "that it runs " + tc.name + ", by its greeting"
		}
		if known := len(tc.shown) > 0 && tc.name != "nothing"; known && told != want[tc.name] {
			t.Errorf("%+v: forgotten is %q, want %q", tc.shown, told, want[tc.name])
		}
		if a := d.takeAllowance(begin); a.RefusedPerHour != 20 || d.Detail(begin).Software != nil {
			t.Errorf("%+v: forgotten, %d refusals an hour", tc.shown, a.RefusedPerHour)
		}
		d.SessionOpened(begin, 99, postfix, nil)
		effort.Is(t, d.takeAllowance(begin).RefusedPerHour, throttle.CountMax, tc.shown, "shown again, refusals an hour")
		d.options.Said = func(string, throttle.Field) []throttle.Said {
			return append(byDefault("", 0), throttle.Said{Origin: throttle.Origin{Layer: throttle.LayerFile}})
		}
		if a := d.takeAllowance(begin); a.RefusedPerHour != 20 || d.Detail(begin).Software.Decides {
			t.Errorf("%+v: the file says 20, %d refusals an hour hold", tc.shown, a.RefusedPerHour)
		}
	}
}
