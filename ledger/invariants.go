package ledger

import (
	"fmt"

	"github.com/google/uuid"

	"rollcall/smtp"
)

// EntryKind is what an entry moves.
type EntryKind string

// The kinds. Mistakes are corrected by another entry, never by changing one: the last two are
// those of corrections, which have some of the others too.
const (
	EntryGrant   EntryKind = "grant"   // into available
	EntryHold    EntryKind = "hold"    // available -> held
	EntryCharge  EntryKind = "charge"  // held -> spent
	EntryRelease EntryKind = "release" // held -> available

	EntryWithdrawal EntryKind = "withdrawal" // out of available
	EntryRefund     EntryKind = "refund"     // spent -> available
)

// Sums are entries added up by kind.
type Sums struct {
	Granted, Held, Charged, Released Credits
	Withdrawn, Refunded              Credits // by corrections
}

// Add counts one entry, or a sum of entries of one kind. False for an unknown kind.
func (s *Sums) Add(kind EntryKind, amount Credits) bool {
	switch kind {
	case EntryGrant:
		s.Granted += amount
	case EntryHold:
		s.Held += amount
	case EntryCharge:
		s.Charged += amount
	case EntryRelease:
		s.Released += amount
	case EntryWithdrawal:
		s.Withdrawn += amount
	case EntryRefund:
		s.Refunded += amount
	default:
		return false
	}
	return true
}

// Balance is the account that the entries make.
func (s Sums) Balance() Balance {
	granted := s.Granted - s.Withdrawn
	return Balance{Granted: granted, Available: granted - s.Held + s.Released + s.Refunded,
		Held: s.Held - s.Charged - s.Released, Spent: s.Charged - s.Refunded}
}

// CheckBalance checks that the account of a workspace is sound (I1, I2), is the sum of its entries (I3), and holds
// what its verifications hold together (I4).
func CheckBalance(workspace uuid.UUID, b Balance, entries Sums, heldByFiles Credits) []Violation {
	f := findings{subject: workspace.String()}
	f.check("I1", b.Granted == b.Available+b.Held+b.Spent, "granted is not available + held + spent: %+v", b)
	f.check("I2", min(b.Granted, b.Available, b.Held, b.Spent) >= 0, "a negative amount: %+v", b)
	f.check("I3", b == entries.Balance(), "the account is %+v, its entries make %+v", b, entries.Balance())
	f.check("I4", b.Held == heldByFiles, "held is %d, its verifications hold %d", b.Held, heldByFiles)
	return f.list
}

// findings collects what is wrong with one subject.
type findings struct {
	subject string
	found   int64       // also what is not listed
	list    []Violation // at most ViolationsMax
}

// check adds a violation unless holds.
func (f *findings) check(invariant string, holds bool, detail string, args ...any) {
	if holds {
		return
	}
	if f.found++; f.found <= ViolationsMax {
		f.list = append(f.list, Violation{Invariant: invariant, Subject: f.subject,
			Detail: fmt.Sprintf(detail, args...)})
	}
}

// Found is the number of violations so far; Finish lists ViolationsMax of them.
func (f *findings) Found() int64 { return f.found }

// FileCheck recomputes what one verification must be from its entries and
// settlements. Feed it all entries, then all settlements, then ask Finish. Not
// safe for concurrent use.
type FileCheck struct {
	findings
	v        Verification
	erased   bool // some payload is gone
	entries  Sums
	moved    map[int64]Sums // by settlement number
	counts   Counts         // of the settlements
	outcomes Counts         // of the payloads
	seen     []uint64       // one bit for each ordinal
	last     int64          // settlement number
	epoch    int64
}

// NewFileCheck starts a check of v.
func NewFileCheck(v Verification) *FileCheck {
	return &FileCheck{findings: findings{subject: v.ID.String()}, v: v, moved: map[int64]Sums{}}
}

// Entry takes one entry of the verification; number is that of its settlement.
func (c *FileCheck) Entry(workspace uuid.UUID, kind EntryKind, number int64, amount Credits) {
	moved := c.moved[number]
	known := moved.Add(kind, amount) && c.entries.Add(kind, amount)
	c.check("I3", known && kind != EntryGrant && kind != EntryWithdrawal && kind != EntryRefund,
		"an entry of kind %q", kind)
	c.check("I2", amount > 0, "an entry of %d credits", amount)
	c.check("I3", workspace == c.v.Workspace, "an entry in workspace %s, the verification is in %s",
		workspace, c.v.Workspace)
	c.moved[number] = moved
}

