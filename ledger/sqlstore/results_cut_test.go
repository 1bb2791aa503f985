package sqlstore_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/cutter"
	"rollcall/smtp"
)

// TestAPageOfResultsThatIsCutGoesOn cuts the connection five times, each time within the tenth row of a page. The results
// are all there, once each and in order: a page goes on behind what was read of it. CockroachDB may also end a
// page like that by itself, with 40001, once it is larger than sql.defaults.results_buffer.size.
func TestAPageOfResultsThatIsCutGoesOn(t *testing.T) {
	t.Parallel()
	const settlements, each = 70, 100
	f := newFaulty(t, false)
	d := ledgertest.NewDesk(t, f.past, settlements*each)
	v, l := d.Prepares(settlements * each)
	for n := range int64(settlements) {
		d.Settles(l, n+1, n*each, (n+1)*each-1, smtp.Valid)
	}
	var cuts atomic.Int64
	f.proxy.SetPlan(func(s cutter.Statement) cutter.Act {
		if strings.Contains(s.Text, "SELECT payload FROM settlements") && cuts.Add(1) <= 5 {
			return cutter.Act{Kind: cutter.CutAnswer, Rows: 9}
		}
		return cutter.Act{}
	})
	want := int64(0)
	err := f.through.Results(t.Context(), d.Workspace, v.ID, func(r ledger.Result) error {
		if r.Ordinal != want {
			t.Errorf("ordinal %d, want %d", r.Ordinal, want)
		}
		want++
		return nil
	})
	if err != nil || want != settlements*each {
		t.Errorf("%d of %d results, %v", want, settlements*each, err)
	}
	if cuts.Load() < 5 {
		t.Errorf("%d pages were asked for: nothing was cut", cuts.Load())
	}
}
