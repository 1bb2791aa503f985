package throttle

import (
	"testing"
	"time"
)

// TestTransientsAreTold from a pace that is too fast: those that continue long after the rate was lowered restore it, also
// when they are minutes apart, because we ask slowly. Those that end with it don't, and neither do many.
func TestTransientsAreTold(t *testing.T) {
	for name, tc := range map[string]struct {
		every time.Duration // one is put off, for as long as it lasts
		lasts time.Duration
		fine  int // others that are answered between
		back  bool
	}{
		"at any pace":                {5 * time.Second, 3 * time.Minute, 100, true},
		"until the limit is kept":    {5 * time.Second, time.Minute, 100, false},
		"at any pace, slowly":        {3 * time.Minute, time.Hour, 30, true},
		"now and then, each alone":   {3 * time.Minute, time.Hour, 600, false},
		"so many that it is no mood": {time.Second, 3 * time.Minute, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Unix(1_000_000_000, 0)
			end := at.Add(tc.lasts)
			rate := NewAdaptiveRate(RateBounds{Ceiling: Rate{Events: 20, Per: time.Second}, Stated: true, Rest: time.Minute}, at)
			var s Transients
			lowered, restored := false, false
			for ; at.Before(end); at = at.Add(tc.every) {
				for range tc.fine {
					s.Answered()
				}
				s.Passed(rate, at, at, "451")
				restored = restored || lowered && rate.present(at) == 20
				lowered = lowered || rate.present(at) < 20
			}
			if restored != tc.back || !lowered {
				t.Errorf("the rate was lowered: %v, and restored: %v", lowered, restored)
			}
		})
	}
}

// TestTransientsAtTheLeastRate: where nothing slower is left to try, put-offs that continue aren't about our pace either, and
// a higher rate may be tried at once.
func TestTransientsAtTheLeastRate(t *testing.T) {
	at := time.Unix(1_000_000_000, 0)
	rate := NewAdaptiveRate(RateBounds{Ceiling: Rate{Events: 20, Per: time.Second}, Stated: true, Rest: time.Minute}, at)
	rate.rate, rate.edge, rate.phase, rate.credit = rate.floor(), rate.floor(), PhaseHolding, -1
	var s Transients
	for range 6 {
		at = at.Add(time.Minute)
		s.Passed(rate, at, at, "451")
	}
	if rate.edge != 0 || rate.credit < rate.cost {
		t.Errorf("it was too fast at %v/s still, and has %v complaints to risk, of %v", rate.edge, rate.credit, rate.cost)
	}
}