// Settlement takes the next settlement, by growing number. A nil batch says that
// its payload was erased after the retention.
func (c *FileCheck) Settlement(number, epoch int64, counts Counts, batch *Batch) {
	c.check(InOrder, number == c.last+1, "settlement %d follows %d", number, c.last)
	c.check(InOrder, epoch >= c.epoch && epoch <= c.v.Epoch,
		"settlement %d has epoch %d after %d, the lease's is %d",
		number, epoch, c.epoch, c.v.Epoch)
	c.last, c.epoch = number, epoch
	c.counts = c.counts.Plus(counts)
	moved := c.moved[number]
	c.check("I6", int64(moved.Charged) == counts.Charged(), "settlement %d charged %d for %d outcomes",
		number, moved.Charged, counts.Charged())
	c.check("I7", int64(moved.Released) == counts.Unknown, "settlement %d released %d for %d unknown",
		number, moved.Released, counts.Unknown)
	if batch == nil {
		c.erased = true
		return
	}
	var inside Counts
	for i, ordinal := range batch.Ordinals {
		inside.Add(batch.Outcomes[i])
		c.see(ordinal, number)
	}
	c.outcomes = c.outcomes.Plus(inside)
	c.check("I12", inside == counts, "settlement %d counts %+v and holds %+v", number, counts, inside)
}

// see marks one ordinal.
func (c *FileCheck) see(ordinal, number int64) {
	if c.seen == nil {
		c.seen = make([]uint64, (max(c.v.Total, 0)+63)/64)
	}
	if ordinal < 0 || ordinal >= c.v.Total {
		c.check("I12", false, "settlement %d has ordinal %d of %d", number, ordinal, c.v.Total)
		return
	}
	bit := uint64(1) << (ordinal % 64)
	c.check("I9", c.seen[ordinal/64]&bit == 0, "ordinal %d has a second outcome in settlement %d",
		ordinal, number)
	c.seen[ordinal/64] |= bit
}

// Finish says what is wrong.
func (c *FileCheck) Finish() []Violation {
	v, e := &c.v, c.entries
	settled := v.Counts
	settled.Cancelled = 0
	c.check(InOrder, c.last == v.Settlements, "%d settlements, the row says %d", c.last, v.Settlements)
	c.check("I8", c.counts == settled, "the settlements count %+v, the row %+v", c.counts, settled)
	c.check("I12", c.erased || c.outcomes == settled, "the payloads hold %+v, the row counts %+v",
		c.outcomes, settled)

	c.check("I4", v.Held == e.Held-e.Charged-e.Released, "the row holds %d, its entries leave %d",
		v.Held, e.Held-e.Charged-e.Released)
	c.check("I4", e.Held == 0 || e.Held == Credits(v.Total), "%d credits were held for %d addresses",
		e.Held, v.Total)
	c.check("I4", !v.State().Funded() || v.Held == Credits(v.Left()), "%d held with %d addresses left",
		v.Held, v.Left())
	c.check("I5", v.State().Funded() || v.Held == 0, "%s and holds %d", v.State(), v.Held)
	c.check("I6", int64(e.Charged) == v.Counts.Charged(), "%d charged for %d charged outcomes",
		e.Charged, v.Counts.Charged())
	free := v.Counts.Unknown + v.Counts.Cancelled
	c.check("I7", e.Held == 0 && e.Released == 0 || int64(e.Released) == free,
		"%d released for %d free outcomes and cancelled addresses", e.Released, free)

	sum := v.Counts.Sum()
	c.check("I8", v.Total < 0 && sum == 0 || v.Total >= 0 && sum <= v.Total,
		"%d of %d addresses are settled", sum, v.Total)
	measured, open := v.State().Measured()
	c.check("I8", open || measured == (v.Total > 0), "%s with a total of %d", v.State(), v.Total)
	c.check("I8", v.Total >= 0 || v.Rows == 0 && v.Duplicates == 0, "%d rows and %d duplicates of a file that was not read",
		v.Rows, v.Duplicates)
	c.check("I8", v.Total < 0 || v.Status.Final() == (sum == v.Total), "%s with %d of %d settled",
		v.Status, sum, v.Total)
	c.check("I8", v.Total < 0 || v.Total == v.Rows-v.Duplicates, "total %d of %d rows and %d duplicates",
		v.Total, v.Rows, v.Duplicates)
	c.check("I10", v.Status.known() && (v.Kind == Bulk || v.Kind == Single), "status %q, kind %q", v.Status, v.Kind)
	c.check("I10", v.Status.Final() != v.Completed.IsZero(), "%s with completed at %v", v.Status, v.Completed)
	c.check("I10", v.Status != Completed && v.Status != CompletedWithErrors || v.Counts.Cancelled == 0 &&
		(v.Status == CompletedWithErrors) == (v.Counts.Error > 0), "%s with %+v", v.Status, v.Counts)
	c.check("I10", v.Kind != Single || v.Total <= 1, "a check of %d addresses", v.Total)
	c.check("I10", v.Kind == Single || v.SingleEmail == "" && v.SingleOutcome == smtp.Undecided,
		"a file with an address or an outcome of its own")
	c.check("I10", v.Kind != Single || v.Status != Completed && v.Status != CompletedWithErrors ||
		v.SingleOutcome != smtp.Undecided, "%s and no outcome", v.Status)
	return c.list
}
