package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// TestACorrectedAccountIsWhatItsEntriesMake: after a correction any account equals its entries, and holds what its
// files hold. With keep it keeps what it was granted and spent; otherwise it returns to the earlier entries.
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

func TestEachUseIsWrittenOnceInBoundedWrites(t *testing.T) {
	written, writes := map[int]int{}, 0
	n := ledger.NewUses(func(_ context.Context, ids []int) error {
		writes++
		for _, id := range ids {
			written[id]++
		}
		effort.ErrorIf(t, len(ids) > 500, "%d in one write", len(ids))
		return errors.New("nobody minds")
	})
	for id := range 1001 {
		n.Note(id)
		n.Note(id)
	}
	n.Forget(7)
	n.Stop()
	n.Stop()
	effort.ErrorIf(t, len(written) != 1000 || written[7] != 0 || written[8] != 1 || writes != 2,
		"%d uses in %d writes", len(written), writes)
}

// TestOnlyTheseStepsAreLegal holds the whole table, row by row: from, and what
// may follow. Everything that is not listed must be refused.
func TestOnlyTheseStepsAreLegal(t *testing.T) {
	const table = `
		-                      uploading
		uploading              preparing cancelled failed
		preparing              verifying waiting_credits failed cancelled
		waiting_credits        verifying cancelled failed
		verifying              waiting_receivers completed completed_with_errors cancelled cancelling failed
		waiting_receivers      verifying completed completed_with_errors cancelled cancelling failed
		cancelling             cancelled
		completed
		completed_with_errors
		cancelled
		failed`
	legal := map[[2]ledger.State]bool{}
	var states []ledger.State
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		words := strings.Fields(line)
		from := ledger.State(strings.TrimPrefix(words[0], "-"))
		states = append(states, from)
		legal[[2]ledger.State{from, from}] = true // staying is no step
		for _, to := range words[1:] {
			legal[[2]ledger.State{from, ledger.State(to)}] = true
		}
	}
	for _, from := range states {
		for _, to := range states {
			err := ledger.Step(from, to)
			effort.Is(t, legal[[2]ledger.State{from, to}], err == nil, "from", from, "to", to, err, "legal")
			effort.ErrorIf(t, err != nil && !errors.Is(err, ledger.ErrIllegal),
				"from %q to %q: got %v, want ErrIllegal", from, to, err)
			want := fmt.Sprintf("from %q to %q", from, to)
			effort.ErrorIf(t, err != nil && !strings.Contains(err.Error(), want), "%v says not %s", err, want)
		}
	}
}

func TestWaitingIsToldApartByItsIssue(t *testing.T) {
	for _, c := range []struct {
		v    ledger.Verification
		want ledger.State
	}{
		{ledger.Verification{Status: ledger.Waiting}, ledger.WaitingReceivers},
		{ledger.Verification{Status: ledger.Waiting, Issue: &ledger.Issue{Code: ledger.CreditsRequired}},
			ledger.WaitingCredits},
		{ledger.Verification{Status: ledger.Waiting, Issue: &ledger.Issue{Code: ledger.FundingExpired}},
			ledger.WaitingReceivers},
		{ledger.Verification{Status: ledger.Verifying}, "verifying"},
		{ledger.Verification{Status: ledger.Failed, Issue: &ledger.Issue{Code: ledger.FundingExpired}}, "failed"},
	} {
		effort.Is(t, c.v.State(), c.want, fmt.Sprintf("%s with %+v", c.v.Status, c.v.Issue))
	}
}

func TestWhatEachStateMeans(t *testing.T) {
	for state, want := range map[ledger.State]struct{ runnable, funded bool }{
		"uploading": {}, "preparing": {runnable: true}, ledger.WaitingCredits: {},
		"verifying": {true, true}, ledger.WaitingReceivers: {true, true}, "cancelling": {true, true},
		"completed": {}, "completed_with_errors": {}, "cancelled": {}, "failed": {}, "waiting": {}, ledger.New: {},
	} {
		effort.Is(t, state.Runnable(), want.runnable, state, "runnable", want)
		effort.Is(t, state.Funded(), want.funded, state, "runnable")
	}
	for _, status := range []ledger.Status{"completed", "completed_with_errors", "cancelled", "failed"} {
		effort.ErrorIf(t, !status.Final(), "%s is not final", status)
	}
	for _, status := range []ledger.Status{"uploading", "preparing", "verifying", "waiting", "cancelling"} {
		effort.ErrorIf(t, status.Final(), "%s is final", status)
	}
}

func TestTheLastStatusAndWhatIsLeft(t *testing.T) {
	for _, c := range []struct {
		name   string
		status ledger.Status
		total  int64
		counts ledger.Counts
		last   ledger.Status
		left   int64
	}{
		{"before intake", "preparing", -1, ledger.Counts{}, "completed", 0},
		{"one of each", "verifying", 9, ledger.Counts{Valid: 1, Invalid: 1, CatchAll: 1, Unknown: 1, Cancelled: 1},
			"completed", 4},
		{"no address", "verifying", 0, ledger.Counts{}, "completed", 0},
		{"an error", "waiting", 2, ledger.Counts{Valid: 1, Error: 1}, "completed_with_errors", 0},
		{"cancelling", "cancelling", 2, ledger.Counts{Valid: 1}, "cancelled", 1},
		{"cancelling with an error", "cancelling", 2, ledger.Counts{Error: 1}, "cancelled", 1},
	} {
		v := ledger.Verification{Status: c.status, Total: c.total, Counts: c.counts}
		effort.Is(t, v.Last(), c.last, c.name, "last")
		effort.Is(t, v.Left(), c.left, c.name, "last")
	}
}
