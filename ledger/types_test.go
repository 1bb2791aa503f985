package ledger_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

func TestCountsAddUp(t *testing.T) {
	var one ledger.Counts
	for _, o := range smtp.Outcomes {
		one.Add(o)
	}
	one.Add(smtp.Undecided)
	effort.Is(t, one, (ledger.Counts{Valid: 1, Invalid: 1, CatchAll: 1, Unknown: 1, Error: 1}), "one of each")
	a := ledger.Counts{Valid: 1, Invalid: 20, CatchAll: 300, Unknown: 4000, Error: 50_000, Cancelled: 600_000}
	want := ledger.Counts{Valid: 2, Invalid: 40, CatchAll: 600, Unknown: 8000, Error: 100_000, Cancelled: 1_200_000}
	effort.Is(t, a.Plus(a), want, "twice")
	effort.Is(t, a.Charged(), 50_321)
	effort.Is(t, a.Sum(), 654_321)
}

func TestNamesThatPeopleAreShown(t *testing.T) {
	for text, clean := range map[string]string{
		"": "", "Grüße 名簿\U0001f600": "Grüße 名簿\U0001f600",
		"laptop \u202evsc.exe": "laptop vsc.exe", "a\u2066b\u2069": "ab",
		"a\nb\x00c\u0085": "abc", "a\u2028b": "ab", "\xff": "",
	} {
		effort.Is(t, ledger.CheckName(text) == nil, text == clean, text)
		effort.Is(t, ledger.CleanName(text), clean, fmt.Sprintf("%q is cleaned to", text))
	}
}

func TestTextThatEveryDatabaseKeeps(t *testing.T) {
	for text, want := range map[string]error{
		"": nil, "a list.csv": nil, "Grüße 名簿\U0001f600\t": nil, "\x01": nil,
		"\x00": ledger.ErrIllegal, "a\x00b": ledger.ErrIllegal, "\xff": ledger.ErrIllegal,
		"cut \xe2\x82": ledger.ErrIllegal, "\xed\xa0\x80": ledger.ErrIllegal,
	} {
		effort.ErrIs(t, ledger.CheckText(text), want, text)
	}
}

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
			effort.FatalIf(t, !negative || !errors.Is(err, ledger.ErrUncorrectable),
				"%+v: %v, the account would be %+v", a, err, want)
			return
		}
		sums := a.Entries
		for _, e := range entries {
			effort.FatalIf(t, e.Amount < 1 || !sums.Add(e.Kind, e.Amount), "entry %+v", e)
		}
		got := ledger.Balance{Granted: a.Account.Granted + by.Granted, Available: a.Account.Available + by.Available,
			Held: a.Account.Held + by.Held, Spent: a.Account.Spent + by.Spent}
		if list := ledger.CheckBalance(uuid.Nil, got, sums, a.Files); got != want || len(list) > 0 {
			t.Fatalf("%+v became %+v by %+v, want %+v: %+v", a, got, entries, want, list)
		}
	})
}
