package throttle

import (
	"fmt"
	"time"
)

// OpeningRate finds how many sessions a second a receiver lets us open that doesn't say so, by the law of Pace. It can't
// ask again whether an opening that failed was about something else: who uses it tells it by what was open beside.
// Not safe for concurrent use.
type OpeningRate struct {
	search
	share float64
	flow  flow
	until time.Time // nothing is opened before
	since time.Time // what was dialled before says nothing about the present rate
	why   string
}

// NewOpeningRate begins at what is allowed.
func NewOpeningRate(b RateBounds, now time.Time) *OpeningRate {
	o := &OpeningRate{share: 1}
	b.Stated = true
	o.bound(b)
	o.search.begin(now)
	o.Set(b, now)
	return o
}

// Set changes what is allowed. A ceiling of nothing changes nothing.
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

// Limits reports whether it holds us back more than what is allowed does.
func (o *OpeningRate) Limits(now time.Time) bool { return now.Before(o.until) || o.rate < o.ceiling }

// Permits returns our share of the rate, for a Window, and until when nothing is opened.
func (o *OpeningRate) Permits(time.Time) (Rate, time.Time) {
	return windowed(o.rate*o.share, 0), o.until
}

// Opened takes a session that was dialled at a time and could be opened.
func (o *OpeningRate) Opened(dialled, now time.Time) {
	o.flow.add(dialled)
	o.good(dialled, now, o.share, 0)
}

// TooFast takes one that was dialled at a time and could not be, because they were opened too fast.
func (o *OpeningRate) TooFast(dialled, now time.Time, words string) {
	if dialled.Before(o.since) {
		return
	}
	from, limit := o.rate, float64(o.flow.over(dialled, time.Second))/o.share
	if limit < 1 || limit > o.rate {
		limit = o.rate / 2 / below
	}
	to := below * limit
	if o.trying && o.proved > 0 {
		to, limit = o.proved, from
	}
	o.failedTrial(now, 0)
	o.lower(to, limit, now)
	o.until, o.since = now.Add(settles), now.Add(settles)
	o.stretch(o.until)
	o.why = fmt.Sprintf("%s when %s were opened; now %s", words, perSecond(from), perSecond(o.rate))
}

// Cost makes raises as rare as what the last one brought was long.
func (o *OpeningRate) Cost(lasted time.Duration, now time.Time) { o.failedTrial(now, lasted) }
