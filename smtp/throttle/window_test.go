package throttle

import (
	"container/heap"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
)

// start is the time at which all simulations begin.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// farSide counts what it sees.
type farSide []time.Time

// most is the highest number of events in any window of length per, both ends included.
func (f farSide) most(per time.Duration) int {
	seen := slices.Clone(f)
	slices.SortFunc(seen, time.Time.Compare)
	most, first := 0, 0
	for i := range seen {
		for seen[i].Sub(seen[first]) > per {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// reply is an event on its way back to us.
type reply struct {
	back time.Time
	at   time.Time // what the caller passes to Done
	lost bool      // the caller calls Undo instead
}

type replies []reply

func (r replies) Len() int           { return len(r) }
func (r replies) Less(i, j int) bool { return r[i].back.Before(r[j].back) }
func (r replies) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *replies) Push(x any)        { *r = append(*r, x.(reply)) }
func (r *replies) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}

// world is a caller and a network.
type world struct {
	lowestThere, lowestBack time.Duration
	jitter                  func() (there, back time.Duration) // of the next event, on top of the lowest
	lost                    func() bool                        // the next event comes to nothing
	wanted                  func() int                         // how many events the caller has for now
	lateness                func() time.Duration               // of the caller's next waking up
}

// eager is a world without latency in which the caller wants all it can get.
func eager() world {
	return world{
		jitter:   func() (there, back time.Duration) { return 0, 0 },
		lost:     func() bool { return false },
		wanted:   func() int { return RateEventsMax },
		lateness: func() time.Duration { return 0 },
	}
}

// simulate asks w whenever it names a time or an event comes back, and gives
// what the far side saw.
func simulate(w *Window, from time.Time, length time.Duration, n world) farSide {
	var seen farSide
	var under replies
	lowest := n.lowestThere + n.lowestBack
	for now := from; now.Before(from.Add(length)); {
		for len(under) > 0 && !under[0].back.After(now) {
			r := heap.Pop(&under).(reply)
			if r.lost {
				w.Undo(1)
			} else {
				w.Done(r.at, 1)
			}
		}
		granted, next := w.Ready(now)
		for range min(granted, n.wanted()) {
			w.Begin(now, 1)
			there, back := n.jitter()
			there, back = there+n.lowestThere, back+n.lowestBack
			r := reply{back: now.Add(there + back), at: now.Add(there + back - lowest), lost: n.lost()}
			if !r.lost {
				seen = append(seen, now.Add(there))
			}
			heap.Push(&under, r)
		}
		if granted > 0 {
			next = now.Add(time.Microsecond)
		}
		if next.IsZero() || len(under) > 0 && under[0].back.Before(next) {
			next = under[0].back
		}
		now = next.Add(n.lateness())
	}
	return seen
}

func drawRate(t *rapid.T) Rate {
	return Rate{
		Events: rapid.IntRange(1, 300).Draw(t, "events"),
		Per:    time.Duration(rapid.Int64Range(int64(50*time.Millisecond), int64(time.Hour)).Draw(t, "per")),
	}
}

// TestWindowLimitIsNeverBroken: whatever the rate, latency, jitter, lateness of
// the caller, and events that come to nothing, no window at the far side has
// more than Events events, and the memory stays bounded.
func TestWindowLimitIsNeverBroken(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		w := NewWindow(r, start)
		jitterMax := rapid.Int64Range(0, int64(r.Per)).Draw(t, "jitterMax")
		n := world{
			lowestThere: time.Duration(rapid.Int64Range(0, int64(r.Per)).Draw(t, "lowestThere")),
			lowestBack:  time.Duration(rapid.Int64Range(0, int64(r.Per)).Draw(t, "lowestBack")),
			jitter: func() (time.Duration, time.Duration) {
				return time.Duration(rapid.Int64Range(0, jitterMax).Draw(t, "there")),
					time.Duration(rapid.Int64Range(0, jitterMax).Draw(t, "back"))
			},
			lost:   func() bool { return rapid.IntRange(0, 9).Draw(t, "lost") == 0 },
			wanted: func() int { return rapid.IntRange(0, 3).Draw(t, "wanted") },
			lateness: func() time.Duration {
				return time.Duration(rapid.IntRange(0, int(r.Per)/r.Events).Draw(t, "lateness"))
			},
		}
		length := min(3*r.Per, time.Duration(200)*r.Per/time.Duration(r.Events))
		seen := simulate(w, start, length, n)
		if most := seen.most(r.Per); most > r.Events {
			t.Fatalf("rate %s: the far side saw %d events in one window", r, most)
		}
		if len(w.done) > windowSteps+2 {
			t.Fatalf("%d entries", len(w.done))
		}
	})
}

