package scheduler

import (
	"fmt"
	"testing"
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// TestTurnedAwayAtSTARTTLS: a host that wants less of us before a session is ready is not
// dialled again and again, and those who wait for it are told.
func TestTurnedAwayAtSTARTTLS(t *testing.T) {
	for _, mode := range []throttle.TLS{throttle.TLSOpportunistic, throttle.TLSRequired} {
		for _, code := range []int{421, 450, 451, 454} {
			for _, text := range []string{"too many connections", "too many messages, slow down", "try again later"} {
				t.Run(fmt.Sprintln(mode, code, text), func(t *testing.T) {
					a := openedWide()
					a.TLS = mode
					w := tuned(t, &a)
					w.scheduler.options.Waits = []time.Duration{5 * time.Minute, time.Hour}
					w.greet = func(string) error {
						return &smtp.Failure{Stage: smtp.StageTLS, Reply: smtp.Reply{Code: code,
							Enhanced: smtp.EnhancedCode{4, 7, 0}, Lines: []string{text}}}
					}
					all := w.heard()
					w.offer(offerOf(1, "d.example", 1, 30, hosts("mx1")))
					w.run(begin.Add(10 * time.Minute))
					if len(w.dials) > 3 || len(all["d.example"]) < 30 {
						t.Errorf("%d dials, %d of 30 are told", len(w.dials), len(all["d.example"]))
					}
				})
			}
		}
	}
}

// TestRefusedForGoodBesideServedSessions: a host that greets one session too many with 5xx, in words that may be about
// anything, goes on with those that it serves, and our source isn't suspended there.
func TestRefusedForGoodBesideServedSessions(t *testing.T) {
	for _, text := range []string{"no", "no service", "not now", "connection refused by policy", "access denied"} {
		for most := 1; most <= 5; most += 2 {
			a := openedWide()
			a.Connections = 8
			w := newWorld(t, a, uint64(most))
			w.turn = 100 * time.Millisecond
			w.greet = func(string) error {
				if len(w.open) <= most {
					return nil
				}
				return &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 554,
					Enhanced: smtp.EnhancedCode{5, 3, 2}, Lines: []string{text}}}
			}
			valid := 0
			w.collect(1, func(_ string, a heard) {
				if a.outcome == smtp.Valid {
					valid++
				}
			})
			w.offer(offerOf(1, "d.example", 1, 400, hosts("mx1")))
			if w.run(begin.Add(3 * time.Minute)); valid < 400 || len(w.rcpts) > 400 {
				t.Errorf("%q beside %d: %d of 400 are valid, %d RCPTs", text, most, valid, len(w.rcpts))
			}
		}
	}
}

// TestSharedLimitIsNoLessThanWhatWasSeen: what a node bore under its share is allowed to it
// again when what was learned is shared out.
func TestSharedLimitIsNoLessThanWhatWasSeen(t *testing.T) {
	for _, p := range []registry.Fraction{{K: 1, N: 1}, {K: 3, N: 8}, {K: 7, N: 8}, {K: 85, N: 256}, {K: 128, N: 256}, {K: 1, N: 256}, {K: 0, N: 1}} {
		for seen := 1; seen <= 4; seen++ {
			d := &allowance{share: p}
			a := throttle.Limits{Connections: d.ofWhole(seen)}
			if got := p.Of(a).Connections; !p.IsNone() && got != seen || p.IsNone() && a.Connections != seen {
				t.Errorf("%d of %d: %d sessions are %d of the whole, and %d here", p.K, p.N, seen, a.Connections, got)
			}
		}
	}
}

// TestOpeningsCountedOverSeconds: a receiver that lets four sessions open in five seconds, and after one more none for
// ten, is soon asked for no more, in whatever words it says so. Its next owner knows.
func TestOpeningsCountedOverSeconds(t *testing.T) {
	for _, code := range []int{0, 421, 450, 554} {
		w := drawnOpenings(code)
		w.span, w.takeover = 5*time.Minute, 4*time.Minute
		tr := w.begin(t, 1)
		tr.play(begin.Add(w.span))
		late := tr.between(120, 300)
		if used := float64(late.good) / 180 / w.rate(); used < 0.4 || late.refused > 8 {
			t.Errorf("%d: %.2f of the limit is used, %d sessions are refused", code, used, late.refused)
		}
	}
}

// drawnOpenings is a receiver with a limit of openings, which refuses more with a code; 0: it resets them.
func drawnOpenings(code int) *drawn {
	w := &drawn{told: openedWide(), stated: true, far: &unknownReceiver{words: "quml osti nerra"}, hosts: 1, domains: 1,
		tenants: 1, turn: 20 * time.Millisecond, waits: []time.Duration{30 * time.Second}}
	w.told.Connections, w.told.ConnectionRate, w.told.RcptsPerConnection = 4, rate(10, time.Second), 5
	w.told.RcptRate = rate(100, time.Second)
	w.far.limit = limitOf{opens: rate(4, 5*time.Second), penalty: 10 * time.Second, refusal: code}
	if code == 0 {
		w.far.limit.way = byReset
	}
	return w
}
