package throttle

import "time"

// Hour is how long an hour lasts, for whatever counts or rests by the hour: allowances,
// guards, rests. The zero Hour is an hour. Another one is for trials against simulated
// receivers whose hours are as short.
type Hour time.Duration

// Of gives how long d lasts, as long a part of this hour as d is of an hour; of what
// lasts at all, at least a nanosecond.
func (h Hour) Of(d time.Duration) time.Duration {
	if h <= 0 || time.Duration(h) == time.Hour || d <= 0 {
		return d
	}
	return max(1, time.Duration(float64(d)*(float64(h)/float64(time.Hour))))
}
