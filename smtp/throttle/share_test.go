package throttle

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
)

func drawAllowance(t *rapid.T) Limits {
	a := DefaultLimits()
	a.Connections = rapid.IntRange(1, ConnectionsMax).Draw(t, "connections")
	a.ConnectionRate.Events = rapid.IntRange(1, RateEventsMax).Draw(t, "dials")
	a.RcptRate.Events = rapid.IntRange(1, RateEventsMax).Draw(t, "rcpts")
	a.RefusedPerHour = rapid.IntRange(1, CountMax).Draw(t, "refused")
	a.Waits[0] = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "wait")
	a.Pause = rapid.SampledFrom([]Pause{PauseNo, PauseDrain, PauseYes}).Draw(t, "pause")
	a.PipeliningDepth, a.SessionAge, a.IdleTime, a.TLS = 3, time.Minute, time.Second, TLSOff
	return a
}

// TestSharesNeverExceedTheWhole: for any distribution of n votes each side has its share of the limits, rounded down,
// and all shares together are at most the whole. Limits of a single session are not divided.
func TestSharesNeverExceedTheWhole(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		a := drawAllowance(t)
		n := rapid.IntRange(1, 60).Draw(t, "votes")
		var sum Limits
		for left := n; left > 0; {
			k := rapid.IntRange(0, left).Draw(t, "votes for one")
			left -= max(1, k)
			s := a.Share(k, n)
			sum.Connections += s.Connections
			sum.ConnectionRate.Events += s.ConnectionRate.Events
			sum.RcptRate.Events += s.RcptRate.Events
			sum.RefusedPerHour += s.RefusedPerHour
			effort.MustBe(t, s.Connections, a.Connections*k/n, "sessions of", a.Connections, k, "votes of", n)
			effort.MustBe(t, s.RcptRate.Events, a.RcptRate.Events*k/n, "RCPTs of", a.RcptRate.Events, k, "votes of", n)
			s.Connections, s.ConnectionRate.Events = a.Connections, a.ConnectionRate.Events
			s.RcptRate.Events, s.RefusedPerHour = a.RcptRate.Events, a.RefusedPerHour
			effort.MustBe(t, s, a, "a share changed what is not divided")
		}
		if sum.Connections > a.Connections || sum.ConnectionRate.Events > a.ConnectionRate.Events ||
			sum.RcptRate.Events > a.RcptRate.Events || sum.RefusedPerHour > a.RefusedPerHour {
			t.Fatalf("the shares add up to %+v, more than %+v", sum, a)
		}
	})
}

// side is one of several nodes that keep to one rate together.
type side struct {
	w     *Window
	next  time.Time // when it asks again
	votes int
}

// ensemble is several sides and what the far side has seen of them.
type ensemble struct {
	whole Limits
	n     int // votes there are
	sides []*side
	now   time.Time
	seen  farSide
}

// newEnsemble makes sides that have no votes so far.
func newEnsemble(r Rate, n, sides int) *ensemble {
	e := &ensemble{whole: DefaultLimits(), n: n, now: start}
	e.whole.RcptRate = r
	for range sides {
		e.sides = append(e.sides, &side{w: NewWindow(e.whole.Share(0, 1).RcptRate, start), next: start})
	}
	return e
}

// run lets every side make all it can get, up to a time.
func (e *ensemble) run(until time.Time) {
	for {
		first := slices.MinFunc(e.sides, func(a, b *side) int { return a.next.Compare(b.next) })
		if !first.next.Before(until) {
			e.now = until
			return
		}
		e.now = first.next
		n, next := first.w.Ready(e.now)
		for range n {
			first.w.Begin(e.now, 1)
			first.w.Done(e.now, 1)
			e.seen = append(e.seen, e.now)
		}
		if n > 0 {
			_, next = first.w.Ready(e.now)
		}
		if !next.After(e.now) {
			next = e.now.Add(time.Hour) // nothing before its share changes
		}
		first.next = next
	}
}

// set gives those sides whose votes become fewer, or the others, their new share.
func (e *ensemble) set(votes []int, fewer bool) {
	for i, s := range e.sides {
		if (votes[i] < s.votes) == fewer {
			s.w.Set(e.whole.Share(votes[i], e.n).RcptRate)
			s.votes, s.next = votes[i], e.now
		}
	}
}

