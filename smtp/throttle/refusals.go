package throttle

import (
	"slices"
	"time"
)

// RefusalsUnlimited is an allowance of refusals an hour that nobody reaches, so that counts needn't be stored. Guess.
const RefusalsUnlimited = 100_000

// RefusalBudget is the Budget of an hour's refusals, with its counts minute by minute, so that another actor can go on
// from there. Mailbox only.
type RefusalBudget struct {
	*Budget
	PerHour, share int
	hour           Hour
	answered       struct{ accepted, refused int } // of late, hours included
	Minutes        []RefusalMinute                 // oldest first, at least a minute apart; at most some 60
}

// answeredOver: after so many refusals earlier ones count half; that gives the share to a tenth. Guess.
const answeredOver = 200

// RefusalMinute is what a receiver answered in a minute of the quota's hour.
type RefusalMinute struct {
	Began             time.Time // the first of these answers
	Accepted, Refused int
}

// NewRefusalBudget makes an unused budget.
func NewRefusalBudget(perHour, share int, hour Hour) *RefusalBudget {
	return &RefusalBudget{Budget: NewBudget(perHour, share, hour), PerHour: perHour, share: share, hour: hour}
}

// IsOver reports whether a time lies more than an hour before now.
func (q *RefusalBudget) IsOver(began, now time.Time) bool {
	return now.Sub(began) > q.hour.Of(time.Hour+time.Minute)
}

// Set changes what is allowed, at once.
func (q *RefusalBudget) Set(perHour, share int) {
	q.PerHour, q.share = perHour, share
	q.Budget.Set(perHour, share)
}

// Accepted says that an open probe was accepted at this time.
func (q *RefusalBudget) Accepted(at time.Time) {
	q.Budget.Accepted(at)
	q.minute(at).Accepted++
	q.answered.accepted++
}

// Refused says that an open probe was refused at this time.
func (q *RefusalBudget) Refused(at time.Time) {
	q.Budget.Refused(at)
	q.minute(at).Refused++
	if q.answered.refused++; q.answered.refused >= answeredOver {
		q.answered.accepted, q.answered.refused = q.answered.accepted/2, q.answered.refused/2
	}
}

// Answered returns the latest counts of acceptances and refusals: the newest one to two hundred refusals, and the
// acceptances meanwhile. One hour has too few to tell the share.
func (q *RefusalBudget) Answered() (accepted, refused int) {
	return q.answered.accepted, q.answered.refused
}

// minute returns the count of a time's minute, a new one if there is none; a time before the newest minute counts in
// that.
func (q *RefusalBudget) minute(at time.Time) *RefusalMinute {
	if n := len(q.Minutes); n > 0 && at.Before(q.Minutes[n-1].Began.Add(q.hour.Of(time.Minute))) {
		return &q.Minutes[n-1]
	}
	for len(q.Minutes) > 0 && q.IsOver(q.Minutes[0].Began, at) {
		q.Minutes = q.Minutes[1:]
	}
	q.Minutes = append(q.Minutes, RefusalMinute{Began: at})
	return &q.Minutes[len(q.Minutes)-1]
}

// RefusedAt is how many refusals of the hour before now are known.
func (q *RefusalBudget) RefusedAt(now time.Time) int {
	n := 0
	for _, m := range q.Minutes {
		if now.Sub(m.Began) <= q.hour.Of(time.Hour) {
			n += m.Refused
		}
	}
	return n
}

// Inherit merges counts of another budget into this one: for each minute, those that leave less. No probe may be open.
func (q *RefusalBudget) Inherit(others []RefusalMinute) *RefusalBudget {
	fresh := NewRefusalBudget(q.PerHour, q.share, q.hour)
	if q.PerHour >= RefusalsUnlimited {
		return q
	}
	mine, half := q.Minutes, q.hour.Of(time.Minute)/2
	for len(mine) > 0 && len(others) > 0 {
		switch apart := mine[0].Began.Sub(others[0].Began); {
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

// stricter returns the one of two counts of a minute that leaves less.
func stricter(a, b RefusalMinute) RefusalMinute {
	if a.Accepted-a.Refused <= b.Accepted-b.Refused {
		return a
	}
	return b
}

// replay books a past minute. Counts above the bound make no difference.
func (q *RefusalBudget) replay(m RefusalMinute) {
	for range min(m.Accepted, RefusalsUnlimited) {
		q.Accepted(m.Began)
	}
	for range min(m.Refused, RefusalsUnlimited) {
		q.Refused(m.Began)
	}
}
