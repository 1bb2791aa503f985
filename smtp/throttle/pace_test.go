package throttle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/config/effort"
)

// askedReceiver is asked one address at a time, at the permitted pace. It lets limit of them pass in a second.
type askedReceiver struct {
	pace  *Pace
	now   time.Time
	limit int
	grey  time.Duration
	price time.Duration // how long nothing passes after one too many
	until time.Time     // the end of that time
	seen  []time.Time
	again []deferredTry
	good  int
	bad   int
}

type deferredTry struct {
	first Try
	due   time.Time
}

func beginAsking(ceiling, limit int) *askedReceiver {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return &askedReceiver{pace: NewPace(RateBounds{Ceiling: Rate{Events: ceiling, Per: time.Second}, Stated: true}, now), now: now, limit: limit}
}

// passes counts one more address, and reports whether it passes.
func (a *askedReceiver) passes(since time.Time) bool {
	for len(a.seen) > 0 && a.now.Sub(a.seen[0]) >= time.Second {
		a.seen = a.seen[1:]
	}
	switch {
	case a.now.Before(a.until), a.now.Sub(since) < a.grey:
		return false
	case a.limit > 0 && len(a.seen) >= a.limit:
		a.until = a.now.Add(a.price)
		return false
	}
	a.seen = append(a.seen, a.now)
	return true
}

// run asks for a while: new addresses, and those that were deferred when they are due.
func (a *askedReceiver) run(d time.Duration) {
	for end := a.now.Add(d); a.now.Before(end); {
		rate, until := a.pace.Permits()
		a.now = later(a.now.Add(time.Duration(float64(time.Second)/rate.PerSecond())), until)
		if len(a.again) > 0 && a.again[0].due.Before(a.now) && (!a.pace.Alone() || a.pace.Nothing().AsksAgain()) {
			one := a.again[0]
			a.again = a.again[1:]
			passed := a.passes(one.first.Sent)
			a.pace.Again(one.first, a.now, passed, "451", a.now)
			a.count(passed)
			continue
		}
		t := Try{Sent: a.now, Kind: "451", Domain: "d"}
		passed := a.passes(a.now)
		if a.count(passed); passed {
			a.pace.Good(t, a.now)
			continue
		}
		t.Result = Deferred
		a.pace.Bad(t, a.now)
		if len(a.again) < 20 {
			a.again = append(a.again, deferredTry{t, a.now.Add(2 * time.Second)})
		}
	}
}

func (a *askedReceiver) count(passed bool) {
	if passed {
		a.good++
	} else {
		a.bad++
	}
}

// TestAFailedRaiseCostsOneStep: this holds however many addresses are deferred in the penalty after the raise.
func TestAFailedRaiseCostsOneStep(t *testing.T) {
	for _, limit := range []int{12, 20, 33, 50} {
		a := beginAsking(10*limit, limit)
		a.price = 10 * time.Second
		a.run(time.Minute)
		if e := a.pace.Explain(); a.bad < 10 || e.Rate < 0.9*float64(limit) {
			t.Errorf("%.3g/s of %d after %d deferrals: %s", e.Rate, limit, a.bad, e.Why)
		}
	}
}

// TestWhatWasDeferredAtTheStartIsForgotten: after good answers in a row, early deferrals turn out to be greylisting.
func TestWhatWasDeferredAtTheStartIsForgotten(t *testing.T) {
	for _, ceiling := range []int{2, 5, 10, 50} {
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		s := search{ceiling: float64(ceiling)}
		s.begin(now)
		for range 6 {
			s.bad(now, 1)
		}
		good := 0
		for began := now; s.rate < s.ceiling && now.Sub(began) < time.Minute; good++ {
			now = now.Add(time.Duration(float64(time.Second) / s.rate))
			s.good(now, now, 1, 0)
		}
		if most := 20 + 8*ceiling; good > most || s.rate < s.ceiling {
			t.Errorf("%.3g/s of %d after %d good answers, want %d at most", s.rate, ceiling, good, most)
		}
	}
}

// TestPaceFindsALimit: the pace stays just below an unstated limit of any size, and returns to full when that is gone.
func TestPaceFindsALimit(t *testing.T) {
	effort.Unraced(t, "plain calls with values")
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		limit := 2 + r.IntN(60)
		a := beginAsking(limit*(2+r.IntN(10)), limit)
		t.Run(fmt.Sprintf("%d of %.0f", limit, a.pace.ceiling), func(t *testing.T) {
			a.run(time.Minute)
			a.good, a.bad = 0, 0
			a.run(5 * time.Minute)
			if used := float64(a.good) / 300 / float64(limit); used < 0.8 || a.bad*50 > a.good {
				t.Errorf("%.0f %% used, %d of %d deferred: %s", 100*used, a.bad, a.good+a.bad, a.pace.Explain().Why)
			}
			a.limit = 0
			a.run(5 * time.Minute)
			if e := a.pace.Explain(); e.Rate < 2*float64(limit) {
				t.Errorf("%.3g/s five minutes after the limit was gone: %s", e.Rate, e.Why)
			}
		})
	}
}

