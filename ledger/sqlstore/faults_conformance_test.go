package sqlstore_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/cutter"
	"rollcall/ledger/ledgertest/histories"
	"rollcall/ledger/sqlstore"
)

// faultEvery is how many statements pass for one that meets a fault: few enough
// that many transactions meet one, and so many that none meets eight in a row.
const faultEvery = 100

// atRandom is a plan of faults that the ledger must get over by itself. An answer
// that was begun is not cut, since what a caller has read cannot be read again.
func atRandom(seed uint64) cutter.Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	anywhere := []cutter.Act{
		{Kind: cutter.CutBefore},
		{Kind: cutter.FailUndone, Code: cutter.SerializationFailure},
		{Kind: cutter.FailUndone, Code: cutter.CompletionUnknown},
	}
	atCommit := append([]cutter.Act{
		{Kind: cutter.CutSent}, {Kind: cutter.CutExecuted}, {Kind: cutter.CutAnswer},
		{Kind: cutter.FailDone, Code: cutter.CompletionUnknown},
	}, anywhere...)
	return func(s cutter.Statement) cutter.Act {
		acts, every := anywhere, faultEvery
		if s.Commit {
			acts, every = atCommit, faultEvery/10
		}
		if r.IntN(every) > 0 {
			return cutter.Act{}
		}
		return acts[r.IntN(len(acts))]
	}
}

// seenWhole is a ledger whose faults do not meet an audit, a list of entries and a statement,
// which are one reading each that is not begun again.
type seenWhole struct {
	*sqlstore.Store
	past *sqlstore.Store
}

func (s seenWhole) Audit(ctx context.Context) (ledger.AuditReport, error) { return s.past.Audit(ctx) }

func (s seenWhole) Entries(ctx context.Context, q ledger.EntriesQuery) (ledger.Statement, error) {
	return s.past.Entries(ctx, q)
}

func (s seenWhole) Statement(ctx context.Context, q ledger.StatementQuery) (ledger.WorkspaceStatement, error) {
	return s.past.Statement(ctx, q)
}

func (s seenWhole) Close() error { return nil } // it is used again

// TestConformanceUnderFaults runs the whole suite while one statement in a hundred
// and one commit in ten meet a fault: nobody who uses the ledger may notice.
func TestConformanceUnderFaults(t *testing.T) {
	if *cuts < thoroughCuts {
		t.Skipf("skipped: it takes half a minute; run with -cuts %d", thoroughCuts)
	}
	for name, cockroach := range map[string]bool{"postgresql": false, "cockroachdb": true} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, cockroach)
			plan := atRandom(1)
			open := func(t *testing.T) ledger.Book {
				f.proxy.SetPlan(nil)
				f.t = t
				f.sql(`DELETE FROM secrets; DELETE FROM api_keys;` + emptied())
				f.proxy.SetPlan(plan)
				return seenWhole{f.through, f.past}
			}
			ledgertest.Exercise(t, open)
			t.Run("random operations against the model", func(t *testing.T) { histories.Walk(t, 100, open) })
			if t.Logf("%v", f.proxy.Counts()); f.proxy.Injected() == 0 {
				t.Error("there were no faults")
			}
		})
	}
}
