package throttle

import (
	"testing"
	"time"
)

// TestTransientsAreTold from a pace that is too fast: those that go on long after the rate was
// lowered give it back, those that end with it don't, and neither do many.
func TestTransientsAreTold(t *testing.T) {
	for name, tc := range map[string]struct {
		every time.Duration // one is put off, for as long as it lasts
		lasts time.Duration
		fine  int // others that are answered between
		back  bool
	}{
		"at any pace":                {5 * time.Second, 3 * time.Minute, 100, true},
		"until the limit is kept":    {5 * time.Second, time.Minute, 100, false},
		"now and then, each alone":   {3 * time.Minute, time.Hour, 100, false},
		"so many that it is no mood": {time.Second, 3 * time.Minute, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Unix(1_000_000_000, 0)
			end := at.Add(tc.lasts)
			rate := NewAdaptiveRate(RateBounds{Ceiling: Rate{Events: 20, Per: time.Second}, Stated: true, Rest: time.Minute}, at)
			var s Transients
			lowered := false
			for ; at.Before(end); at = at.Add(tc.every) {
				for range tc.fine {
					s.Answered()
				}
				s.Passed(rate, at, at, "451")
				lowered = lowered || rate.present(at) < 20
			}
			if got := rate.present(at) == 20; got != tc.back || !lowered {
				t.Errorf("at the end %v are let go, the rate was lowered: %v", rate.present(at), lowered)
			}
		})
	}
}
