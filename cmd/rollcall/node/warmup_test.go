package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/receiver"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// TestTheWarmUpOfTheDocs puts the example of the guide, as it is printed, into a configuration and, under its other
// name, into a throttle file, and asks the sources of a node what they may ask on each day.
func TestTheWarmUpOfTheDocs(t *testing.T) {
	text := effort.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "operators", "receivers.md")))(t)
	_, printed, begun := strings.Cut(string(text), "<!-- warm-up:")
	printed, _, ended := strings.Cut(printed, "<!-- warm-up end -->")
	_, printed, fenced := strings.Cut(printed, "```toml\n")
	printed, _, closed := strings.Cut(printed, "```")
	effort.FatalIf(t, !begun || !ended || !fenced || !closed, "docs/operators/receivers.md has no example of a warm-up")
	folder := t.TempDir()
	for file, lines := range map[string]string{"rollcall.toml": printed,
		"throttle.toml": strings.ReplaceAll(printed, "[throttle.sources.", "[sources.")} {
		effort.OK(t, os.WriteFile(filepath.Join(folder, file), []byte(lines), 0o600))
	}
	for name, of := range map[string]struct{ file, variable string }{
		"the configuration": {filepath.Join(folder, "rollcall.toml"), "ROLLCALL_THROTTLE_FILE="},
		"the throttle file": {"", "ROLLCALL_THROTTLE_FILE=" + filepath.Join(folder, "throttle.toml")},
	} {
		warmedUp(t, name, of.file, of.variable)
	}
}

// warmedUp checks what the source of the example may ask on its first days.
func warmedUp(t *testing.T, name, file, variable string) {
	t.Helper()
	c, err := config.Load(file, []string{variable, "ROLLCALL_SMTP_SOURCE_ADDRESSES=192.0.2.7",
		"ROLLCALL_SMTP_HELLO_NAME=rollcall.example"})
	effort.OK(t, err, name)
	followed, err := config.OpenThrottle(c.Throttle)
	effort.OK(t, err, name)
	table, err := throttle.NewTable(followed.State().Rules)
	effort.OK(t, err, name)
	r, err := receiverOptions(c, table, engineOptions{rules: verdict.Builtin, log: slog.New(slog.DiscardHandler),
		registry: prometheus.NewRegistry(), opened: func(open openFunc) openFunc { return open }})
	effort.OK(t, err, name)
	day := time.Date(2026, 11, 21, 0, 0, 1, 0, time.UTC)
	r.Registry, r.Fenced, r.SourceOf = receiver.NewRegistry(), func() bool { return false }, table.Source
	r.Clock = func() time.Time { return day }
	receiver.Kinds(r) // as a node does
	for i, want := range []int{500, 1000, 2000, 4000} {
		found := r.Sources.State(day)
		effort.ErrorIf(t, len(found) != 1 || found[0].Source != "192.0.2.7" || found[0].PerDay != want,
			"%s: on day %d: %+v, want %d", name, i+1, found, want)
		day = day.AddDate(0, 0, 1)
	}
}
