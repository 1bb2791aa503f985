package verification

import (
	"fmt"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
)

const (
	// domainTakes is how long a domain is expected to take of which nothing is known, until
	// some have shown it: to ask DNS, and one session. Guess.
	domainTakes = 2 * time.Second

	// tooEarly is how long a run has to have gone on before its pace is believed. Guess.
	tooEarly = 2 * time.Second

	// renewedWithin is how near the end of a wait may be that the receiver tells anew
	// each second because it does not know the end. Such a wait has no end.
	renewedWithin = 90 * time.Second
)

// queue is what the addresses of a verification at one receiver have to expect there.
type queue struct {
	addresses int
	again     float64       // how many questions beside the first these will take, as expected
	wait      time.Duration // before the last of these can be asked
	perHour   int           // as the receiver says; 0: it does not
	asked     float64       // of it in a second, as seen; 0: nothing yet
	cause     string        // what keeps the receiver from asking more
	until     time.Time     // nothing is asked before

	rate float64 // in a second, that the estimate counts with; 0: none
}

// eta is all that an estimate of the finish rests on. It is plain Go.
type eta struct {
	now      time.Time
	begun    time.Time // of the run
	deadline time.Time // what is not final then is unknown
	pending  int       // final, and not in the ledger

	queues map[string]*queue // by receiver
	ends   time.Time         // of the domains' own waits; zero: there are none

	unclear  int       // domains at work of which nothing is known
	youngest time.Time // when the last of them was begun

	began                 int     // addresses of the domains that were begun
	domains, addresses    int     // that are not begun
	busy                  int     // domains at work that do not only wait for a time
	domainRate, finalRate float64 // done and final in a second, as of late
	took                  lasted  // what domains took, and what those at work are expected to take
}

// finish is when the last address is expected to be in the ledger; the zero time and why
// when nobody can say.
func (o *eta) finish() (time.Time, string) {
	at := latest(o.now, o.ends)
	for key, q := range o.queues {
		end, why := o.queueEnd(key, q)
		if why != "" {
			return time.Time{}, why
		}
		at = latest(at, end)
	}
	if o.unclear+o.domains > 0 {
		end, why := o.rest(at)
		if why != "" {
			return time.Time{}, why
		}
		at = latest(at, end)
	}
	at = at.Add(settleEvery)
	if !o.deadline.IsZero() && at.After(o.deadline) {
		at = o.deadline
	}
	return at, ""
}

// queueEnd is when a receiver is expected to have answered all that waits for it.
func (o *eta) queueEnd(key string, q *queue) (time.Time, string) {
	from := latest(o.now, q.until)
	switch q.cause {
	case inspect.Causes[wire.Cause_PAUSED], inspect.Causes[wire.Cause_NO_SOURCE], inspect.Causes[wire.Cause_NO_SHARE],
		inspect.Causes[wire.Cause_UNREACHED]:
		// A receiver that is paused tells how many it will ask in an hour if there is an end.
		ends := q.cause == inspect.Causes[wire.Cause_PAUSED] && q.perHour > 0 && q.until.After(o.now)
		if !ends && q.until.Sub(o.now) <= renewedWithin {
			return time.Time{}, fmt.Sprintf("%d addresses wait for receiver %s, and nobody can say how long: %s",
				q.addresses, key, q.cause)
		}
	}
	rate := float64(q.perHour) / 3600
	questions := float64(q.addresses) + q.again
	if rate <= 0 || questions <= float64(q.perHour) && q.cause != inspect.Causes[wire.Cause_BUDGET] {
		rate = max(rate, q.asked) // what an hour allows may go faster, while nothing is used up
	}
	if rate <= 0 {
		if q.cause != inspect.Causes[wire.Cause_FREE] {
			rate = o.finalRate
		}
		if rate <= 0 { // it has only begun: as one that is not known
			return from.Add(domainTakes), ""
		}
	}
	q.rate = rate
	first, all := spell(float64(q.addresses)/rate), spell(questions/rate)
	return from.Add(max(first+q.wait, all)), ""
}

// rest is when the domains are expected to be done of which nothing is known. known is the
// same of all others that are at work.
func (o *eta) rest(known time.Time) (time.Time, string) {
	at := o.now
	switch {
	case o.domains == 0:
	case o.now.Sub(o.begun) < tooEarly:
		return time.Time{}, "it has only begun"
	case o.domainRate > 0 && o.finalRate > 0:
		at = at.Add(spell(max(float64(o.domains)/o.domainRate, float64(o.addresses)/o.finalRate)))
		known = latest(known, o.now.Add(spell(float64(o.domains+o.busy)/o.domainRate)))
	case known.After(o.now) && o.began > 0: // as those that are at work
		at = known.Add(spell(known.Sub(o.begun).Seconds() * float64(o.addresses) / float64(o.began)))
	default:
		return time.Time{}, fmt.Sprintf("%d domains are not begun, and none was done of late", o.domains)
	}
	took, shown := o.took.longest(o.unclear + o.domains)
	if !shown {
		took = domainTakes
	}
	if o.domains == 0 {
		at = o.youngest
	}
	return latest(known, at.Add(took)), ""
}

// spell is so many seconds, at most a year.
func spell(seconds float64) time.Duration {
	return time.Duration(min(seconds, 365*24*3600) * float64(time.Second))
}

// latest is the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
