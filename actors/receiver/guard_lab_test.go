package receiver

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// stranger is what a receiver gets of whom nothing is known, but for the rates.
func stranger() throttle.Limits {
	a := throttle.DefaultLimits()
	a.RcptRate = throttle.Rate{Events: 1000, Per: time.Second}
	a.ConnectionRate = throttle.Rate{Events: 20, Per: time.Second}
	return a
}

// TestOnlyBadAddresses at each guard of the lab: as many as an hour allows are
// answered, all of them right, and no guard has moved.
func TestOnlyBadAddresses(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup // they wait most of the time: all at once
	for _, name := range []string{"cisco", "ciscoqueue", "exim", "postfix", "chasquid", "forcepoint", "ionos",
		"symantec", "nospamtoday", "badtx", "yahooold"} {
		running.Go(func() {
			t.Run(name, func(t *testing.T) {
				a := stranger()
				b := newBench(t, 0, name, a)
				c, _ := b.customer(1, a.RefusedPerHour+10, func(n int) string { return "ghost." + letters(n) })
				c.until("the answers of an hour", func() bool { return len(c.answers) == a.RefusedPerHour })
				for _, one := range c.told {
					told{one, 1}.agrees(t)
					if one.outcome != smtp.Invalid && (name != "ciscoqueue" || one.outcome.Final()) {
						// Its words are those of a named gateway, which its host's name is not.
						t.Errorf("%s %s: %+v", one.outcome, one.reason, one.attempts)
					}
				}
				if s := b.lab.Manners(); s.Total.Tripped > 0 || s.Total.LimitsHit > 0 {
					t.Errorf("guards: %v, limits: %d", s.Tripped, s.Total.LimitsHit)
				}
			})
		})
	}
	running.Wait()
}

// TestOnlyBadAddressesForHours: a list of them is answered to its end, so slowly that
// no hour, by whichever clock, has more than a guard bears that allows 25.
func TestOnlyBadAddressesForHours(t *testing.T) {
	w := newWorld(t, stranger(), 1)
	w.reply = func(*Probe, *simSession) smtp.Reply { return noSuchUser }
	invalid := 0
	w.collect(1, func(_ string, a told) {
		if a.agrees(t); a.outcome == smtp.Invalid {
			invalid++
		}
	})
	w.offer(offerOf(1, "d.example", 1, 100, hosts("mx1")))
	w.run(begin.Add(6 * time.Hour))
	slices.SortFunc(w.rcpts, time.Time.Compare)
	checkRate(t, "refused", w.rcpts, throttle.Rate{Events: 24, Per: time.Hour})
	if invalid != 100 {
		t.Errorf("%d of 100 answered in six hours", invalid)
	}
}

// TestHalfBadAddresses: beyond what an hour allows, less is refused than accepted.
func TestHalfBadAddresses(t *testing.T) {
	w := newWorld(t, stranger(), 1)
	refused, accepted := 0, 0
	w.reply = func(*Probe, *simSession) smtp.Reply {
		if w.rand.IntN(10) < 7 {
			if refused++; refused > 20 && refused > accepted {
				t.Errorf("%d refused, %d accepted", refused, accepted)
			}
			return noSuchUser
		}
		accepted++
		return smtp.Reply{Code: 250}
	}
	w.offer(offerOf(1, "d.example", 1, 500, hosts("mx1")))
	if w.run(begin.Add(59 * time.Minute)); refused < 20 || accepted < 5 {
		t.Errorf("%d refused, %d accepted", refused, accepted)
	}
}

