package throttle

import "time"

// OpeningRate finds how many sessions a second a receiver lets us open, by the law of Pace. It can't ask again to see
// whether a failed opening was about something else: its caller decides that by the other sessions. Not safe for
// concurrent use.
type OpeningRate struct {
	search
	share float64
	flow  flow
	until time.Time // nothing is opened before
	since time.Time // what was dialled before says nothing about the present rate
}

// NewOpeningRate begins at the allowed rate.
func NewOpeningRate(b RateBounds, now time.Time) *OpeningRate {
	o := &OpeningRate{share: 1}
	b.Stated = true
	o.bound(b)
	o.search.begin(now)
	o.Set(b, now)
	return o
}

// Set changes the allowed rate. A ceiling of 0 changes nothing.
func (o *OpeningRate) Set(b RateBounds, now time.Time) {
	if b.Share > 0 && b.Share != o.share {
		o.share = b.Share
		o.stretch(now)
	}
	if c := b.Ceiling.PerSecond(); c > 0 && c != o.ceiling {
		full := o.rate >= o.ceiling
		o.ceiling = c
		if full || o.rate > c {
			o.rate = c
		}
	}
}

// Limits reports whether it holds us back more than the allowed rate does.
func (o *OpeningRate) Limits(now time.Time) bool { return now.Before(o.until) || o.rate < o.ceiling }

// Permits returns our share of the rate, for a Window, and until when nothing is opened.
func (o *OpeningRate) Permits() (Rate, time.Time) {
	return windowed(o.rate*o.share, 0), o.until
}

// Opened notes the dial time of a session that opened.
func (o *OpeningRate) Opened(dialled, now time.Time) {
	o.flow.add(dialled)
	o.good(dialled, now, o.share, 0)
}

// TooFast notes the dial time of a session that was refused because openings were too fast.
func (o *OpeningRate) TooFast(dialled, now time.Time) {
	if dialled.Before(o.since) {
		return
	}
	limit := float64(o.flow.over(dialled)) / o.share
	if limit < 1 || limit > o.rate {
		limit = o.rate / 2 / below
	}
	to := below * limit
	if o.trying && o.proved > 0 {
		to, limit = o.proved, o.rate
	}
	o.failedTrial(now, 0, 0)
	o.lower(to, limit, now)
	o.until, o.since = now.Add(settles), now.Add(settles)
	o.stretch(o.until)
}

// Cost delays the next raise by the cost of the last one.
func (o *OpeningRate) Cost(lasted time.Duration, now time.Time) { o.failedTrial(now, lasted, o.rate) }
