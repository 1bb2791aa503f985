package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// TestOverridesHoldToTheirEnd: overrides hold from the reading that finds them to their end, also when the
// ledger does not answer any more, and one that cannot be read spoils no other.
func TestOverridesHoldToTheirEnd(t *testing.T) {
	table := effort.Must(throttle.NewTable(nil))(t)
	now, replans := time.Now(), 0
	customer := uuid.New()
	found := ledger.Settings{Weights: map[uuid.UUID]int{customer: 7}, Overrides: []ledger.ThrottleOverride{
		{ID: uuid.New(), Key: "slow.example", Fields: map[string]string{"rcpt_rate": "1/s"},
			Author: "sre", Reason: "it asked", Expires: now.Add(time.Hour)},
		{ID: uuid.New(), Key: "odd.example", Fields: map[string]string{"colour": "red"}, Expires: now.Add(time.Hour)},
		{ID: uuid.New(), Key: "no name", Fields: map[string]string{"pause": "yes"}, Expires: now.Add(time.Hour)},
		{ID: uuid.New(), Key: "slow.example", Fields: map[string]string{"connections": "1"}, Expires: now.Add(time.Minute)},
	}}
	var failure error
	follower := &settingsFollower{options: settingsOptions{Table: table, Clock: func() time.Time { return now },
		Replan: func() { replans++ },
		Log:    slog.New(slog.DiscardHandler),
		Read:   func(context.Context) (ledger.Settings, error) { return found, failure }}}
	check := func(when string, rate string, connections, replanned int) {
		t.Helper()
		err := follower.read(t.Context())
		effort.FatalIf(t, !errors.Is(err, failure), "%v", err)
		a := table.For("slow.example")
		effort.ErrorIf(t, a.RcptRate.String() != rate || a.Connections != connections || replans != replanned,
			"%s: %s, %d connections, %d replans; want %s, %d, %d", when, a.RcptRate, a.Connections, replans, rate,
			connections, replanned)
	}
	check("at first", "1/s", 1, 1)
	check("again", "1/s", 1, 1)
	w, other := follower.Weight(customer), follower.Weight(uuid.New())
	effort.ErrorIf(t, w != 7 || other != 1, "weights %d and %d, want 7 and 1", w, other)
	now, failure = now.Add(2*time.Minute), errors.New("no ledger")
	check("when the second is over and the ledger silent", "1/s", 2, 2)
	now = now.Add(time.Hour)
	check("when all are over", "5/s", 2, 3)
	now, failure, found.Overrides = now.Add(-time.Hour), nil, found.Overrides[:0]
	check("when they are cleared", "5/s", 2, 3)
	effort.Is(t, len(table.Rules(throttle.LayerOverride)), 0, "overrides in force")
	for _, e := range table.Explain("slow.example") {
		effort.ErrorIf(t, len(e.Said) > 1 && e.Said[len(e.Said)-1].Layer == throttle.LayerOverride,
			"%s is still overridden", e.Field)
	}
}

// TestTheEndOfAnOverrideIsLogged once, with what it was and who set it; not that of one that
// was cleared, and not at each reading after it.
func TestTheEndOfAnOverrideIsLogged(t *testing.T) {
	table := effort.Must(throttle.NewTable(nil))(t)
	now := time.Now()
	ends := ledger.ThrottleOverride{ID: uuid.New(), Key: "slow.example", Fields: map[string]string{"rcpt_rate": "1/s"},
		Author: "anna@desk", Reason: "it asked", Created: now.Add(-time.Hour), Expires: now.Add(time.Minute)}
	cleared := ends
	cleared.ID, cleared.Key, cleared.Expires = uuid.New(), "other.example", now.Add(time.Hour)
	found := ledger.Settings{Overrides: []ledger.ThrottleOverride{ends, cleared}}
	var out bytes.Buffer
	follower := &settingsFollower{options: settingsOptions{Table: table, Clock: func() time.Time { return now },
		Replan: func() {},
		Log:    slog.New(slog.NewTextHandler(&out, nil)),
		Read:   func(context.Context) (ledger.Settings, error) { return found, nil }}}
	follow := func() {
		t.Helper()
		effort.OK(t, follower.read(t.Context()))
	}
	follow()
	found.Overrides = found.Overrides[:1]
	follow()
	effort.Lacks(t, out.String(), "throttle ended", "one that was cleared has ended")
	now, found.Overrides = now.Add(time.Minute), nil // the ledger gives it no more
	follow()
	follow()
	text := out.String()
	effort.Is(t, strings.Count(text, "throttle ended"), 1, "the end is logged", text)
	for _, want := range []string{"key=slow.example", "rcpt_rate:1/s", "author=anna@desk", "since=",
		"reason=\"it asked\"", ends.ID.String()} {
		effort.Has(t, text, want)
	}
}
