package sqlstore_test

import (
	"path/filepath"
	"testing"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
)

// TestWhatCrashesTwiceIsSetAside lets the program fail twice over one verification, with the rest
// between both ended by hand: it fails with its code, its credits are back, and no lease takes it again.
func TestWhatCrashesTwiceIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	d := ledgertest.NewDesk(t, s, 100)
	_, l := d.Prepares(3)
	first, err := s.Crashed(t.Context(), l)
	if err != nil || first.Status != ledger.Verifying {
		t.Fatalf("after the first: %s, %v", first.Status, err)
	}
	change(t, path, `UPDATE verifications SET wake_at = wake_at - 60000`)
	failed, err := s.Crashed(t.Context(), d.Takes(l.Verification))
	if err != nil || failed.Status != ledger.Failed || failed.Issue == nil || failed.Issue.Code != ledger.InternalError {
		t.Fatalf("after the second: %s with %+v, %v", failed.Status, failed.Issue, err)
	}
	if b := d.Account(); b != (ledger.Balance{Granted: 100, Available: 100}) {
		t.Errorf("the account is %+v", b)
	}
	if list, err := s.Lease(t.Context(), d.Node, 1000, ledgertest.Hour); err != nil || len(list) > 0 {
		t.Errorf("%d are leased, %v", len(list), err)
	}
}
