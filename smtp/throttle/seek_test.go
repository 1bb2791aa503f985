package throttle

import (
	"strings"
	"testing"
	"time"
)

// TestARaisedAllowanceBeginsANewSearch: what was learned below a stated allowance is where
// the search begins when somebody allows more, and its end is found within a minute; less,
// or the same, begins none.
func TestARaisedAllowanceBeginsANewSearch(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	bounds := func(n int) RateBounds {
		return RateBounds{Ceiling: Rate{Events: n, Per: time.Second}, Stated: true, Rest: time.Hour}
	}
	r := NewAdaptiveRate(bounds(8), now)
	for range 40 { // four seconds of answers, then a word
		now = now.Add(100 * time.Millisecond)
		r.OnSuccess(now, now)
	}
	r.OnThrottled(now, now, "450")
	learned := r.Explain(now.Add(2 * time.Minute))
	if learned.Edge == 0 || learned.Rate >= 8 {
		t.Fatalf("nothing was learned: %+v", learned)
	}
	for _, same := range []int{8, 6, 8} {
		if r.Set(bounds(same), now); r.Explain(now).Edge != learned.Edge {
			t.Errorf("%d/s begins a search: %+v", same, r.Explain(now))
		}
	}
	r.Set(bounds(40), now)
	if e := r.Explain(now); !e.Until.Equal(learned.Until) || !strings.Contains(e.Why, "new search begins at") {
		t.Errorf("the rest is not kept, or not said why: %+v", e)
	}
	began := now
	for now = r.Explain(now).Until.Add(time.Second); r.Explain(now).Rate < 40; now = now.Add(50 * time.Millisecond) {
		if now.Sub(began) > time.Minute {
			t.Fatalf("after a minute it is at %+v", r.Explain(now))
		}
		if e := r.Explain(now); now.Sub(began) < 2*time.Second && e.Rate > 1.6*learned.Rate {
			t.Fatalf("it begins at %+v and not at %v", e, learned.Rate)
		}
		r.OnSuccess(now, now)
		r.OnSuccess(now, now)
	}
	t.Logf("from %.3g/s to 40/s in %s", learned.Rate, now.Sub(began).Round(time.Second))
}
