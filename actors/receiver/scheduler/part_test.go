package scheduler

import (
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// TestPartOfADayIsUsedUp: a receiver that has used its part of a source's day, while
// another one keeps its own, does not go on dialling, and says why.
func TestPartOfADayIsUsedUp(t *testing.T) {
	a := openedWide()
	w := tuned(t, &a)
	w.scheduler.options.SourceOf = func(string) throttle.Limits { return throttle.Limits{RcptsPerDay: 100} }
	w.rebind()
	w.scheduler.options.Clock = func() time.Time { return w.now }
	asks := true
	var other func()
	other = func() { // asks one now and then
		if asks {
			w.scheduler.options.Sources.Claim(0, "other", w.now, 1)
			w.after(50*time.Second, other)
		}
	}
	w.after(0, other)
	w.offer(offerOf(1, "d.example", 1, 300, hosts("mx1")))
	w.run(begin.Add(time.Minute))
	dials, rcpts := len(w.dials), len(w.rcpts)
	if rcpts < 45 || rcpts > 55 {
		t.Errorf("%d of 100 were asked by one of two", rcpts)
	}
	w.run(begin.Add(30 * time.Minute))
	if len(w.dials) > dials || len(w.rcpts) > rcpts {
		t.Errorf("%d dials, %d RCPTs, after all of the part was used", len(w.dials)-dials, len(w.rcpts)-rcpts)
	}
	if b := w.scheduler.explainBlocked(w.now); b.Cause != wire.Cause_NO_SOURCE || !b.Until.After(w.now) || b.Why == "" {
		t.Errorf("%s until %s: %s", b.Cause, b.Until, b.Why)
	}
	asks = false
	w.run(w.now.Add(10 * time.Minute))
	if used := w.scheduler.options.Sources.State(w.now)[0].Today; used != 100 || len(w.rcpts) <= rcpts {
		t.Errorf("%d of 100 were asked when the other one had gone", used)
	}
}

// TestYesterdayIsNotGivenBack: what was taken before midnight and not asked leaves no more for the day after.
func TestYesterdayIsNotGivenBack(t *testing.T) {
	a := openedWide()
	a.RcptsPerTransaction, a.RcptsPerConnection = 50, 1000
	w := tuned(t, &a)
	w.scheduler.options.SourceOf = func(string) throttle.Limits { return throttle.Limits{RcptsPerDay: 100} }
	w.rebind()
	clock := begin.Add(untilMidnight(begin) - time.Second)
	w.scheduler.options.Clock = func() time.Time { return clock }
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	var s *session
	for s == nil {
		w.run(w.now.Add(10 * time.Millisecond))
		for _, one := range w.scheduler.sessions.all {
			if len(one.given) > 0 {
				s = one
			}
		}
	}
	clock = clock.Add(2 * time.Second)
	used := func() int { return w.scheduler.options.Sources.State(w.now)[0].Today }
	got, _ := w.scheduler.options.Sources.Claim(0, "other", clock, 100)
	if used() != got || got == 0 {
		t.Fatalf("%d taken, %d counted", got, used())
	}
	w.scheduler.takeReport(w.now, s, &Report{ID: s.id, Unanswered: s.given}) // halted before it sent anything
	effort.Is(t, used(), got, "asked today")
}
