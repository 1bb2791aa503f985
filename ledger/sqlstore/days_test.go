package sqlstore

import (
	"database/sql"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/transitions"
)

// TestDaysAddUpTheEntriesOfOneStatement: several entries of one kind, as a correction writes them, all count on their
// day, beside those of other kinds and of other workspaces.
func TestDaysAddUpTheEntriesOfOneStatement(t *testing.T) {
	t.Parallel()
	s := effort.Must(Open(t.Context(), NewFile(t), Options{}))(t)
	t.Cleanup(func() { _ = s.Close() })
	w, other := ledgertest.NewFixture(t, s, 0).Workspace, ledgertest.NewFixture(t, s, 0).Workspace
	entry := func(workspace uuid.UUID, number int64, kind ledger.EntryKind, amount ledger.Credits) transitions.Entry {
		return transitions.Entry{Subject: workspace, Number: number, Kind: kind, Workspace: workspace, Amount: amount, Reason: "test"}
	}
	effort.OK(t, s.update(t.Context(), func(t *tx) error {
		return t.Enter(entry(w, 1, ledger.EntryCharge, 2), entry(w, 1, ledger.EntryGrant, 7),
			entry(other, 1, ledger.EntryCharge, 100), entry(w, 2, ledger.EntryCharge, 30), entry(w, 3, ledger.EntryCharge, 400))
	}))
	type sum struct {
		workspace uuid.UUID
		kind      string
	}
	got := map[sum]int64{}
	effort.OK(t, s.view(t.Context(), func(t *tx) error {
		clear(got)
		return t.Each(func(rows *sql.Rows) error {
			var one sum
			var credits int64
			err := rows.Scan(&one.workspace, &one.kind, &credits)
			got[one] += credits
			return err
		}, `SELECT workspace, kind, credits FROM credit_days`)
	}))
	want := map[sum]int64{
		{w, string(ledger.EntryCharge)}: 432, {w, string(ledger.EntryGrant)}: 7, {other, string(ledger.EntryCharge)}: 100}
	effort.Same(t, got, want, "the days have")
}
