package throttle

import "time"

// Hour is how long an hour lasts for limits, guards and pauses that count by the hour. The zero Hour is an hour; a
// shorter one is for simulated receivers whose hours are as short.
type Hour time.Duration

// Of scales d by the length of this hour; at least a nanosecond unless d is 0.
func (h Hour) Of(d time.Duration) time.Duration {
	if h <= 0 || time.Duration(h) == time.Hour || d <= 0 {
		return d
	}
	return max(1, time.Duration(float64(d)*(float64(h)/float64(time.Hour))))
}
