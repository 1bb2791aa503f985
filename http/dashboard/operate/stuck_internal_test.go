package operate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

func TestStuckOnesComeFirst(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	node := uuid.New()
	made := func(age time.Duration, change func(*ledger.Verification)) ledger.Verification {
		v := ledger.Verification{ID: uuid.New(), Status: ledger.Verifying, Created: now.Add(-age)}
		change(&v)
		return v
	}
	want := []struct {
		name string
		v    ledger.Verification
	}{
		{"overdue for two hours, young", made(3*time.Hour, func(v *ledger.Verification) { v.Expected = now.Add(-2 * time.Hour) })},
		{"overdue for a minute, old", made(90*time.Hour, func(v *ledger.Verification) { v.Expected = now.Add(-time.Minute) })},
		{"with an issue, of a day ago", made(24*time.Hour, func(v *ledger.Verification) {
			v.Issue, v.Expected = &ledger.Issue{Code: ledger.CreditsRequired}, now.Add(time.Hour)
		})},
		{"its lease ran out", made(5*time.Hour, func(v *ledger.Verification) { v.LeasedBy = node })},
		{"its lease ran out by the clock of the page", made(4*time.Hour, func(v *ledger.Verification) {
			v.LeasedBy, v.LeasedUntil = node, now
		})},
		{"old, expected to end now", made(200*time.Hour, func(v *ledger.Verification) { v.Expected = now })},
		{"old, a node has it", made(100*time.Hour, func(v *ledger.Verification) { v.LeasedBy, v.LeasedUntil = node, now.Add(time.Minute) })},
		{"young", made(time.Minute, func(*ledger.Verification) {})},
	}
	for range 20 {
		got := make([]ledger.Verification, 0, len(want))
		for _, i := range rand.Perm(len(want)) {
			got = append(got, want[i].v)
		}
		slices.SortFunc(got, func(a, b ledger.Verification) int { return stuckFirst(a, b, now) })
		for i, w := range want {
			if got[i].ID != w.v.ID {
				at := slices.IndexFunc(got, func(v ledger.Verification) bool { return v.ID == w.v.ID })
				t.Fatalf("%s is at place %d, want %d", w.name, at, i)
			}
		}
	}
}
