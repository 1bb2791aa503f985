package ledger_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// TestACorrectedAccountIsWhatItsEntriesMake, whatever it was, and holds what its files hold: kept as
// it is in all that it was granted and has spent, or led back to its entries.
func TestACorrectedAccountIsWhatItsEntriesMake(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		some := func(what string) ledger.Credits { return ledger.Credits(rapid.Int64Range(0, 9).Draw(t, what)) }
		a := ledger.AuditedAccount{Files: some("files"), Account: ledger.Balance{Available: some("available"), Held: some("held"),
			Spent: some("spent")}, Entries: ledger.Sums{Granted: some("granted"), Held: some("hold"), Charged: some("charged"),
			Released: some("released"), Withdrawn: some("withdrawn"), Refunded: some("refunded")}}
		a.Account.Granted = a.Account.Available + a.Account.Held + a.Account.Spent
		keep := rapid.Bool().Draw(t, "keep")
		entries, by, err := a.Correct(keep)
		want := a.Entries.Balance()
		if keep {
			want = a.Account
		}
		want.Held, want.Available = a.Files, want.Granted-want.Spent-a.Files
		if negative := min(want.Granted, want.Available, want.Spent) < 0; negative || err != nil {
			if !negative || !errors.Is(err, ledger.ErrUncorrectable) {
				t.Fatalf("%+v: %v, the account would be %+v", a, err, want)
			}
			return
		}
		sums := a.Entries
		for _, e := range entries {
			if e.Amount < 1 || !sums.Add(e.Kind, e.Amount) {
				t.Fatalf("entry %+v", e)
			}
		}
		got := ledger.Balance{Granted: a.Account.Granted + by.Granted, Available: a.Account.Available + by.Available,
			Held: a.Account.Held + by.Held, Spent: a.Account.Spent + by.Spent}
		if list := ledger.CheckBalance(uuid.Nil, got, sums, a.Files); got != want || len(list) > 0 {
			t.Fatalf("%+v became %+v by %+v, want %+v: %+v", a, got, entries, want, list)
		}
	})
}
