package edge

import (
	"math"
	"time"
)

// debt is a token bucket, kept as the tokens that are used and not yet back. That,
// and not what is left, is what stays true when the limit changes. The zero debt is
// a full bucket.
type debt struct {
	tokens float64
	at     time.Time // when tokens was true
}

// tokenError is what rounding may make of whole tokens; a customer who waits as
// long as told must get one.
const tokenError = 1e-6

// pass lets time pass and gives the tokens that are then used and not yet back.
func (d *debt) pass(now time.Time, perSecond float64) float64 {
	if passed := now.Sub(d.at); passed > 0 {
		d.tokens = max(0, d.tokens-perSecond*passed.Seconds())
		d.at = now
	}
	return d.tokens
}

// take takes up to want tokens, and gives the time to the next one when it takes fewer.
func (d *debt) take(now time.Time, want int, r Rate) (taken int, wait time.Duration) {
	used := d.pass(now, r.PerSecond)
	taken = min(want, max(0, int(float64(r.Burst)-used+tokenError)))
	d.tokens += float64(taken)
	if taken < want {
		missing := d.tokens + 1 - float64(r.Burst)
		wait = max(time.Duration(math.Ceil(missing/r.PerSecond*float64(time.Second))), 1)
	}
	return taken, wait
}

// news gives how much of a debt that was heard elsewhere, a burst at most, is more
// than what was heard before, and remembers it.
func (d *debt) news(now time.Time, heard float64, r Rate) float64 {
	known := d.pass(now, r.PerSecond)
	heard = min(heard, float64(r.Burst))
	if !(heard > known) { // nor is it a number
		return 0
	}
	d.tokens = heard
	return heard - known
}
