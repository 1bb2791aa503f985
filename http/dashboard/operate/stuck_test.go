package operate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rollcall/ledger"
)

func TestStuckFirst(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	issue := &ledger.Issue{Code: "credits_required"}
	want := []struct {
		name string
		v    ledger.Verification
	}{
		{"overdue for two hours, and new", ledger.Verification{Created: at(-150), Expected: at(-120)}},
		{"overdue for an hour, the older one", ledger.Verification{Created: at(-900), Expected: at(-60)}},
		{"overdue for an hour, the newer one", ledger.Verification{Created: at(-800), Expected: at(-60), LeasedUntil: at(2)}},
		{"overdue for a minute", ledger.Verification{Created: at(-9000), Expected: at(-1)}},
		{"an issue, old", ledger.Verification{Created: at(-500), Issue: issue}},
		{"a lease that ran out", ledger.Verification{Created: at(-400), LeasedUntil: at(-1), Expected: at(30)}},
		{"an issue, new", ledger.Verification{Created: at(-5), Issue: issue, Expected: at(5)}},
		{"the oldest that goes on", ledger.Verification{Created: at(-9999), LeasedUntil: at(1), Expected: at(1)}},
		{"ends this moment", ledger.Verification{Created: at(-300), Expected: now}},
		{"the newest", ledger.Verification{Created: at(-1)}},
	}
	for seed := range uint64(20) {
		got := slices.Clone(want)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, func(a, b struct {
			name string
			v    ledger.Verification
		}) int {
			return stuckFirst(a.v, b.v, now)
		})
		for i := range want {
			if got[i].name != want[i].name {
				t.Fatalf("seed %d, place %d: %q, want %q", seed, i, got[i].name, want[i].name)
			}
		}
	}
	if a, b := want[0].v, want[1].v; stuckFirst(a, a, now) != 0 || stuckFirst(a, b, now) != -stuckFirst(b, a, now) {
		t.Error("the order is none")
	}
}
