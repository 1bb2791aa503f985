package sqlstore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// TestResultsHoldNoSession: however many readers have stopped half-way, others
// are served, and what is erased meanwhile still comes.
func TestResultsHoldNoSession(t *testing.T) {
	const readers, rows = 100, 50 // more readers than a ledger has sessions
	d := ledgertest.NewFixture(t, openStore(t), rows)
	v, l := d.Prepares(rows)
	d.Settles(l, 1, rows/2, rows-1, smtp.Valid)
	d.Settles(l, 2, 0, rows/2-1, smtp.Invalid)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var read func(deep int) error
	read = func(deep int) error {
		next := int64(0)
		return d.Results(ctx, d.Workspace, v.ID, func(r ledger.Result) error {
			effort.Is(t, r.Ordinal, next, fmt.Sprintf("reader %d: ordinal", deep))
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
	effort.OK(t, read(1))
	err := d.Results(ctx, d.Workspace, v.ID, func(ledger.Result) error { return nil })
	effort.ErrIs(t, err, ledger.ErrResultsExpired, "after the sweep")
}

// TestAPageOfResultsThatIsCutGoesOn cuts the connection five times, each time within the tenth row of a page. The results
// are all there, once each and in order: a page goes on behind what was read of it. CockroachDB may also end a
// page like that by itself, with 40001, once it is larger than sql.defaults.results_buffer.size.
func TestAPageOfResultsThatIsCutGoesOn(t *testing.T) {
	t.Parallel()
	const settlements, each = 70, 100
	url := sqlstore.NewLedger(t)
	proxy, through := throughProxy(t, url)
	d := ledgertest.NewFixture(t, openAt(t, url), settlements*each)
	v, l := d.Prepares(settlements * each)
	for n := range int64(settlements) {
		d.Settles(l, n+1, n*each, (n+1)*each-1, smtp.Valid)
	}
	var cuts atomic.Int64
	proxy.SetPlan(func(s postgres.Statement) postgres.Act {
		if strings.Contains(s.Text, "SELECT payload FROM settlements") && cuts.Add(1) <= 5 {
			return postgres.Act{Kind: postgres.CutAnswer, Rows: 9}
		}
		return postgres.Act{}
	})
	want := int64(0)
	err := through.Results(t.Context(), d.Workspace, v.ID, func(r ledger.Result) error {
		effort.Is(t, r.Ordinal, want, "ordinal")
		want++
		return nil
	})
	effort.ErrorIf(t, err != nil || want != settlements*each, "%d of %d results, %v", want, settlements*each, err)
	effort.ErrorIf(t, cuts.Load() < 5, "%d pages were asked for: nothing was cut", cuts.Load())
}

// TestWhatAnotherProcessSettledIsKnown: two processes use one lease, as one that lost its
// connection and one that took its place would, and neither charges what the other has.
func TestWhatAnotherProcessSettledIsKnown(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	d := ledgertest.NewFixture(t, openAt(t, url), 9)
	other := openAt(t, url)
	v, l := d.Prepares(9)
	books := []ledger.Book{d, other}
	for number := range int64(4) {
		with := books[number%2]
		for before := range number {
			_, err := with.Settle(t.Context(), ledgertest.Batch(l, number+1, before, number, smtp.Valid))
			effort.ErrIs(t, err, ledger.ErrIllegal, fmt.Sprintf("settlement %d with ordinal %d of before", number+1, before))
		}
		effort.Must(with.Settle(t.Context(), ledgertest.Batch(l, number+1, number, number, smtp.Valid)))(t)
	}
	if v = d.Sees(v.ID); v.Counts.Valid != 4 || v.Held != 5 || d.Account().Spent != 4 {
		t.Errorf("at the end %+v, %+v", v, d.Account())
	}
	d.Audits()
}

// TestWhatCrashesTwiceIsSetAside lets the program fail twice over one verification, with the rest
// between both ended by hand: it fails with its code, its credits are back, and no lease takes it again.
func TestWhatCrashesTwiceIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
	defer func() { _ = s.Close() }()
	d := ledgertest.NewFixture(t, s, 100)
	_, l := d.Prepares(3)
	first := effort.Must(s.Crashed(t.Context(), l))(t)
	effort.MustBe(t, first.Status, ledger.Verifying, "after the first")
	change(t, path, `UPDATE verifications SET wake_at = wake_at - 60000`)
	failed, err := s.Crashed(t.Context(), d.Takes(l.Verification))
	if err != nil || failed.Status != ledger.Failed || failed.Issue == nil || failed.Issue.Code != ledger.InternalError {
		t.Fatalf("after the second: %s with %+v, %v", failed.Status, failed.Issue, err)
	}
	effort.Is(t, d.Account(), (ledger.Balance{Granted: 100, Available: 100}), "the account is")
	effort.Is(t, len(effort.Must(s.Lease(t.Context(), d.Node, 1000, ledgertest.Hour))(t)), 0, "are leased")
}