// TestWindowUse: asked at the times it names and without jitter, a Window makes
// at least 97 % of its rate, and at most all of it.
func TestWindowUse(t *testing.T) {
	for _, tc := range []struct {
		rate    string
		length  time.Duration
		latency time.Duration
	}{
		{"1/s", time.Hour, 0},
		{"5/s", 10 * time.Minute, 100 * time.Millisecond},
		{"7/s", 10 * time.Minute, 300 * time.Millisecond},
		{"50/s", time.Minute, 900 * time.Millisecond},
		{"51/s", time.Minute, 0},
		{"99/s", time.Minute, 10 * time.Millisecond},
		{"1000/s", 20 * time.Second, 50 * time.Millisecond},
		{"20000/s", 5 * time.Second, time.Millisecond},
		{"100000/s", 2 * time.Second, 20 * time.Millisecond},
		{"30/min", 2 * time.Hour, time.Second},
		{"6000/min", 10 * time.Minute, time.Second},
		{"100/h", 100 * time.Hour, 90 * time.Second},
		{"1/h", 1000 * time.Hour, time.Second},
		{"1/2s", time.Hour, 0},
	} {
		t.Run(tc.rate, func(t *testing.T) {
			r := mustRate(t, tc.rate)
			n := eager()
			n.lowestThere, n.lowestBack = tc.latency/2, tc.latency/2
			seen := simulate(NewWindow(r, start), start, tc.length, n)
			if most := seen.most(r.Per); most > r.Events {
				t.Errorf("%d events in one window", most)
			}
			full := float64(tc.length) / float64(r.Per) * float64(r.Events)
			if share := float64(len(seen)) / full; share < 0.97 || share > 1.0001 {
				t.Errorf("%d events in %s: %.4f of the rate", len(seen), tc.length, share)
			}
		})
	}
}

// TestWindowUseWithLateTimers: a caller that wakes up 1 ms late still makes 94 %.
func TestWindowUseWithLateTimers(t *testing.T) {
	for _, rate := range []string{"5/s", "50/s", "60/s", "200/s", "5000/s"} {
		t.Run(rate, func(t *testing.T) {
			r := mustRate(t, rate)
			n := eager()
			n.lateness = func() time.Duration { return time.Millisecond }
			seen := simulate(NewWindow(r, start), start, 20*time.Second, n)
			if share := float64(len(seen)) / float64(20*r.Events); share < 0.94 {
				t.Errorf("%.4f of the rate", share)
			}
		})
	}
}

// TestWindowSpreads: events of slow rates come one by one, at least 0.98 of the interval apart. Fast rates allow at
// most 20 ms worth of events at once. Both hold from the beginning.
func TestWindowSpreads(t *testing.T) {
	for _, tc := range []struct {
		rate  string
		group int
	}{{"5/s", 1}, {"30/min", 1}, {"50/s", 1}, {"100/s", 2}, {"1000/s", 20}, {"1000000/s", 20000}} {
		t.Run(tc.rate, func(t *testing.T) {
			r := mustRate(t, tc.rate)
			w := NewWindow(r, start)
			if n, _ := w.Ready(start); n != 0 {
				t.Errorf("%d events at the beginning, want 0", n)
			}
			interval := r.Per / time.Duration(r.Events)
			last, seen := start, 0
			for now := start; seen < 3*tc.group; {
				n, next := w.Ready(now)
				if n == 0 {
					now = next
					continue
				}
				if n > tc.group {
					t.Fatalf("%d events at once, want at most %d", n, tc.group)
				}
				if gap := now.Sub(last); tc.group == 1 && gap < interval*98/100 {
					t.Fatalf("%s between two events, want at least 0.98 of %s", gap, interval)
				}
				w.Begin(now, n)
				w.Done(now, n)
				last, seen = now, seen+n
			}
		})
	}
}

// TestWindowOverRestart: the process dies at any moment and a new Window begins
// a little later; the far side sees no window with more than Events events.
func TestWindowOverRestart(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		r := Rate{Events: rapid.IntRange(1, 120).Draw(t, "events"), Per: time.Second}
		died := time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "died"))
		gap := groupSpan + r.Per/time.Duration(25*r.Events)
		n := eager()
		n.lateness = func() time.Duration {
			return time.Duration(rapid.IntRange(0, int(time.Millisecond)).Draw(t, "lateness"))
		}
		seen := simulate(NewWindow(r, start), start, died, n)
		again := start.Add(died + gap)
		seen = append(seen, simulate(NewWindow(r, again), again, 2*time.Second, n)...)
		if most := seen.most(r.Per); most > r.Events {
			t.Fatalf("%d events in one window", most)
		}
	})
}

