package throttle

import "time"

// Hour is the length of an hour for limits, guards and pauses that count by the hour. The zero Hour has 60 minutes.
// Tests with simulated receivers use shorter hours.
type Hour time.Duration

// Of scales a duration to this hour. The result is at least a nanosecond, unless d is 0.
func (h Hour) Of(d time.Duration) time.Duration {
	if h <= 0 || time.Duration(h) == time.Hour || d <= 0 {
		return d
	}
	return max(1, time.Duration(float64(d)*(float64(h)/float64(time.Hour))))
}
