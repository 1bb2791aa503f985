package ledger

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/smtp"
)

// EntryKind is the kind of an entry's movement.
type EntryKind string

// The kinds. A mistake is corrected by another entry, never by changing one: the last two kinds are only for
// corrections, which may also have some of the others.
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

// Add adds one entry, or a sum of entries of one kind. It returns false for an unknown kind.
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

// Balance returns the account that results from the entries.
func (s Sums) Balance() Balance {
	granted := s.Granted - s.Withdrawn
	return Balance{Granted: granted, Available: granted - s.Held + s.Released + s.Refunded,
		Held: s.Held - s.Charged - s.Released, Spent: s.Charged - s.Refunded}
}

// CheckBalance checks that the account of a workspace is sound (I1, I2), is the sum of its entries (I3), and holds
// as much as its verifications together (I4).
func CheckBalance(workspace uuid.UUID, b Balance, entries Sums, heldByFiles Credits) []Violation {
	f := findings{subject: workspace.String()}
	f.check("I1", b.Granted == b.Available+b.Held+b.Spent, "granted is not available + held + spent: %+v", b)
	f.check("I2", min(b.Granted, b.Available, b.Held, b.Spent) >= 0, "a negative amount: %+v", b)
	f.check("I3", b == entries.Balance(), "the account is %+v, its entries make %+v", b, entries.Balance())
	f.check("I4", b.Held == heldByFiles, "held is %d, its verifications hold %d", b.Held, heldByFiles)
	return f.list
}

type findings struct {
	subject string
	found   int64       // also those not listed
	list    []Violation // at most ViolationsMax
}

// check adds a violation unless holds.
func (f *findings) check(invariant string, holds bool, detail string, args ...any) {
	if holds {
		return
	}
	if f.found++; f.found <= ViolationsMax {
		f.list = append(f.list, Violation{Invariant: invariant, Subject: f.subject, Detail: fmt.Sprintf(detail, args...)})
	}
}

// Found returns the number of violations so far; Finish lists at most ViolationsMax.
func (f *findings) Found() int64 { return f.found }