// TestPathsOnTheWire: what the lab's receivers do to one address, and the attempts
// that its answer carries. Where nothing can be asked it is told after the first rests only.
func TestPathsOnTheWire(t *testing.T) {
	for _, tc := range []struct {
		name     string
		local    string
		rcpts    int // addresses, RCPTs in a transaction
		outcome  smtp.Outcome
		reason   smtp.Reason
		attempts func(all []evidence.Attempt) bool
	}{
		{"tlsonly", "anna", 1, smtp.Valid, smtp.MailboxExists, lastIsTLS},
		{"tlsbroken", "anna", 1, smtp.Valid, smtp.MailboxExists,
			func(all []evidence.Attempt) bool { return !lastIsTLS(all) }},
		{"onercpt", "anna", 5, smtp.Valid, smtp.MailboxExists, nil},
		{"fewrcpts", "anna", 9, smtp.Valid, smtp.MailboxExists, nil},
		{"short", "anna", 12, smtp.Valid, smtp.MailboxExists, nil},
		{"closing", "anna", 1, smtp.Undecided, smtp.ReasonNone, func(all []evidence.Attempt) bool {
			return len(all) == 1 && all[0].Stage == smtp.StageGreeting && all[0].Code == 421
		}},
		{"nomail", "anna", 1, smtp.Invalid, smtp.NoMailService, func(all []evidence.Attempt) bool {
			return len(all) == 1 && all[0].Stage == smtp.StageGreeting && all[0].Code == 521
		}},
		{"blocked", "anna", 3, smtp.Undecided, smtp.SourceBlocked, func(all []evidence.Attempt) bool {
			return len(all) == 1 && all[0].Stage == smtp.StageGreeting && all[0].Blame == smtp.BlameSource
		}},
		{"policy", "anna", 9, smtp.Undecided, smtp.SourceBlocked, nil},
		{"badsender", "anna", 2, smtp.Undecided, smtp.SourceIdentity, func(all []evidence.Attempt) bool {
			return all[len(all)-1].Stage == smtp.StageMail
		}},
		{"badhello", "anna", 2, smtp.Undecided, smtp.SourceIdentity, func(all []evidence.Attempt) bool {
			return all[len(all)-1].Stage == smtp.StageHello
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := openedWide()
			a.RcptsPerTransaction, a.Pipelining = tc.rcpts, true
			b := newBench(t, 0, tc.name, a)
			b.options.Stretch = atOnce
			b.pid = b.spawn()
			b.ask(1, tc.rcpts, func(n int) string { return tc.local + "." + letters(n) }, func(one answer) {
				if one.outcome != tc.outcome || tc.reason != smtp.ReasonNone && one.reason != tc.reason {
					t.Errorf("%s %s: %+v", one.outcome, one.reason, one.attempts)
				}
				if tc.attempts != nil && !tc.attempts(one.attempts) {
					t.Errorf("attempts %+v", one.attempts)
				}
			})
		})
	}
}

func lastIsTLS(all []evidence.Attempt) bool { return len(all) > 0 && all[len(all)-1].TLS }

// ask waits for the answers to n addresses and looks at each.
func (b *bench) ask(verification byte, n int, local func(int) string, each func(answer)) {
	b.t.Helper()
	c, _ := b.customer(verification, n, local)
	c.until("all answers", func() bool { return len(c.answers) == n })
	for _, one := range c.told {
		told{one, 1}.agrees(b.t)
		each(one)
	}
}

// TestGuardOnTheWire: when a guard steps in, those that it has not judged before are
// put off for an hour, and nobody is judged by it.
func TestGuardOnTheWire(t *testing.T) {
	b := newBench(t, 0, "cisco", openedWide())
	invalid := 0
	b.ask(1, 60, func(n int) string { return "ghost." + letters(n) }, func(one answer) {
		switch {
		case one.outcome == smtp.Invalid:
			invalid++
		case one.outcome != smtp.Undecided || one.reason != smtp.HarvestGuard || one.wait < harvestFor-time.Minute:
			t.Errorf("%s %s in %s: %+v", one.outcome, one.reason, one.wait, one.attempts)
		}
	})
	if invalid > 25 || invalid < 20 {
		t.Errorf("%d addresses were judged, the guard let 25 through", invalid)
	}
	if n := b.lab.Manners().Total.Tripped; n > openedWide().Connections {
		t.Errorf("the guard stepped in %d times", n)
	}
}

// TestIPv6OnTheWire: a host with an IPv6 address alone is asked like any other.
func TestIPv6OnTheWire(t *testing.T) {
	b := newBench(t, 0, "sixonly", openedWide())
	b.ask(1, 10, half, func(one answer) {
		if want := [...]smtp.Outcome{smtp.Invalid, smtp.Valid}[one.ordinal%2]; one.outcome != want {
			t.Errorf("%s %s: %+v", one.outcome, one.reason, one.attempts)
		}
	})
}

// TestSourcesOnTheWire: the lab refuses the source that came first; the other one
// gets the answers, and evidence names it.
func TestSourcesOnTheWire(t *testing.T) {
	b := newBench(t, 0, "blockone", openedWide())
	from := []string{"127.0.0.21", "127.0.0.22"}
	list := make([]egress.Source, len(from))
	for i, a := range from {
		at := netip.MustParseAddr(a)
		list[i] = egress.Source{Addr: at, Hello: "probe.example", Open: openerFrom(t, b.lab, at)}
	}
	sources, err := egress.NewPool(list)
	if err != nil {
		t.Fatal(err)
	}
	b.options.Sources = sources
	b.pid = b.spawn()
	seen := map[string]bool{}
	b.ask(1, 40, half, func(one answer) {
		if !one.outcome.Final() {
			t.Errorf("%s %s: %+v", one.outcome, one.reason, one.attempts)
		}
		seen[one.attempts[len(one.attempts)-1].Source] = true
	})
	if len(seen) != 1 || !seen[from[0]] && !seen[from[1]] {
		t.Errorf("answers from %v", seen)
	}
	rested := 0
	for _, s := range sources.State(time.Now()) {
		rested += s.Blocked
	}
	if rested != 1 {
		t.Errorf("state %+v", sources.State(time.Now()))
	}
}
