package sqlstore_test

import (
	"errors"
	"testing"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// TestWhatAnotherProcessSettledIsKnown: two processes use one lease, as one that lost its
// connection and one that took its place would, and neither charges what the other has.
func TestWhatAnotherProcessSettledIsKnown(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	d := ledgertest.NewDesk(t, openAt(t, url), 9)
	other := openAt(t, url)
	v, l := d.Prepares(9)
	books := []ledger.Book{d, other}
	for number := range int64(4) {
		with := books[number%2]
		for before := range number {
			_, err := with.Settle(t.Context(), ledgertest.Batch(l, number+1, before, number, smtp.Valid))
			if !errors.Is(err, ledger.ErrIllegal) {
				t.Errorf("settlement %d with ordinal %d of before: %v", number+1, before, err)
			}
		}
		if _, err := with.Settle(t.Context(), ledgertest.Batch(l, number+1, number, number, smtp.Valid)); err != nil {
			t.Fatal(err)
		}
	}
	if v = d.Sees(v.ID); v.Counts.Valid != 4 || v.Held != 5 || d.Account().Spent != 4 {
		t.Errorf("at the end %+v, %+v", v, d.Account())
	}
	d.Audits()
}
