package throttle

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
)

// TestBudgetAgainstAList: whatever is asked and answered, a probe is granted only when the refusals of the last hour
// and the open probes leave room, counted from a plain list of all that happened; and memory is bounded.
func TestBudgetAgainstAList(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		share := rapid.SampledFrom([]int{0, 0, 10, 30, ShareMax}).Draw(t, "share")
		hour := rapid.SampledFrom([]Hour{0, Hour(18 * time.Second), Hour(3 * time.Hour)}).Draw(t, "hour")
		b, now, open := NewBudget(limit, share, hour), start, 0
		var accepted, refused []time.Time
		lastHour := func(list []time.Time) (n int) {
			for _, at := range list {
				if at.After(now.Add(-hour.Of(time.Hour))) {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(hour.Of(10*time.Minute))).Draw(t, "wait")))
			n, next := b.Ready(now)
			most := max(limit, lastHour(accepted)*share/(100-share))
			if room := most - lastHour(refused) - open; n > max(0, room) {
				t.Fatalf("%d probes granted, %d would be right", n, room)
			}
			if n <= 0 && next.IsZero() && open == 0 {
				t.Fatal("nothing granted, nothing open, and no time named")
			}
			if next.After(now.Add(hour.Of(time.Hour + time.Minute))) {
				t.Fatalf("nothing before %v", next.Sub(now))
			}
			if n > 0 {
				b.Begin(1)
				open++
			}
			switch answer := rapid.IntRange(0, 3).Draw(t, "answer"); {
			case open == 0:
			case answer == 0:
				b.Accepted(now)
				accepted, open = append(accepted, now), open-1
			case answer == 1:
				b.Undo(1)
				open--
			case answer == 2:
				b.Refused(now)
				refused, open = append(refused, now), open-1
			}
			if len(b.Minutes) > 62 {
				t.Fatalf("%d minutes", len(b.Minutes))
			}
		}
	})
}

// TestRefusalsWeighWhatTheyCost: a refusal counts as what may be asked for each that is allowed, and
// as one RCPT where refusals are not scarce.
func TestRefusalsWeighWhatTheyCost(t *testing.T) {
	for _, c := range []struct {
		perHour, share, accepted int
		perSecond, want          float64
	}{
		{20, 0, 0, 1, 180},
		{20, 0, 0, 0.001, 1},     // the budget is larger than what may be asked
		{20, 50, 720, 1, 5},      // a share of what was accepted is allowed
		{CountMax, 0, 0, 100, 1}, // no budget
		{0, 0, 0, 200, 1000},
		{20, 0, 0, 200, 1000},
	} {
		b := NewBudget(c.perHour, c.share, Hour(0))
		for range c.accepted {
			b.Begin(1)
			b.Accepted(start)
		}
		if got := b.WeighRefusal(c.perSecond); got != c.want {
			t.Errorf("%d an hour or %d %%, %g/s: a refusal counts %g, want %g", c.perHour, c.share, c.perSecond, got, c.want)
		}
	}
}

// TestBudgetTellsHowLong: the predicted time for a number of further refusals is the real one, if each is caused as
// soon as it is allowed.
func TestBudgetTellsHowLong(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		b, now := NewBudget(rapid.IntRange(1, 20).Draw(rt, "an hour"), 0, 0), start
		refuse := func() bool {
			n, next := b.Ready(now)
			if n <= 0 {
				now = next
				return false
			}
			b.Begin(1)
			b.Refused(now)
			return true
		}
		for range rapid.IntRange(0, 30).Draw(rt, "before") {
			now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(rt, "seconds")) * time.Second)
			refuse()
		}
		from, left := now, rapid.IntRange(0, 100).Draw(rt, "refusals")
		told, last := b.TimeFor(left, now), now
		for left > 0 {
			if refuse() {
				left, last = left-1, now
			}
		}
		if off := told - last.Sub(from); off < -10*time.Minute || off > 10*time.Minute {
			rt.Fatalf("told %s, it took %s", told, last.Sub(from))
		}
	})
}
