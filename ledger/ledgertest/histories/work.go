package histories

import (
	"fmt"
	"strings"

	"rollcall/ledger"
)

// work does what needs a lease.
func (b *book) work(c call) (*book, answer) {
	f := b.files[c.rank]
	mine := f.node == c.node && f.epoch == c.epoch
	switch {
	case b.repeats(c):
		return b, told(f)
	case !mine:
		return b, refused(ledger.ErrStaleEpoch)
	}
	switch c.kind {
	case prepare:
		return b.prepare(c)
	case refuse:
		if f.status != ledger.Preparing {
			return b, refused(ledger.ErrIllegal)
		}
		b = b.clone()
		f = b.edit(c.rank)
		f.end(ledger.Failed, defect)
		return b, told(f)
	case settle:
		return b.settle(c)
	case wait, park:
		return b.wait(c)
	case crashed:
		return b.crashed(c)
	}
	if f.status != ledger.Cancelling {
		return b, refused(ledger.ErrIllegal)
	}
	return b.clone().refund(c.rank, ledger.Cancelled, "")
}

// defect is the issue of every file that is refused.
const defect = "csv_malformed"

// repeats reports whether the same call was accepted before, so that it is answered
// with the state of now.
func (b *book) repeats(c call) bool {
	f := b.files[c.rank]
	switch c.kind {
	case settle:
		batches := strings.Split(f.batches, ";")
		return c.number >= 1 && c.number < int64(len(batches)) && batches[c.number-1] == c.batch()
	case prepare:
		return f.epoch == c.epoch && f.total == c.total && f.twice == c.twice && (f.short() || f.funded() && f.node == c.node)
	case refuse:
		return f.epoch == c.epoch && f.status == ledger.Failed && f.issue == defect
	case finishCancel:
		return f.epoch == c.epoch && f.status == ledger.Cancelled
	case park:
		return f.epoch == c.epoch && f.node == 0 && f.status == ledger.Waiting && !f.short() && f.due == c.due && f.asleep >= c.asleep()
	case crashed:
		return f.epoch == c.epoch && f.node == 0 && f.crashes > 0
	}
	return false
}

// batch is the settlement as text.
func (c call) batch() string { return fmt.Sprintf("%d %d %s", c.epoch, c.first, c.outcomes) }

func (b *book) prepare(c call) (*book, answer) {
	f := b.files[c.rank]
	if f.status != ledger.Preparing {
		return b, refused(ledger.ErrIllegal)
	}
	b = b.clone()
	f = b.edit(c.rank)
	f.total, f.twice = c.total, c.twice
	if ledger.Credits(c.total) <= b.accounts[f.workspace].Available {
		b.hold(f)
		return b, told(f)
	}
	f.status, f.issue, f.node, f.expired = ledger.Waiting, ledger.CreditsRequired, 0, false
	return b, told(f)
}

func (b *book) settle(c call) (*book, answer) {
	f := b.files[c.rank]
	n := int64(len(c.outcomes) - strings.Count(c.outcomes, letters[:1]))
	switch {
	case c.number != f.settlements+1:
		return b, refused(ledger.ErrStaleEpoch)
	case !f.funded() || c.first+int64(len(c.outcomes)) > f.total || n > f.left() || f.overlaps(c):
		return b, refused(ledger.ErrIllegal)
	}
	b = b.clone()
	f = b.edit(c.rank)
	a := &b.accounts[f.workspace]
	free := ledger.Credits(strings.Count(c.outcomes, "u"))
	outcomes := []byte(f.outcomes + strings.Repeat(letters[:1], max(0, int(c.first)+len(c.outcomes)-len(f.outcomes))))
	for i, l := range []byte(c.outcomes) {
		if l != letters[0] {
			f.counts.Add(outcomeOf(l))
			outcomes[int(c.first)+i] = l
		}
	}
	f.settlements = c.number
	f.batches += c.batch() + ";"
	f.outcomes = string(outcomes)
	f.held -= ledger.Credits(n)
	a.Held -= ledger.Credits(n)
	a.Available += free
	a.Spent += ledger.Credits(n) - free
	if f.left() == 0 {
		switch {
		case f.status == ledger.Cancelling:
			f.end(ledger.Cancelled, "")
		case f.counts.Error > 0:
			f.end(ledger.CompletedWithErrors, "")
		default:
			f.end(ledger.Completed, "")
		}
	}
	if free > 0 {
		b.fund(f.workspace)
	}
	return b, told(f)
}

// overlaps reports whether a settlement is about an address that has an outcome.
func (f *file) overlaps(c call) bool {
	for i := range c.outcomes {
		if at := int(c.first) + i; c.outcomes[i] != letters[0] && at < len(f.outcomes) && f.outcomes[at] != letters[0] {
			return true
		}
	}
	return false
}

// wait marks a file as waiting for receivers, or as verifying again. A parked one has no lease any more.
func (b *book) wait(c call) (*book, answer) {
	f := b.files[c.rank]
	switch {
	case f.status == ledger.Cancelling:
		return b, told(f)
	case !f.funded() || c.due == notDue && c.why != "":
		return b, refused(ledger.ErrIllegal)
	}
	b = b.clone()
	f = b.edit(c.rank)
	f.tell(c.due, c.why)
	if c.kind == park {
		f.node, f.expired, f.asleep = 0, false, c.asleep()
	}
	return b, told(f)
}

// tell notes what a file waits for.
func (f *file) tell(until due, why string) {
	f.status, f.issue, f.why, f.due, f.next = ledger.Verifying, "", why, until, until > notDue
	if f.next {
		f.status = ledger.Waiting
	}
	if why != "" {
		f.issue = ledger.ReceiversWait
	}
}

// asleep is for how long no node takes what was parked.
func (c call) asleep() due {
	if c.due == dueLater {
		return dueLater
	}
	return notDue
}

// crashed gives a file back for some time, or, the second time, ends it.
func (b *book) crashed(c call) (*book, answer) {
	b = b.clone()
	f := b.edit(c.rank)
	if f.crashes++; f.crashes < ledger.CrashesMax || f.status == ledger.Cancelling {
		f.node, f.expired, f.asleep = 0, false, dueSince
		return b, told(f)
	}
	return b.refund(c.rank, ledger.Failed, ledger.InternalError)
}