// FileCheck recomputes a verification from its entries and settlements. Give it all entries, then all settlements,
// then call Finish. Not safe for concurrent use.
type FileCheck struct {
	findings
	v        Verification
	erased   bool // some payload was erased
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

// Entry adds one entry of the verification; number is its settlement's.
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

// Settlement adds the next settlement, by ascending number. A nil batch means that its payload was erased after the
// retention.
func (c *FileCheck) Settlement(number, epoch int64, counts Counts, batch *Batch) {
	c.check(InOrder, number == c.last+1, "settlement %d follows %d", number, c.last)
	c.check(InOrder, epoch >= c.epoch && epoch <= c.v.Epoch, "settlement %d has epoch %d after %d, the lease's is %d",
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

func (c *FileCheck) see(ordinal, number int64) {
	if c.seen == nil {
		c.seen = make([]uint64, (max(c.v.Total, 0)+63)/64)
	}
	if ordinal < 0 || ordinal >= c.v.Total {
		c.check("I12", false, "settlement %d has ordinal %d of %d", number, ordinal, c.v.Total)
		return
	}
	bit := uint64(1) << (ordinal % 64)
	c.check("I9", c.seen[ordinal/64]&bit == 0, "ordinal %d has a second outcome in settlement %d", ordinal, number)
	c.seen[ordinal/64] |= bit
}

// Finish returns the violations.
func (c *FileCheck) Finish() []Violation {
	v, e := &c.v, c.entries
	settled := v.Counts
	settled.Cancelled = 0
	c.check(InOrder, c.last == v.Settlements, "%d settlements, the row says %d", c.last, v.Settlements)
	c.check("I8", c.counts == settled, "the settlements count %+v, the row %+v", c.counts, settled)
	c.check("I12", c.erased || c.outcomes == settled, "the payloads hold %+v, the row counts %+v", c.outcomes, settled)

	c.check("I4", v.Held == e.Held-e.Charged-e.Released, "the row holds %d, its entries leave %d",
		v.Held, e.Held-e.Charged-e.Released)
	c.check("I4", e.Held == 0 || e.Held == Credits(v.Total), "%d credits were held for %d addresses", e.Held, v.Total)
	c.check("I4", !v.State().Funded() || v.Held == Credits(v.Left()), "%d held with %d addresses left", v.Held, v.Left())
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
	c.check("I8", v.Total < 0 || v.Status.Final() == (sum == v.Total), "%s with %d of %d settled", v.Status, sum, v.Total)
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

// Invariant is one check of an audit, in words for operators.
type Invariant struct {
	ID    string `json:"id"`    // as in Violation
	Holds string `json:"holds"` // condition of a sound ledger
	Do    string `json:"do"`    // the first steps after a violation
}

// The invariants without a number.
const (
	InOrder = "settlements" // settlements are in order, under leases of their verification
	Owned   = "owners"      // the owner of every row exists
	Erased  = "erased"      // erased data is gone in every form
	Bounds  = "bounds"      // operators' settings are within bounds
	Paid    = "paid"        // the mark that credits were held
	Days    = "days"        // the sums of credits by day
	Storage = "storage"     // the database can be read and is sound
)

// Invariants lists the checks of an audit, in the order of the report.
func Invariants() []Invariant {
	return []Invariant{
		{"I1", "granted = available + held + spent, for each workspace",
			"The database checks this itself on every write, so the row was changed past it: look for a hand edit " +
				"or a damaged disk. The entries (I3) say what the account must be."},
		{"I2", "no amount is negative, in accounts and in entries",
			"As for I1: the row was changed past the database's own check."},
		{"I3", "each account is what its entries make; each entry is a grant, of a verification or of a correction",
			"The entries are the truth, they are never changed. List them with `rollcall credits show`, find what " +
				"moved the account without one, and correct the workspace: its account becomes what they make. If a " +
				"verification has an entry that does not belong to it, correct the verification."},
		{"I4", "held credits are those of the addresses that are not settled yet",
			"List the entries of the named verification: what they leave held is the truth. Make sure " +
				"that nobody cancels it before its row says the same, since a cancel releases what the row says. When it is over, " +
				"correct the workspace, so that it holds what its verifications hold, and then the verification."},
		{"I5", "a final verification holds nothing", "If its entries leave credits held too, nothing will ever move them: " +
			"grant the workspace as many, with the verification's id as the reason. Otherwise only its row is wrong."},
		{"I6", "charged credits are the outcomes that cost one, settlement by settlement",
			"If more was charged than there are outcomes, grant the workspace the difference, with the " +
				"verification's id as the reason. If less was, nothing is owed to the customer."},
		{"I7", "released credits are the unknown outcomes and the cancelled addresses",
			"If less was released, grant the workspace the difference, with the verification's id as the reason."},
		{"I8", "counters fit the settlements and the total, and reach it exactly when final",
			"The customer sees a wrong progress; results and credits may still be right, see I6, I7 and I12. If the " +
				"verification does not end by itself, cancel it once I4 holds for it."},
		{"I9", "no address has two outcomes, and no committed settlement was changed", "Take the settlement from the " +
			"newest backup in which an audit finds nothing, and tell the customer if results were downloaded meanwhile."},
		{"I10", "status, time of completion and outcomes fit each other", "The row was changed past the program. Its " +
			"settlements and entries say what happened: compare with the newest backup in which an audit finds nothing."},
		{"I11", "a workspace has one verification for each idempotency key",
			"The unique key of the table is gone or damaged. Stop all nodes, since a repeated create may now begin " +
				"a second verification, and restore the schema or a backup."},
		{"I12", "stored results are exactly the outcomes that were counted",
			"The results file of the customer is not complete or not right. Take the settlement from a backup; what " +
				"cannot be had again is owed to the customer: grant the credits of these addresses."},
		{"I13", "uploaded bytes that were acknowledged are stored", "The file cannot be read to its end. Cancel the " +
			"verification, which releases its credits, and have the customer upload the file again with a new idempotency key."},
		{InOrder, "settlements are numbered without a gap, by leases that never went back",
			"A settlement is missing or was written by a node whose lease was over. Stop the nodes; take what is " +
				"missing from a backup, and compare the entries of the verification."},
		{Owned, "settlements, evidence, uploads, verifications, weights and limits belong to something that is there",
			"Rows were deleted by hand, or the database lost them. Find the missing row in a backup and put it back."},
		{Erased, "no evidence outlives the results that it is about, and no bytes the upload that is said to be erased",
			"Delete the lines of the named verifications from the table evidence, or upload_chunks, by hand: they are past " +
				"the retention that you promise. Then look into the log for what the sweep says."},
		{Bounds, "weights of workspaces are 1 to 100, limits at least 1; an override has an end, which is not after its time",
			"The row was changed past the database's own check, and the named workspace may be served too much or never, " +
				"or an override may hold for longer than was said. Set the weight or the limits again, or clear the " +
				"override by its id."},
		{Paid, "a verification is marked as paid if credits were ever held for it, and only then",
			"The row was changed past the program. Its entries are the truth: set its column paid to 1 if it has any, " +
				"otherwise to 0. What has entries is never deleted, whatever its mark says."},
		{Days, "the credits of each day and kind are the sum of the entries",
			"The row of credit_days was changed past the program, and statements of credits show it. The entries are the truth: set the " +
				"credits of the named day and kind to the sum of the workspace's entries of that kind and day."},
		{Storage, "the database is sound and every row can be read",
			"Stop the node and keep a copy of its files before anything else. Check the disk, then restore the " +
				"newest backup in which an audit finds nothing. On a database server run its own checks."},
	}
}

// Correction corrects an audit's findings about one subject. It only adds: its own entries move credits, and it
// notes a violation that no entry can undo as known, word for word. Later audits list it.
type Correction struct {
	ID        uuid.UUID         `json:"id"`        // the subject of its entries
	Subject   string            `json:"subject"`   // as in Violation
	Number    int64             `json:"number"`    // of the corrections of this subject, from 1
	Workspace uuid.UUID         `json:"workspace"` // with moved credits; the nil UUID: none
	At        time.Time         `json:"at"`
	Author    string            `json:"author,omitempty"`
	Reason    string            `json:"reason"`
	Findings  []Violation       `json:"findings"`          // the corrected violations
	Entries   []CorrectionEntry `json:"entries,omitempty"` // only in the answer to its call
}

// CorrectionEntry is an entry of a correction.
type CorrectionEntry struct {
	Number int64     `json:"number"` // CorrectionFound or CorrectionMoved
	Kind   EntryKind `json:"kind"`
	Amount Credits   `json:"amount"`
}

// The numbers of the entries of a correction.
const (
	CorrectionFound = 1 // an earlier movement without an entry
	CorrectionMoved = 2 // a movement by the correction
)

// CorrectionCall asks for a correction.
type CorrectionCall struct {
	ID      uuid.UUID // made by the caller; a repeat with it is the same correction
	Subject string
	Reason  string // required
	// Keep keeps a workspace's account as it is and adds the missing entries. Otherwise the account becomes the sum
	// of the earlier entries.
	Keep bool
}

// Check returns ErrIllegal when the call cannot be stored.
func (c CorrectionCall) Check() error {
	if c.ID == uuid.Nil || c.Subject == "" || c.Reason == "" {
		return fmt.Errorf("a correction without an id, a subject or a reason: %w", ErrIllegal)
	}
	if err := CheckOperatorText("subject", c.Subject); err != nil {
		return err
	}
	return CheckOperatorText("reason", c.Reason)
}

// AuditedAccount is a workspace's account that failed an audit.
type AuditedAccount struct {
	Workspace uuid.UUID
	Account   Balance
	Entries   Sums
	Files     Credits // held by its verifications
}

// Correct returns the entries that correct an account, and their effect on it. The first entries record earlier
// movements that had none; the others move the account to its new balance. Either way the account then holds as much
// as its verifications. Error: ErrUncorrectable if an amount would be negative.
func (a AuditedAccount) Correct(keep bool) (entries []CorrectionEntry, by Balance, err error) {
	to, made := a.Account, a.Entries.Balance()
	if !keep {
		to = made
	}
	to.Held = a.Files
	to.Available = to.Granted - to.Held - to.Spent
	if min(to.Granted, to.Available, to.Held, to.Spent) < 0 {
		return nil, by, fmt.Errorf("the account would become %+v: %w", to, ErrUncorrectable)
	}
	by = Balance{Granted: to.Granted - a.Account.Granted, Available: to.Available - a.Account.Available,
		Held: to.Held - a.Account.Held, Spent: to.Spent - a.Account.Spent}
	found := Balance{Granted: a.Account.Granted - made.Granted, Held: a.Account.Held - made.Held,
		Spent: a.Account.Spent - made.Spent}
	return append(moves(CorrectionFound, found), moves(CorrectionMoved, by)...), by, nil
}

// moves returns the entries that add by to an account.
func moves(number int64, by Balance) (entries []CorrectionEntry) {
	for _, e := range []CorrectionEntry{
		{number, EntryGrant, max(by.Granted, 0)}, {number, EntryWithdrawal, max(-by.Granted, 0)},
		{number, EntryHold, max(by.Held, 0) + max(by.Spent, 0)}, {number, EntryCharge, max(by.Spent, 0)},
		{number, EntryRelease, max(-by.Held, 0)}, {number, EntryRefund, max(-by.Spent, 0)},
	} {
		if e.Amount > 0 {
			entries = append(entries, e)
		}
	}
	return entries
}

// Correctable reports whether a violation may be noted as known: it is about a past event that no change would undo.
// One that can be repaired, such as bytes to erase, must be repaired.
func (v Violation) Correctable() bool {
	return slices.Contains([]string{"I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I12", InOrder, Owned, Paid}, v.Invariant)
}

// EntriesMax bounds one page of entries. Guess: more than a screen, and some 100 KB in memory.
const EntriesMax = 1000

// Entry is one immutable movement of credits, for operators.
type Entry struct {
	Kind   EntryKind
	Number int64 // of the settlement that moved the credits; 0: none
	Amount Credits
	At     time.Time
}

// EntriesQuery asks for one page of the entries of a verification, newest first.
type EntriesQuery struct {
	Workspace, Verification uuid.UUID

	After *Entry // the last one of the previous page; nil: from the newest
	Limit int    // at most EntriesMax are returned
}

// Statement is the entries of one verification, from one snapshot.
type Statement struct {
	Verification Verification
	Sums         Sums    // of all its entries
	Count        int64   // of all its entries
	Entries      []Entry // the requested page
}
