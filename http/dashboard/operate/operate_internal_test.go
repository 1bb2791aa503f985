package operate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/ledger"
)

// TestOneLimitHolds: the page of a receiver marks exactly one limit.
func TestOneLimitHolds(t *testing.T) {
	t.Parallel()
	field := func(name, layer, value string) inspect.ExplainedField {
		return inspect.ExplainedField{Field: name, Value: value, Said: inspect.Said{Layer: layer}}
	}
	fields := []inspect.ExplainedField{field("connections", "learned", "2"), field("rcpt_rate", "penalty", "1/s"),
		field("pause", "override", "yes"), field("refused_share", "default", "0.3")}
	for _, c := range []struct {
		r    inspect.Receiver
		want string
	}{
		{inspect.Receiver{Cause: "penalty"}, "connections"}, {inspect.Receiver{Cause: "allowance"}, "rcpt_rate"},
		{inspect.Receiver{Cause: "paused"}, "pause"}, {inspect.Receiver{Cause: "connections", Sessions: 2, Most: 2}, "connections"},
		{inspect.Receiver{Cause: "connections", Sessions: 1, Most: 2}, "connection_rate"},
		{inspect.Receiver{Cause: "budget"}, "refused_per_hour"}, {inspect.Receiver{Cause: "budget", Budget: 3}, "refused_share"},
		{inspect.Receiver{Cause: "free"}, ""}, {inspect.Receiver{Cause: "no healthy source"}, ""},
	} {
		effort.Is(t, heldField(c.r, fields), c.want, fmt.Sprintf("%+v is held back by", c.r))
	}
	effort.Is(t, heldField(inspect.Receiver{Cause: "penalty"}, fields[2:]), "",
		"a receiver that taught us nothing is held back")
	for _, cause := range inspect.Causes {
		effort.Not(t, heldBy[cause], "", "no sentence says what", cause)
	}
}

// TestChecksThatFailAreShownFirst gives two nodes more checks than the page has room for.
func TestChecksThatFailAreShownFirst(t *testing.T) {
	of := func(states ...string) (n nodeHealth) {
		for _, s := range states {
			n.Findings = append(n.Findings, inspect.HealthFinding{State: s})
		}
		return n
	}
	nodes := []nodeHealth{of("ok", "ok", "skipped", "fail"), of("warn", "ok", "ok")}
	divideChecks(nodes, 4)
	one, two := nodes[0], nodes[1]
	effort.ErrorIf(t, len(one.Bad) != 1 || len(two.Bad) != 1 || len(one.Rest) != 2 || len(two.Rest) != 0 ||
		one.More != 1 || two.More != 2, "%+v %+v", one, two)
}

func TestCountdown(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	p := &Pages{now: func() time.Time { return now }}
	for left, want := range map[time.Duration]string{
		-time.Minute:                      "less than a minute",
		59 * time.Second:                  "less than a minute",
		time.Minute:                       "1 min",
		59*time.Minute + 59*time.Second:   "59 min",
		time.Hour:                         "1 h 0 min",
		time.Hour + 58*time.Minute:        "1 h 58 min",
		47*time.Hour + 59*time.Minute:     "47 h 59 min",
		48 * time.Hour:                    "2 days 0 h",
		30*24*time.Hour + 119*time.Minute: "30 days 1 h",
	} {
		effort.Is(t, p.countdown(now.Add(left)), want, left)
	}
}

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
