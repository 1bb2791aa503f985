package throttle

import (
	"testing"
	"time"
)

// What lasts an hour lasts as long as the hour does, and parts and multiples of it alike.
func TestHour(t *testing.T) {
	for _, c := range []struct {
		hour    Hour
		d, want time.Duration
	}{
		{0, 5 * time.Minute, 5 * time.Minute},
		{-1, time.Hour, time.Hour},
		{Hour(time.Hour), 7*time.Hour + 1, 7*time.Hour + 1},
		{Hour(36 * time.Second), time.Hour, 36 * time.Second},
		{Hour(36 * time.Second), 5 * time.Minute, 3 * time.Second},
		{Hour(18 * time.Second), 72 * time.Hour, 72 * 18 * time.Second},
		{Hour(2 * time.Hour), time.Minute, 2 * time.Minute},
		{Hour(time.Second), 0, 0},
		{1, time.Second, 1},
	} {
		if got := c.hour.Of(c.d); got != c.want {
			t.Errorf("an hour of %v: %v lasts %v, want %v", time.Duration(c.hour), c.d, got, c.want)
		}
	}
}
