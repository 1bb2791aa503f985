package sqlstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestResultsHoldNoSession: however many readers have stopped half-way, others
// are served, and what is erased meanwhile still comes.
func TestResultsHoldNoSession(t *testing.T) {
	const readers, rows = 100, 50 // more readers than a ledger has sessions
	d := ledgertest.NewDesk(t, openStore(t), rows)
	v, l := d.Prepares(rows)
	d.Settles(l, 1, rows/2, rows-1, smtp.Valid)
	d.Settles(l, 2, 0, rows/2-1, smtp.Invalid)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var read func(deep int) error
	read = func(deep int) error {
		next := int64(0)
		return d.Results(ctx, d.Workspace, v.ID, func(r ledger.Result) error {
			if r.Ordinal != next {
				t.Errorf("reader %d: ordinal %d, want %d", deep, r.Ordinal, next)
			}
			next++
			switch {
			case r.Ordinal != 2:
				return nil
			case deep < readers:
				return read(deep + 1)
			}
			_, err := d.Sweep(ctx, ledger.Retention{Results: 1})
			return err
		})
	}
	if err := read(1); err != nil {
		t.Fatal(err)
	}
	err := d.Results(ctx, d.Workspace, v.ID, func(ledger.Result) error { return nil })
	if !errors.Is(err, ledger.ErrResultsExpired) {
		t.Errorf("after the sweep: got %v, want %v", err, ledger.ErrResultsExpired)
	}
}