// TestWindowOpenEventsHoldTheirPlace: nothing is granted while answers are out,
// and the next time is "when one is done".
func TestWindowOpenEventsHoldTheirPlace(t *testing.T) {
	w := NewWindow(Rate{Events: 2, Per: time.Second}, start)
	now := start
	for range 2 {
		now = now.Add(2 * time.Second)
		if n, _ := w.Ready(now); n != 1 {
			t.Fatalf("%d events, want 1", n)
		}
		w.Begin(now, 1)
	}
	now = now.Add(time.Hour)
	if n, next := w.Ready(now); n != 0 || !next.IsZero() {
		t.Fatalf("%d events, next %s with two open, want none and no time", n, next)
	}
	w.Undo(1)
	if n, _ := w.Ready(now); n != 1 {
		t.Errorf("%d events after Undo, want 1", n)
	}
	w.Done(now, 1)
	w.Begin(now, 1)
	if n, next := w.Ready(now); n != 0 || next.Before(now.Add(time.Second)) {
		t.Errorf("%d events, next %s with one just done and one open", n, next)
	}
}

// TestWindowSet: a new rate holds at once, upwards and downwards, and setting it
// again and again neither starves nor frees.
func TestWindowSet(t *testing.T) {
	slow, fast := Rate{Events: 1, Per: time.Minute}, Rate{Events: 10, Per: time.Second}
	w := NewWindow(slow, start)
	w.Set(fast)
	_, next := w.Ready(start)
	if wait := next.Sub(start); wait > 100*time.Millisecond {
		t.Errorf("first event %s after the rate was raised, want at most 100ms", wait)
	}
	w.Begin(next, 1)
	w.Done(next, 1)
	w.Set(slow)
	_, again := w.Ready(next)
	if wait := again.Sub(next); wait < 58*time.Second || wait > 62*time.Second {
		t.Errorf("next event %s after the rate was lowered, want about a minute", wait)
	}
	now, count := next, 0
	for now.Before(next.Add(10 * time.Minute)) {
		w.Set(Rate{Events: 1, Per: time.Minute + time.Second})
		w.Set(slow)
		n, _ := w.Ready(now)
		w.Begin(now, n)
		w.Done(now, n)
		count += n
		now = now.Add(time.Second)
	}
	if count < 9 || count > 10 {
		t.Errorf("%d events in ten minutes of setting the rate anew, want 9 or 10", count)
	}
}

// TestWindowForgetsNothingAtItsBound: when the steps of two rates meet and there
// are more entries than fit, every event still counts, and for long enough.
func TestWindowForgetsNothingAtItsBound(t *testing.T) {
	w := NewWindow(Rate{Events: RateEventsMax, Per: time.Second}, start)
	now, events := start, 1
	done := func(count int, apart time.Duration) {
		for range count {
			now = now.Add(apart)
			w.Begin(now, 1)
			w.Done(now, 1)
			events++
		}
	}
	done(windowSteps, time.Second/windowSteps)
	w.Set(Rate{Events: RateEventsMax, Per: time.Hour})
	done(100, 2*time.Second)
	if len(w.done) > windowSteps+2 {
		t.Errorf("%d entries", len(w.done))
	}
	counted := 0
	for _, m := range w.done {
		counted += m.n
	}
	if counted != events || w.doneN != events {
		t.Errorf("%d events in the entries, %d in the sum, want %d", counted, w.doneN, events)
	}
	w.Ready(now.Add(2 * time.Hour))
	if w.doneN != 0 || len(w.done) != 0 {
		t.Errorf("%d events in %d entries two hours later, want none", w.doneN, len(w.done))
	}
}

func mustRate(t *testing.T, text string) Rate {
	t.Helper()
	return effort.Must(ParseRate(text))(t)
}

func ExampleWindow() {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	w := NewWindow(Rate{Events: 30, Per: time.Minute}, now)
	n, next := w.Ready(now)
	fmt.Println(n, next.Sub(now))
	n, _ = w.Ready(next)
	fmt.Println(n)
	// Output:
	// 0 1.96s
	// 1
}
