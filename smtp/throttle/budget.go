package throttle

import (
	"slices"
	"time"
)

// RefusalsUnlimited is an allowance of refusals an hour beyond any use, so that counts needn't be stored. Guess.
const RefusalsUnlimited = 100_000

// Budget keeps to Limits.RefusedPerHour and RefusedShare: when a probe begins, one of the two permits the refusals of
// the hour before. A probe without a known answer counts as a refusal.
//
// It counts by the minute and rounds towards fewer refusals. Minutes returns the state with which another actor
// continues. Not safe for concurrent use.
type Budget struct {
	PerHour  int
	Minutes  []RefusalMinute // oldest first
	share    int             // of all answers, in percent
	hour     Hour
	open     int
	accepted int                             // sum over Minutes
	refused  int                             // sum over Minutes
	answered struct{ accepted, refused int } // recently, over more than an hour
}

// RefusalMinute is what a receiver answered in a minute of a Budget.
type RefusalMinute struct {
	Began             time.Time // the first of these answers
	Accepted, Refused int
}

// answeredOver: after this many refusals earlier ones count half, which shows the share to a tenth. Guess.
const answeredOver = 200

// weightMost bounds what one refusal counts. Guess: beyond it a list with one bad address in a hundred would count as
// one with only bad ones.
const weightMost = 1000

// NewBudget allows perHour refusals in an hour, and more while they are at most share percent of all answers. Its
// minutes are those of hour.
func NewBudget(perHour, share int, hour Hour) *Budget {
	return &Budget{PerHour: perHour, share: share, hour: hour}
}

// whole is the time that a Budget counts over: the hour of Limits.RefusedPerHour.
func (b *Budget) whole() time.Duration { return b.hour.Of(time.Hour) }

// again is the time after which a refusal at the beginning of a minute is forgotten, with all others of that minute.
func (b *Budget) again() time.Duration { return b.hour.Of(time.Hour + time.Minute) }

// IsOver reports whether a minute that began at a time no longer counts.
func (b *Budget) IsOver(began, now time.Time) bool { return now.Sub(began) >= b.again() }

// Set changes at once what is allowed. If this node took over a share, it doesn't know the refusals that other nodes
// got with it.
func (b *Budget) Set(perHour, share int) { b.PerHour, b.share = perHour, share }

// CountAllowed returns how many refusals an hour may have now: PerHour, or share for each 100 - share acceptances if
// that is more. Refusals are then share percent of all answers.
func (b *Budget) CountAllowed() int { return max(b.PerHour, b.accepted*b.share/(100-b.share)) }

// WeighRefusal returns how many RCPTs one refusal counts as at a rate: the RCPTs of an hour for each allowed refusal.
// 1: refusals aren't scarce.
func (b *Budget) WeighRefusal(perSecond float64) float64 {
	return min(weightMost, max(1, perSecond*b.whole().Seconds()/float64(max(1, b.CountAllowed()))))
}

// Ready returns how many probes may begin now. If none, next is the time to ask again; zero: when an open probe is
// answered or undone.
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

// TimeFor returns the least time until n more refusals are allowed, if each comes as soon as it may: an hour's worth at
// once, and then none for an hour.
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
	return b.again() + rounds*b.again() // an hour after those that may come now
}

// Begin says that n probes begin. Each is open until Accepted, Refused or Undo.
func (b *Budget) Begin(n int) { b.open += max(0, n) }

// Undo says that n open probes ended with neither: not sent, no answer, or an
// answer that says nothing about the address.
func (b *Budget) Undo(n int) { b.open = max(0, b.open-max(0, n)) }

// Accepted says that an open probe was accepted at this time.
func (b *Budget) Accepted(at time.Time) {
	b.Undo(1)
	b.minute(at).Accepted++
	b.accepted++
	b.answered.accepted++
}

// Refused says that an open probe was refused at this time.
func (b *Budget) Refused(at time.Time) {
	b.Undo(1)
	b.minute(at).Refused++
	b.refused++
	if b.answered.refused++; b.answered.refused >= answeredOver {
		b.answered.accepted, b.answered.refused = b.answered.accepted/2, b.answered.refused/2
	}
}

// Answered returns the latest counts of acceptances and refusals: the newest one to two hundred refusals, and the
// acceptances meanwhile. One hour has too few to tell the share.
func (b *Budget) Answered() (accepted, refused int) { return b.answered.accepted, b.answered.refused }

// RefusedAt returns the known refusals of the hour before now.
func (b *Budget) RefusedAt(now time.Time) int {
	b.forget(now)
	return b.refused
}

// minute returns the count of a time's minute, a new one if there is none. A time before the newest minute counts in
// that: answers may come out of order.
func (b *Budget) minute(at time.Time) *RefusalMinute {
	if n := len(b.Minutes); n > 0 && at.Before(b.Minutes[n-1].Began.Add(b.hour.Of(time.Minute))) {
		return &b.Minutes[n-1]
	}
	b.forget(at)
	b.Minutes = append(b.Minutes, RefusalMinute{Began: at})
	return &b.Minutes[len(b.Minutes)-1]
}

// forget drops the minutes that ended an hour ago, and the acceptances of those that began an hour ago.
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

// Inherit merges counts of another budget into this one: for each minute, those that leave less.
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
