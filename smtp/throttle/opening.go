package throttle

import (
	"math"
	"time"
)

// A receiver may refuse sessions again after about as many openings as last time. When that happens the second time,
// the limit is taken as alikeOnce times the openings of the last second; the third time, as alikeTwice times. Most
// receivers count by the second, and each step may cost a penalty.
const alikeOnce, alikeTwice = 0.9, 0.5

// OpeningRate finds how many sessions a second a receiver lets us open. OpeningRate searches as Pace does, but a failed
// opening can't be repeated to find its cause: the caller decides the cause from the other sessions. Not safe for
// concurrent use.
type OpeningRate struct {
	search
	share float64
	flow  flow
	spell spell
	until time.Time // nothing is opened before this time
	since time.Time // dials before this time say nothing about the present rate
}

// spell is a time in which sessions can be opened, up to the first one that is refused.
type spell struct {
	from, to time.Time     // dial times of the first opened session, and of the first refused; zero: none
	opened   int           // sessions opened in this spell
	before   int           // sessions opened in the spell before
	alike    int           // spells in a row with about as many sessions, which shows a limit
	paused   time.Duration // how long no session could be opened before this spell
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

// Limits reports whether the learned rate holds us back.
func (o *OpeningRate) Limits(now time.Time) bool { return now.Before(o.until) || o.rate < o.ceiling }

// Permits returns our share of the rate, for a Window, and until when nothing is opened.
func (o *OpeningRate) Permits() (Rate, time.Time) {
	return windowed(o.rate*o.share, 0), o.until
}

// Opened notes that a session opened, by its dial time.
func (o *OpeningRate) Opened(dialled, now time.Time) {
	o.flow.add(dialled)
	if x := &o.spell; x.from.IsZero() || !x.to.IsZero() && dialled.After(x.to) {
		*x = spell{from: dialled, before: x.opened, alike: x.alike, paused: max(0, dialled.Sub(x.to))}
	}
	o.spell.opened++
	o.good(dialled, now, o.share, 0)
}

// Refused notes the dial time of the first session that was refused after others opened. open is how many of the opened
// sessions are still open. Refused reports whether we opened too fast: as many sessions opened as before the last
// refusal.
func (o *OpeningRate) Refused(dialled, now time.Time, open int) bool {
	x := &o.spell
	x.to = dialled
	if x.alike++; x.opened == 0 || max(x.opened-x.before, x.before-x.opened) > max(1, x.before/8) {
		x.alike = 0
	}
	if dialled.Before(o.since) || open >= x.opened || !o.trying && x.alike == 0 {
		return false
	}
	o.TooFast(dialled, now)
	return true
}

// TooFast notes the dial time of a session that was refused because we opened sessions too fast.
func (o *OpeningRate) TooFast(dialled, now time.Time) {
	if dialled.Before(o.since) {
		return
	}
	limit := float64(o.flow.over(dialled)) / o.share
	switch x := &o.spell; {
	case x.alike == 1:
		limit = alikeOnce * min(max(limit, 1), o.rate)
	case x.alike == 2:
		limit = alikeTwice * min(max(limit, 1), o.rate)
	case x.alike > 2: // the limit counts over a long time, and allows at least opened sessions
		opened, took := float64(x.opened)/o.share, dialled.Sub(x.from)
		limit = math.Sqrt(min(o.rate, opened/(took+x.paused).Seconds()) * min(o.rate, opened/took.Seconds()))
	case limit < 1 || limit > o.rate:
		limit = o.rate / 2 / below
	}
	to := below * limit
	if o.trying && o.proved > 0 {
		to, limit = o.proved, o.rate
	}
	o.failedTrial(now, 0, 0)
	o.lower(to, limit, now)
	if o.spell.alike > 0 {
		o.step = stepMost // the true limit may be higher
	}
	o.until, o.since = now.Add(settles), now.Add(settles)
	o.stretch(o.until)
}

// Cost notes for how long no session could be opened because of the last raise. The next raise waits trialWorth times
// as long.
func (o *OpeningRate) Cost(lasted time.Duration, now time.Time) {
	o.failedTrial(now, lasted, o.ceiling)
}

// Remember returns the rate with which the next owner of the receiver begins; zero: the allowed rate.
func (o *OpeningRate) Remember() RateMemory {
	if o.rate >= o.ceiling {
		return RateMemory{}
	}
	return RateMemory{Rate: o.rate, Edge: o.edge}
}

// Recall takes over the rate of an earlier OpeningRate, if it is lower.
func (o *OpeningRate) Recall(m RateMemory, now time.Time) {
	if m.Rate > 0 && m.Rate < o.rate {
		o.rate, o.edge = max(m.Rate, o.floor()), m.Edge
		o.stretch(now)
	}
}