// TestPaceFindsGreylisting: it shows in which addresses pass. New addresses are then asked at full pace.
func TestPaceFindsGreylisting(t *testing.T) {
	for _, wait := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		a := beginAsking(20, 0)
		a.grey = wait
		if a.run(wait + 30*time.Second); !a.pace.Greylisting() || a.pace.Lasting() != 20 {
			t.Errorf("%s: %s", wait, a.pace.Explain().Why)
		}
		for _, unsure := range []bool{true, false} { // an earlier owner of the file asked them
			for range unsureMost {
				a.now = a.now.Add(time.Second / 20)
				a.pace.Good(Try{Sent: a.now, Domain: "d", Unsure: unsure}, a.now)
			}
			if a.pace.Greylisting() != unsure {
				t.Errorf("%s: those that may have waited passed (%v): %s", wait, unsure, a.pace.Explain().Why)
			}
		}
	}
}

// TestPaceStopsWhereNothingPasses: few addresses are asked, and the earlier pace returns with the answers.
func TestPaceStopsWhereNothingPasses(t *testing.T) {
	a := beginAsking(50, 0)
	a.run(time.Minute)
	a.grey, a.bad = time.Hour, 0
	if a.run(time.Minute); a.bad > 60 {
		t.Errorf("%d asked in a minute in which nothing passes", a.bad)
	}
	a.grey, a.again = 0, nil
	if a.run(15 * time.Second); a.pace.Lasting() != 50 || a.pace.Alone() {
		t.Errorf("%.3g/s after it: %s", a.pace.Lasting(), a.pace.Explain().Why)
	}
}

// TestADomainFailsBesideOthers only: not one whose turn comes just as nothing passes any more, as in a penalty.
func TestADomainFailsBesideOthers(t *testing.T) {
	for _, beside := range []bool{true, false} {
		a := beginAsking(50, 0)
		ask := func(domain string, passes bool) {
			a.now = a.now.Add(20 * time.Millisecond)
			if one := (Try{Sent: a.now, Kind: "451", Domain: domain}); passes {
				a.pace.Good(one, a.now)
			} else {
				one.Result = Deferred
				a.pace.Bad(one, a.now)
			}
		}
		ask("others", false) // none is kept before
		for range 20 {
			if beside {
				ask("failing", false)
			}
			ask("others", true)
		}
		for range 4 {
			ask("failing", false)
		}
		if _, failing := a.pace.firsts.failing["failing"]; failing != beside {
			t.Errorf("beside others: %v; failing: %v", beside, failing)
		}
	}
}

// TestPaceReturns: soon after a low limit has ended, the earlier pace returns. Before that it is seldom tried.
func TestPaceReturns(t *testing.T) {
	for _, limit := range []int{1, 3, 10} {
		a := beginAsking(50, 0)
		a.run(time.Minute)
		a.limit = limit
		a.run(time.Minute)
		a.bad = 0
		if a.run(30 * time.Minute); a.bad > 60+limit*18 {
			t.Errorf("%d/s: %d deferred in 30 minutes: %s", limit, a.bad, a.pace.Explain().Why)
		}
		a = beginAsking(50, 0)
		a.run(time.Minute)
		a.limit = limit
		a.run(10 * time.Second)
		a.limit = 0
		if a.run(45 * time.Second); a.pace.Lasting() != 50 {
			t.Errorf("%d/s: %.3g/s after it: %s", limit, a.pace.Lasting(), a.pace.Explain().Why)
		}
	}
}

// TestPaceHalvesWhereOnlyRetriesAreAsked: it does so if a limit is known and no address gets a good answer.
func TestPaceHalvesWhereOnlyRetriesAreAsked(t *testing.T) {
	for _, tc := range []struct {
		edge, want float64
		passes     int // one in this many passes; 0: none
	}{{20, 10, 0}, {20, 20, 30}, {0, 20, 0}} {
		a := beginAsking(20, 0)
		a.pace.edge = tc.edge
		for i := range 110 { // in 11 s
			a.now = a.now.Add(time.Second / 10)
			a.pace.Retried(a.now, tc.passes > 0 && i%tc.passes == 0, false, "451", a.now)
		}
		effort.Is(t, a.pace.Lasting(), tc.want, "the pace", tc)
	}
}

