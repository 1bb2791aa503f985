package throttle

import "time"

// budgetSlot is the length of the slots a Budget counts in. A minute of an hour makes
// 61 slots, 1.5 KB a receiver, and at most a minute of needless waiting.
const budgetSlot = time.Minute

// Budget keeps to Limits.RefusedPerHour and RefusedShare: in the hour before any
// probe begins there were at most as many refusals as one of them permits, where a
// probe whose answer is not known yet counts as a refusal.
//
// It rounds to minutes, towards fewer refusals, and remembers nothing over a restart. Not safe for concurrent use.
type Budget struct {
	perHour  int
	share    int // of all answers, in percent
	hour     Hour
	base     time.Time // the first time seen; slots count from here, by the monotonic clock
	open     int
	slots    []budgetCount // by slot, oldest first; at most 62
	accepted int           // sum over slots
	refused  int           // sum over slots
}

type budgetCount struct {
	slot              time.Duration // its beginning, from base; a multiple of budgetSlot
	accepted, refused int
}

// NewBudget allows perHour refusals in an hour, and more while they are at most share percent of all answers. Its
// minutes are those of hour.
func NewBudget(perHour, share int, hour Hour) *Budget {
	return &Budget{perHour: perHour, share: share, hour: hour}
}

// whole is the time that a Budget counts over: the hour of Limits.RefusedPerHour.
func (b *Budget) whole() time.Duration { return b.hour.Of(time.Hour) }

// length is the length of its slots.
func (b *Budget) length() time.Duration { return b.hour.Of(budgetSlot) }

// Set changes what is allowed, at once. Refusals that other nodes got on a share that is this node's now aren't known
// to it.
func (b *Budget) Set(perHour, share int) { b.perHour, b.share = perHour, share }

// most is how many refusals an hour may have now. Refusals are at most share percent
// of all answers when there are share for each 100 - share acceptances.
func (b *Budget) most() int { return max(b.perHour, b.accepted*b.share/(100-b.share)) }

// weightMost bounds what one refusal counts. Guess: beyond it a list with one bad address in a hundred would count as
// one with only bad ones.
const weightMost = 1000

// WeighRefusal returns how many RCPTs one refusal counts as where so many a second are allowed: the RCPTs of an hour
// for each allowed refusal. 1: refusals aren't scarce.
func (b *Budget) WeighRefusal(perSecond float64) float64 {
	return min(weightMost, max(1, perSecond*b.whole().Seconds()/float64(max(1, b.most()))))
}

// CountAllowed returns how many refusals an hour may have now.
func (b *Budget) CountAllowed() int { return b.most() }

// Ready returns how many probes may begin now. If none, next is the time to ask again; zero: when an open probe is
// answered or undone.
func (b *Budget) Ready(now time.Time) (n int, next time.Time) {
	b.forget(b.offset(now))
	n = b.most() - b.refused - b.open
	if n > 0 {
		return n, time.Time{}
	}
	for _, c := range b.slots {
		if c.refused > 0 {
			return 0, b.base.Add(c.slot + b.length() + b.whole())
		}
	}
	return 0, time.Time{}
}

// TimeFor returns the least time until so many more refusals are allowed, if each comes as soon as it may: an hour's
// worth at once, and then none for an hour.
func (b *Budget) TimeFor(refusals int, now time.Time) time.Duration {
	at := b.offset(now)
	b.forget(at)
	most := b.most()
	left := refusals - max(0, most-b.refused-b.open)
	if left <= 0 || most <= 0 {
		return 0
	}
	rounds := time.Duration((left - 1) / most)
	wait, again := time.Duration(0), b.length()+b.whole()
	left -= int(rounds) * most
	for _, c := range b.slots {
		if left -= c.refused; c.refused > 0 {
			wait = c.slot + again - at
		}
		if left <= 0 {
			return wait + rounds*again
		}
	}
	return again + rounds*again // an hour after those that may come now
}

// Begin says that n probes begin. Each is open until Accepted, Refused or Undo.
func (b *Budget) Begin(n int) { b.open += max(0, n) }

// Undo says that n open probes ended with neither: not sent, no answer, or an
// answer that says nothing about the address.
func (b *Budget) Undo(n int) { b.open = max(0, b.open-max(0, n)) }

// Accepted says that an open probe was accepted at this time.
func (b *Budget) Accepted(at time.Time) {
	b.Undo(1)
	b.slot(at).accepted++
	b.accepted++
}

// Refused says that an open probe was refused at this time.
func (b *Budget) Refused(at time.Time) {
	b.Undo(1)
	b.slot(at).refused++
	b.refused++
}

// slot returns the count of at's slot, a new one if there is none. A time before the newest slot counts in the newest:
// two answers out of order around a full minute.
func (b *Budget) slot(at time.Time) *budgetCount {
	slot := b.offset(at).Truncate(b.length())
	if len(b.slots) > 0 && b.slots[len(b.slots)-1].slot >= slot {
		return &b.slots[len(b.slots)-1]
	}
	b.forget(slot)
	b.slots = append(b.slots, budgetCount{slot: slot})
	return &b.slots[len(b.slots)-1]
}

// forget drops the slots that ended an hour ago, and the acceptances of those that began an hour ago.
func (b *Budget) forget(now time.Duration) {
	for len(b.slots) > 0 && b.slots[0].slot+b.length()+b.whole() <= now {
		b.refused -= b.slots[0].refused
		b.accepted -= b.slots[0].accepted
		b.slots = b.slots[1:]
	}
	if len(b.slots) > 0 && b.slots[0].slot+b.whole() <= now {
		b.accepted -= b.slots[0].accepted
		b.slots[0].accepted = 0
	}
}

func (b *Budget) offset(t time.Time) time.Duration {
	if b.base.IsZero() {
		b.base = t
	}
	return t.Sub(b.base)
}
