package scheduler

import (
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// greetings are those of software that is known, and what it counts to in a session.
var greetings = []string{"mx1.example ESMTP Postfix (Debian)", "mx1.example ESMTP Exim 4.98", "mx1.example ESMTP Sendmail 8.18",
	"mx1.example ESMTP Haraka/3.0 ready", "mx1.example Microsoft ESMTP MAIL Service ready", "mx1.example ESMTP chasquid"}

// TestKnownSoftwareIsAskedBelowWhatItCounts: whatever mix of answers it gives, no session has more errors than
// the software is known to bear, greylisting included; and no hour holds anybody up.
func TestKnownSoftwareIsAskedBelowWhatItCounts(t *testing.T) {
	for seed := range effort.Seeds(t, 20) {
		r := rand.New(rand.NewPCG(seed, 3))
		greeting := greetings[r.IntN(len(greetings))]
		bears, _ := throttle.SoftwareOf(greeting)
		w := newWorld(t, stranger(), seed)
		w.greeting = greeting
		w.scheduler.options.Said = func(string, throttle.Field) []throttle.Said {
			return []throttle.Said{{Origin: throttle.Origin{Layer: throttle.LayerDefault}}}
		}
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
