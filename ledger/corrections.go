package ledger

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Correction sets right what an audit found about one subject. It adds to the book and never changes
// what is there: its own entries move credits, and a violation that no entry can undo is
// noted as known, word for word. An audit names it from then on.
type Correction struct {
	ID        uuid.UUID         `json:"id"`        // the subject of its entries
	Subject   string            `json:"subject"`   // as in Violation
	Number    int64             `json:"number"`    // of the corrections of this subject, from 1
	Workspace uuid.UUID         `json:"workspace"` // in which credits moved; the nil UUID: in none
	At        time.Time         `json:"at"`
	Author    string            `json:"author,omitempty"`
	Reason    string            `json:"reason"`
	Findings  []Violation       `json:"findings"`          // what it sets right
	Entries   []CorrectionEntry `json:"entries,omitempty"` // told when it is made
}

// CorrectionEntry is an entry of a correction.
type CorrectionEntry struct {
	Number int64     `json:"number"` // CorrectionFound or CorrectionMoved
	Kind   EntryKind `json:"kind"`
	Amount Credits   `json:"amount"`
}

// The numbers of the entries of a correction.
const (
	CorrectionFound = 1 // what had moved the account without an entry
	CorrectionMoved = 2 // what the correction moves
)

// CorrectionCall asks for a correction.
type CorrectionCall struct {
	ID      uuid.UUID // made by the caller: sent again it is the same correction
	Subject string
	Reason  string // there must be one
	// Keep leaves the account of a workspace as it is, and enters how it came to be so. Otherwise
	// it becomes what its entries made before.
	Keep bool
}

// Check reports whether the call is one that can be kept. ErrIllegal.
func (c CorrectionCall) Check() error {
	if c.ID == uuid.Nil || c.Subject == "" || c.Reason == "" {
		return fmt.Errorf("a correction without an id, a subject or a reason: %w", ErrIllegal)
	}
	if err := CheckOperatorText("subject", c.Subject); err != nil {
		return err
	}
	return CheckOperatorText("reason", c.Reason)
}

// AuditedAccount is a workspace's account that an audit found to be off.
type AuditedAccount struct {
	Workspace uuid.UUID
	Account   Balance
	Entries   Sums
	Files     Credits // what its verifications hold
}

// Correct returns the entries that set an account right, and what they move in it. The first of them enter what
// moved the account without an entry; the others move it to what it becomes. In either case the
// account then holds what its verifications hold. ErrUncorrectable when an amount would be negative.
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

// Correctable reports whether a violation may be noted as known: it is about something that happened and that
// no change would undo. One that can be mended, such as bytes that should be erased, must be mended.
func (v Violation) Correctable() bool {
	return slices.Contains([]string{"I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I12", InOrder, Owned, Paid}, v.Invariant)
}

// EntriesMax bounds one page of entries. Guess: more than a screen, and some
// 100 KB in memory.
const EntriesMax = 1000

// Entry is one immutable line of the book, as it is shown to an operator.
type Entry struct {
	Kind   EntryKind
	Number int64 // of the settlement that moved the credits; 0: none
	Amount Credits
	At     time.Time
}

// EntriesQuery asks for one page of the entries of a verification, newest first.
type EntriesQuery struct {
	Workspace, Verification uuid.UUID

	After *Entry // the last one of the page before; nil: from the newest
	Limit int    // at most EntriesMax are given
}

// Statement is what the book says about the credits of one verification, all of
// one moment.
type Statement struct {
	Verification Verification
	Sums         Sums    // of all its entries
	Count        int64   // of all its entries
	Entries      []Entry // the page that was asked for
}
