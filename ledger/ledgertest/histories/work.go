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
	case wait:
		return b.wait(c)
	}
	if f.status != ledger.Cancelling {
		return b, refused(ledger.ErrIllegal)
	}
	return b.clone().refund(c.rank)
}

// defect is the issue of every file that is refused.
const defect = "csv_malformed"

// repeats says whether the same call was accepted before, so that it is answered
// with the state of now.
func (b *book) repeats(c call) bool {
	f := b.files[c.rank]
	switch c.kind {
	case settle:
		batches := strings.Split(f.batches, ";")
		return c.number >= 1 && c.number < int64(len(batches)) && batches[c.number-1] == c.batch()
	case prepare:
		return f.epoch == c.epoch && f.total == c.total && (f.short() || f.funded() && f.node == c.node)
	case refuse:
		return f.epoch == c.epoch && f.status == ledger.Failed && f.issue == defect
	case finishCancel:
		return f.epoch == c.epoch && f.status == ledger.Cancelled
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
	f.total = c.total
	if ledger.Credits(c.total) <= b.accounts[f.workspace].Available {
		b.hold(f)
		return b, told(f)
	}
	f.status, f.issue, f.node, f.expired = ledger.Waiting, ledger.CreditsRequired, 0, false
	return b, told(f)
}

func (b *book) settle(c call) (*book, answer) {
	f := b.files[c.rank]
	n := int64(len(c.outcomes))
	switch {
	case c.number != f.settlements+1:
		return b, refused(ledger.ErrStaleEpoch)
	case !f.funded() || c.first+n > f.total || n > f.left():
		return b, refused(ledger.ErrIllegal)
	}
	b = b.clone()
	f = b.edit(c.rank)
	a := &b.accounts[f.workspace]
	free := ledger.Credits(strings.Count(c.outcomes, "u"))
	for _, l := range []byte(c.outcomes) {
		f.counts.Add(outcomeOf(l))
	}
	f.settlements = c.number
	f.batches += c.batch() + ";"
	f.outcomes += c.outcomes // batches follow each other
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

func (b *book) wait(c call) (*book, answer) {
	f := b.files[c.rank]
	switch {
	case f.status == ledger.Cancelling:
		return b, told(f)
	case !f.funded():
		return b, refused(ledger.ErrIllegal)
	}
	b = b.clone()
	f = b.edit(c.rank)
	f.status, f.next = ledger.Verifying, c.until
	if c.until {
		f.status = ledger.Waiting
	}
	return b, told(f)
}
