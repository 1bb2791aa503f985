package throttle

import (
	"slices"
	"time"
)

// RefusalsUnlimited stands for "no limit" of refusals an hour. Budgets with this value store no counts. Guess.
const RefusalsUnlimited = 100_000

// Budget limits how many addresses a receiver may refuse in an hour. A probe may begin if Limits.RefusedPerHour or
// Limits.RefusedShare permits it, given the refusals of the last hour. Probes whose answer isn't known count as
// refused.
//
// A Budget counts by the minute and, where minutes are too coarse, permits fewer refusals. Minutes returns the state
// from which another actor continues. Not safe for concurrent use.
type Budget struct {
	PerHour  int
	Minutes  []RefusalMinute // oldest first
	share    int             // percent of all answers
	hour     Hour
	open     int
	accepted int                             // sum over Minutes
	refused  int                             // sum over Minutes
	answered struct{ accepted, refused int } // counts of more than an hour, see Answered
}

// RefusalMinute counts the answers of one minute of a Budget.
type RefusalMinute struct {
	Began             time.Time // time of the first of these answers
	Accepted, Refused int
}

// answeredOver: after this many refusals the older counts are halved. Halving keeps the share exact to a tenth. Guess.
const answeredOver = 200

// weightMost is the most RCPTs that one refusal can count as. Without this bound, a list with one bad address in a
// hundred would count like a list of bad addresses only. Guess.
const weightMost = 1000

// NewBudget allows perHour refusals in an hour, and more as long as at most share percent of all answers are refusals.
// hour is the length of its hour.
func NewBudget(perHour, share int, hour Hour) *Budget {
	return &Budget{PerHour: perHour, share: share, hour: hour}
}

// whole is the time over which a Budget counts: the hour of Limits.RefusedPerHour.
func (b *Budget) whole() time.Duration { return b.hour.Of(time.Hour) }

// again is how long a refusal counts, from the start of its minute. The refusals of a minute are forgotten together.
func (b *Budget) again() time.Duration { return b.hour.Of(time.Hour + time.Minute) }

// IsOver reports whether a minute that began at this time no longer counts.
func (b *Budget) IsOver(began, now time.Time) bool { return now.Sub(began) >= b.again() }

// Set changes the limits at once. If this node took over a share, it doesn't know which refusals other nodes caused.
func (b *Budget) Set(perHour, share int) { b.PerHour, b.share = perHour, share }

// CountAllowed returns how many refusals an hour may have now. The number is PerHour or, if that is more, share percent
// of all answers.
func (b *Budget) CountAllowed() int { return max(b.PerHour, b.accepted*b.share/(100-b.share)) }

// WeighRefusal returns how many RCPTs one refusal is worth: the RCPTs of an hour at this rate, divided by the refusals
// that the hour allows. 1: refusals aren't scarce.
func (b *Budget) WeighRefusal(perSecond float64) float64 {
	return min(weightMost, max(1, perSecond*b.whole().Seconds()/float64(max(1, b.CountAllowed()))))
}

// Ready returns how many probes may begin now. If no probe may begin, next is when to ask again; zero: when an open
// probe is answered or undone.
func (b *Budget) Ready(now time.Time) (n int, next time.Time) {
	b.forget(now)
	if n = b.CountAllowed() - b.refused - b.open; n > 0 {
		return n, time.Time{}
	}
	for _, m := range b.Minutes {
		if m.Refused > 0 {
			return 0, m.Began.Add(b.again())
		}
	}
	return 0, time.Time{}
}

// TimeFor returns the least time until n more refusals are allowed. TimeFor assumes that each refusal comes as soon as
// it is allowed: an hour's refusals at once, and then no refusal for an hour.
func (b *Budget) TimeFor(refusals int, now time.Time) time.Duration {
	b.forget(now)
	most := b.CountAllowed()
	left := refusals - max(0, most-b.refused-b.open)
	if left <= 0 || most <= 0 {
		return 0
	}
	rounds := time.Duration((left - 1) / most)
	wait := time.Duration(0)
	left -= int(rounds) * most
	for _, m := range b.Minutes {
		if left -= m.Refused; m.Refused > 0 {
			wait = m.Began.Add(b.again()).Sub(now)
		}
		if left <= 0 {
			return wait + rounds*b.again()
		}
	}
	return b.again() + rounds*b.again() // the refusals that are allowed now count for an hour
}

