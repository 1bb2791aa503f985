package transitions

import (
	"fmt"
	"time"

	"rollcall/ledger"
)

// Unpaid are the verifications of a workspace that count against ledger.Limits.Unpaid.
type Unpaid struct {
	Count  int64
	Oldest int64 // when the oldest was created, milliseconds; 0: there is none
	Now    int64 // milliseconds, by the database's clock
}

// admit refuses a new verification when its workspace has as much as it may, or the ledger
// has no room. The first refusal of the list in package ledger is given.
func admit(t Tables, n ledger.NewVerification) error {
	own, err := t.Limits(n.Workspace)
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	limits := own.Or(n.Limits)
	open, err := t.Open(n.Workspace)
	if err != nil {
		return fmt.Errorf("count open ones: %w", err)
	}
	if open >= limits.Open {
		return ledger.ErrTooManyOpen
	}
	stored, err := t.Stored(n.Workspace)
	if err != nil {
		return fmt.Errorf("add up stored bytes: %w", err)
	}
	if n.Bytes > limits.Stored-stored {
		return ledger.ErrTooManyBytes
	}
	unpaid, err := t.Unpaid(n.Workspace)
	if err != nil {
		return fmt.Errorf("count unpaid ones: %w", err)
	}
	if unpaid.Count >= limits.Unpaid {
		return &ledger.Later{Err: ledger.ErrTooManyUnpaid, After: unpaid.after()}
	}
	return t.Room()
}

// after is when the oldest does not count any more.
func (u Unpaid) after() time.Duration {
	if u.Oldest == 0 {
		return ledger.UnpaidWithin // the limit lets none in
	}
	return time.Duration(u.Oldest-u.Now)*time.Millisecond + ledger.UnpaidWithin
}
