package receiver

import (
	"slices"
	"time"

	"rollcall/smtp/throttle"
)

// refusalsUnlimited is an allowance of refusals an hour that nobody reaches, so that
// it is not worth remembering. Guess.
const refusalsUnlimited = 100_000

// refusalBudget is the Budget of the refusals of an hour together with what it was told,
// minute by minute, so that another actor can go on from there. Mailbox only.
type refusalBudget struct {
	*throttle.Budget
	perHour, share int
	hour           throttle.Hour
	minutes        []minute // oldest first, at least a minute apart; at most some 60
}

// minute is what a receiver answered in a minute of the quota's hour.
type minute struct {
	began             time.Time // the first of these answers
	accepted, refused int
}

func newRefusalBudget(perHour, share int, hour throttle.Hour) *refusalBudget {
	return &refusalBudget{Budget: throttle.NewBudget(perHour, share, hour), perHour: perHour, share: share, hour: hour}
}

// over says whether what was counted at a time is out of the hour before now.
func (q *refusalBudget) over(began, now time.Time) bool {
	return now.Sub(began) > q.hour.Of(time.Hour+time.Minute)
}

// Set changes what is allowed, at once.
func (q *refusalBudget) Set(perHour, share int) {
	q.perHour, q.share = perHour, share
	q.Budget.Set(perHour, share)
}

// Accepted says that an open probe was accepted at this time.
func (q *refusalBudget) Accepted(at time.Time) {
	q.Budget.Accepted(at)
	q.minute(at).accepted++
}

// Refused says that an open probe was refused at this time.
func (q *refusalBudget) Refused(at time.Time) {
	q.Budget.Refused(at)
	q.minute(at).refused++
}

// minute finds or makes the count of a time; one before the newest minute counts in that.
func (q *refusalBudget) minute(at time.Time) *minute {
	if n := len(q.minutes); n > 0 && at.Before(q.minutes[n-1].began.Add(q.hour.Of(time.Minute))) {
		return &q.minutes[n-1]
	}
	for len(q.minutes) > 0 && q.over(q.minutes[0].began, at) {
		q.minutes = q.minutes[1:]
	}
	q.minutes = append(q.minutes, minute{began: at})
	return &q.minutes[len(q.minutes)-1]
}

// refused is how many refusals of the hour before now are known.
func (q *refusalBudget) refused(now time.Time) int {
	n := 0
	for _, m := range q.minutes {
		if now.Sub(m.began) <= q.hour.Of(time.Hour) {
			n += m.refused
		}
	}
	return n
}

// inherit makes a quota of what others counted and what this one did: of each
// minute the counts that leave less. No probe may be open.
func (q *refusalBudget) inherit(others []minute) *refusalBudget {
	fresh := newRefusalBudget(q.perHour, q.share, q.hour)
	if q.perHour >= refusalsUnlimited {
		return q
	}
	mine, half := q.minutes, q.hour.Of(time.Minute)/2
	for len(mine) > 0 && len(others) > 0 {
		switch apart := mine[0].began.Sub(others[0].began); {
		case apart <= -half:
			fresh.replay(mine[0])
			mine = mine[1:]
		case apart >= half:
			fresh.replay(others[0])
			others = others[1:]
		default: // the same minute
			fresh.replay(stricter(mine[0], others[0]))
			mine, others = mine[1:], others[1:]
		}
	}
	for _, m := range slices.Concat(mine, others) {
		fresh.replay(m)
	}
	return fresh
}

// stricter gives that of two counts of a minute which leaves less.
func stricter(a, b minute) minute {
	if a.accepted-a.refused <= b.accepted-b.refused {
		return a
	}
	return b
}

// replay books a minute that is over. More than a quota bears makes no difference.
func (q *refusalBudget) replay(m minute) {
	for range min(m.accepted, refusalsUnlimited) {
		q.Accepted(m.began)
	}
	for range min(m.refused, refusalsUnlimited) {
		q.Refused(m.began)
	}
}