// TestPaceTellsMailboxesFromALimit: a share that is deferred at any pace, and passes a moment later, costs nothing but a short test.
func TestPaceTellsMailboxesFromALimit(t *testing.T) {
	for _, share := range []float64{0.05, 0.2, 0.5} {
		a, r, slow := beginAsking(30, 0), rand.New(rand.NewPCG(3, 4)), 0
		for range 6000 {
			a.now = a.now.Add(time.Second / 30)
			one := Try{Sent: a.now, Kind: "450", Domain: "d"}
			if r.Float64() >= share {
				a.pace.Good(one, a.now)
			} else {
				one.Result = Deferred
				a.pace.Bad(one, a.now)
				a.pace.Again(one, a.now, true, "451", a.now)
			}
			if a.pace.Lasting() < 30 {
				slow++
			}
		}
		if slow > 1200 || a.pace.Lasting() < 30 {
			t.Errorf("%.0f %%: below the told pace for %d of 6000: %s", 100*share, slow, a.pace.Explain().Why)
		}
	}
}

// asksSlower returns a receiver at which a test has just begun.
func asksSlower(t *testing.T) *askedReceiver {
	t.Helper()
	a := beginAsking(3, 0)
	for i := 0; a.pace.Explain().Phase != PhaseTesting; i++ {
		effort.FatalIf(t, i > 100, "no test began: %+v", a.pace.Explain())
		a.now = a.now.Add(time.Second / 3)
		if i%7 == 0 {
			a.pace.Good(Try{Sent: a.now}, a.now)
		} else {
			a.pace.Bad(Try{Sent: a.now, Result: Deferred, Kind: "451", Domain: "d"}, a.now)
		}
	}
	return a
}

// TestATestEndsWhereNothingPasses: where all have been asked, and fail when asked again, one is asked at a time.
func TestATestEndsWhereNothingPasses(t *testing.T) {
	a, first := asksSlower(t), Try{Kind: "451", Domain: "d"}
	a.now = later(a.now, a.pace.until).Add(settles)
	for n := 0; !a.pace.Alone(); n++ {
		effort.FatalIf(t, n > 3*rowNothing, "after %d that failed: %+v", n, a.pace.Explain())
		a.now = a.now.Add(time.Second)
		first.Sent = a.now.Add(-2 * time.Second)
		a.pace.Again(first, a.now, false, "451", a.now)
	}
}

// TestATestGoesOnWithoutNewAddresses: where all have been asked, and pass when asked again, the pace of a test returns.
func TestATestGoesOnWithoutNewAddresses(t *testing.T) {
	a := asksSlower(t)
	began, n := a.now, 0
	for a.pace.rate < 1.5 {
		rate, until := a.pace.Permits()
		a.now = later(a.now.Add(time.Duration(float64(time.Second)/rate.PerSecond())), until)
		if n++; n%2 == 0 { // one that an earlier owner of its file may have asked shows no more
			a.pace.Good(Try{Sent: a.now, Unsure: true}, a.now)
		} else {
			a.pace.Retried(a.now, true, true, "", a.now)
		}
		effort.FatalIf(t, a.now.Sub(began) > time.Minute, "after a minute: %+v", a.pace.Explain())
	}
}

// TestUnsureOnesShowNoGreylisting: if an earlier owner may have asked an address, its failure shows as little as its
// passing, so a limit that lets two of three through isn't taken for greylisting.
func TestUnsureOnesShowNoGreylisting(t *testing.T) {
	a := beginAsking(9, 0)
	for n := range 600 {
		a.now = a.now.Add(time.Second / 3)
		one := Try{Sent: a.now, Kind: "451", Domain: "d", Unsure: n >= 60}
		if n%3 > 0 && n >= 60 {
			a.pace.Good(one, a.now)
		} else {
			one.Result = Deferred
			a.pace.Bad(one, a.now)
		}
		effort.FatalIf(t, a.pace.Greylisting(), "after %d: %s", n, a.pace.Explain().Why)
	}
}

// TestRefusalsBesideGreylisting: where a receiver greylists everybody, refusals of those that have waited long enough
// say nothing of our pace. Deferrals of another kind do.
func TestRefusalsBesideGreylisting(t *testing.T) {
	for kind, want := range map[string]bool{"550 5.5.3": false, "421 4.7.0": true} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		p := NewPace(RateBounds{Ceiling: Rate{Events: 100, Per: time.Second}, Stated: true}, now)
		p.grey.begin(p, "450 4.2.0", now)
		for i := range 100 {
			now = now.Add(10 * time.Millisecond)
			p.Retried(now, i%5 > 0, true, kind, now)
		}
		effort.Is(t, p.firsts.badShare(time.Time{}) > 0.1, want, kind, "counts as a sign of our pace")
	}
}
