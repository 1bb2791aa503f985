package ledger

import (
	"time"

	"github.com/google/uuid"
)

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