// Begin notes that n probes begin. Each probe stays open until Accepted, Refused or Undo.
func (b *Budget) Begin(n int) { b.open += max(0, n) }

// Undo notes that n open probes ended without being accepted or refused: they weren't sent, got no answer, or got one
// that says nothing about the address.
func (b *Budget) Undo(n int) { b.open = max(0, b.open-max(0, n)) }

// Accepted notes that an open probe was accepted at this time.
func (b *Budget) Accepted(at time.Time) {
	b.Undo(1)
	b.minute(at).Accepted++
	b.accepted++
	b.answered.accepted++
}

// Refused notes that an open probe was refused at this time.
func (b *Budget) Refused(at time.Time) {
	b.Undo(1)
	b.minute(at).Refused++
	b.refused++
	if b.answered.refused++; b.answered.refused >= answeredOver {
		b.answered.accepted, b.answered.refused = b.answered.accepted/2, b.answered.refused/2
	}
}

// Answered returns the newest counts of acceptances and refusals. These counts cover the newest one to two hundred
// refusals, because a single hour has too few to show the share.
func (b *Budget) Answered() (accepted, refused int) { return b.answered.accepted, b.answered.refused }

// RefusedAt returns the known refusals of the hour before now.
func (b *Budget) RefusedAt(now time.Time) int {
	b.forget(now)
	return b.refused
}

// minute returns the counts of a time's minute, or makes them. Answers may come out of order: a time before the newest
// minute counts in the newest.
func (b *Budget) minute(at time.Time) *RefusalMinute {
	if n := len(b.Minutes); n > 0 && at.Before(b.Minutes[n-1].Began.Add(b.hour.Of(time.Minute))) {
		return &b.Minutes[n-1]
	}
	b.forget(at)
	b.Minutes = append(b.Minutes, RefusalMinute{Began: at})
	return &b.Minutes[len(b.Minutes)-1]
}

// forget drops the minutes that ended an hour ago. forget drops acceptances earlier: an hour after their minute began.
func (b *Budget) forget(now time.Time) {
	for len(b.Minutes) > 0 && b.IsOver(b.Minutes[0].Began, now) {
		b.refused -= b.Minutes[0].Refused
		b.accepted -= b.Minutes[0].Accepted
		b.Minutes = b.Minutes[1:]
	}
	for i := 0; i < len(b.Minutes) && now.Sub(b.Minutes[i].Began) >= b.whole(); i++ {
		b.accepted -= b.Minutes[i].Accepted
		b.Minutes[i].Accepted = 0
	}
}

// Inherit merges the counts of another budget into this one. For each minute it keeps the counts that leave fewer
// refusals.
func (b *Budget) Inherit(others []RefusalMinute) {
	if b.PerHour >= RefusalsUnlimited {
		return
	}
	half := b.hour.Of(time.Minute) / 2
	for _, m := range others {
		m.Accepted, m.Refused = min(m.Accepted, RefusalsUnlimited), min(m.Refused, RefusalsUnlimited)
		same := func(own RefusalMinute) bool { return own.Began.Sub(m.Began).Abs() < half }
		i := slices.IndexFunc(b.Minutes, same)
		switch {
		case i < 0:
			b.Minutes = append(b.Minutes, m)
		case m.Refused-m.Accepted > b.Minutes[i].Refused-b.Minutes[i].Accepted:
			b.Minutes[i] = m
		}
	}
	slices.SortFunc(b.Minutes, func(x, y RefusalMinute) int { return x.Began.Compare(y.Began) })
	b.accepted, b.refused = 0, 0
	for _, m := range b.Minutes {
		b.accepted, b.refused = b.accepted+m.Accepted, b.refused+m.Refused
	}
	b.answered.accepted, b.answered.refused = b.accepted, b.refused
}
