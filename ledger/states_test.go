package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/ledger"
)

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