// TestWindowsWithSharesKeepTheRateTogether: up to three nodes use all of one rate that their votes allow. The votes
// change at any time, the losers' first. Counted as the far side does, the events of all never exceed the whole rate.
// Without the rest after a raise one trial in 30 fails; with losersMax 1 one in 3,000, the first at seed 1663. Not
// with rapid, whose draws are too small too often.
func TestWindowsWithSharesKeepTheRateTogether(t *testing.T) {
	for seed := range uint64(min(effort.Cases(4000), 4000)) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := Rate{Events: 1 + random.IntN([]int{40, 300}[random.IntN(2)]), Per: time.Second}
		e := newEnsemble(r, 1+random.IntN(6), 2+random.IntN(2))
		for range 1 + random.IntN(6) {
			votes := make([]int, len(e.sides))
			for range e.n {
				votes[random.IntN(len(votes))]++
			}
			e.set(votes, true)
			e.run(e.now.Add(time.Duration(random.Int64N(int64(r.Per/10))) * time.Duration(random.IntN(2))))
			if random.IntN(8) == 0 {
				votes[0] = 0 // some may stay nobody's
				e.set(votes, true)
			}
			e.set(votes, false)
			e.run(e.now.Add(time.Duration(random.Int64N(3 * int64(r.Per)))))
		}
		if most := e.seen.most(r.Per); most > r.Events {
			t.Fatalf("seed %d, rate %s, %d sides: the far side saw %d events in one window",
				seed, r, len(e.sides), most)
		}
	}
}

// TestWindowRestsAfterARaise: how long nothing is granted after a share grew.
func TestWindowRestsAfterARaise(t *testing.T) {
	for _, tc := range []struct {
		name     string
		from, to Rate
		want     time.Duration // about; 4 % more or less
	}{
		{"a slow rate", Rate{10, time.Minute}, Rate{30, time.Minute}, 6 * time.Second},
		{"from nothing", Rate{0, time.Minute}, Rate{30, time.Minute}, 6 * time.Second},
		{"the default of RCPT", Rate{1, time.Second}, Rate{5, time.Second}, 600 * time.Millisecond},
		{"a fast rate", Rate{500, time.Second}, Rate{1000, time.Second}, 41 * time.Millisecond},
		{"never longer than the rate counts", Rate{0, time.Hour}, Rate{2, time.Hour}, time.Hour},
		{"another length is no share", Rate{1, time.Minute}, Rate{1, time.Second}, 0},
		{"a smaller share", Rate{30, time.Minute}, Rate{10, time.Minute}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := NewWindow(tc.from, start)
			now := start.Add(3 * max(tc.from.Per, tc.to.Per)) // all before is forgotten
			w.Ready(now)
			w.Set(tc.to)
			n, next := w.Ready(now)
			if tc.want == 0 {
				if n == 0 {
					t.Errorf("nothing granted before %s later", next.Sub(now))
				}
				return
			}
			if wait := next.Sub(now); n > 0 || wait < tc.want || wait > tc.want*104/100 {
				t.Errorf("%d granted, next after %s, want none for %s", n, wait, tc.want)
			}
			if n, _ := w.Ready(next); n == 0 {
				t.Errorf("nothing granted at the time it named")
			}
		})
	}
}

// TestWindowAndBudgetOfNothing: a share of nothing grants nothing, says that it
// waits for no time of its own, and what follows it is granted.
func TestWindowAndBudgetOfNothing(t *testing.T) {
	whole := DefaultLimits()
	none := whole.Share(0, 3)
	w, b := NewWindow(none.RcptRate, start), NewBudget(none.RefusedPerHour, none.RefusedShare, 0)
	now := start.Add(time.Hour)
	if n, next := w.Ready(now); n != 0 || !next.IsZero() {
		t.Errorf("the window grants %d, next %s, want nothing and no time", n, next)
	}
	if n, next := b.Ready(now); n > 0 || !next.IsZero() {
		t.Errorf("the budget grants %d, next %s, want nothing and no time", n, next)
	}
	w.Set(whole.RcptRate)
	b.Set(whole.RefusedPerHour, 0)
	if n, next := w.Ready(now); n != 0 || next.Sub(now) > whole.RcptRate.Per {
		t.Errorf("the window grants %d after its share came back, next %s", n, next)
	}
	if n, _ := b.Ready(now); n != whole.RefusedPerHour {
		t.Errorf("the budget grants %d after its share came back, want %d", n, whole.RefusedPerHour)
	}
	w.Set(none.RcptRate)
	if n, _ := w.Ready(now.Add(time.Hour)); n != 0 {
		t.Errorf("the window grants %d after its share went", n)
	}
}
