package sqlstore

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

// overruled writes so many overrides behind the ledger's back.
func overruled(t *testing.T, s *Store, n int) {
	t.Helper()
	err := s.update(t.Context(), func(t *tx) error {
		for range n {
			if err := t.Overrule(ledgertest.Halves("example.net"), time.Hour); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// lifted fails the test unless an override was cleared, or not.
func lifted(t *testing.T, s *Store, id uuid.UUID, want bool) {
	t.Helper()
	got := !want
	err := s.update(t.Context(), func(t *tx) (err error) {
		got, err = t.Lifted(id)
		return err
	})
	if err != nil || got != want {
		t.Errorf("cleared: got %v, %v, want %v", got, err, want)
	}
}

// boundsOverrides: as many hold as every node can read each second; one that is over,
// or was cleared, makes room for another.
func boundsOverrides(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 0)
	run(t, s, `DELETE FROM throttle_overrides`)
	overruled(t, s, ledger.OverridesMax-1)
	last := d.Overrides(ledgertest.Halves("last.test"), time.Hour)
	full := func(what string) {
		t.Helper()
		_, err := d.SetOverride(t.Context(), ledgertest.Halves("one.more.test"), time.Hour)
		if !errors.Is(err, ledger.ErrTooManyOverrides) {
			t.Errorf("%s: got %v, want ErrTooManyOverrides", what, err)
		}
	}
	full("another key")
	if again, err := d.SetOverride(t.Context(), last, time.Hour); err != nil || again.Key != "last.test" {
		t.Errorf("the last one again: %+v, %v", again, err)
	}
	run(t, s, `UPDATE throttle_overrides SET created = 1, expires = {now}, ends = {now} WHERE id = ?`, last.ID[:])
	next := d.Overrides(ledgertest.Halves("in.its.place.test"), time.Hour)
	full("after one that expired")
	lifted(t, s, last.ID, false)
	if ended, err := d.ClearOverrides(t.Context(), ledger.Clearing{ID: next.ID}); err != nil || len(ended) != 1 {
		t.Errorf("cleared %d, %v", len(ended), err)
	}
	lifted(t, s, next.ID, true)
	d.Overrides(ledgertest.Halves("after.it.test"), time.Hour)
	full("after one that was cleared")
	if tuning, err := d.Tuning(t.Context()); err != nil || len(tuning.Overrides) != ledger.OverridesMax {
		t.Errorf("%d hold, %v", len(tuning.Overrides), err)
	}
	run(t, s, `DELETE FROM throttle_overrides`)
}

// forgetsOverrides: a sweep forgets those that were over long ago, however many, and
// the operator log stays.
func forgetsOverrides(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 0)
	run(t, s, `DELETE FROM throttle_overrides`)
	overruled(t, s, 2*oldOverrides+1) // for three transactions
	run(t, s, `UPDATE throttle_overrides SET created = 1, ends = {now} - ?`, overridesKept.Milliseconds())
	lately := d.Overrides(ledgertest.Halves("lately.test"), time.Hour)
	run(t, s, `UPDATE throttle_overrides SET created = 1, ends = {now} - ? WHERE id = ?`,
		(overridesKept - time.Hour).Milliseconds(), lately.ID[:])
	cleared := d.Overrides(ledgertest.Halves("cleared.test"), time.Hour)
	if _, err := d.ClearOverrides(t.Context(), ledger.Clearing{ID: cleared.ID}); err != nil {
		t.Fatal(err)
	}
	holds := d.Overrides(ledgertest.Halves("holds.test"), time.Hour)
	lines := number(t, s, `SELECT count(*) FROM operator_log`)
	if n, err := s.Sweep(t.Context(), ledger.Retention{}); n != 0 || err != nil {
		t.Errorf("sweep: %d verifications, %v", n, err)
	}
	if n := number(t, s, `SELECT count(*) FROM throttle_overrides`); n != 3 {
		t.Errorf("%d overrides are left, want 3", n)
	}
	for what, id := range map[string]uuid.UUID{"lately": lately.ID, "cleared": cleared.ID, "holds": holds.ID} {
		if number(t, s, `SELECT count(*) FROM throttle_overrides WHERE id = ?`, id[:]) != 1 {
			t.Errorf("%s: forgotten", what)
		}
	}
	if n := number(t, s, `SELECT count(*) FROM operator_log`); n != lines {
		t.Errorf("%d lines of %d are left", n, lines)
	}
	run(t, s, `DELETE FROM throttle_overrides`)
}

// pagesOneMoment: lines of one millisecond have an order, and so each is on one page.
func pagesOneMoment(t *testing.T, s *Store) {
	const lines = 5
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond) // before all that others wrote
	for range lines {
		if err := s.Note(t.Context(), ledger.LogLine{Action: "one moment"}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, s, `UPDATE operator_log SET created = ? WHERE action = 'one moment'`, at.UnixMilli())
	q, seen := ledger.LogQuery{Limit: 1}, map[uuid.UUID]bool{}
	for range lines {
		page, err := s.OperatorLog(t.Context(), q)
		if err != nil || len(page) != 1 || page[0].Action != "one moment" || seen[page[0].ID] {
			t.Fatalf("after %d lines: %+v, %v", len(seen), page, err)
		}
		seen[page[0].ID], q.Before, q.After = true, page[0].At, page[0].ID
	}
	run(t, s, `DELETE FROM operator_log WHERE action = 'one moment'`)
}
