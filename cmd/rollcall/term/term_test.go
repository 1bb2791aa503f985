package term

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// TestPaceIsThatOfThisRun: addresses done before the first look don't count.
func TestPaceIsThatOfThisRun(t *testing.T) {
	begin := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		name                 string
		before, after, total int64
		elapsed              time.Duration
		want                 string
	}{
		{"from the start", 0, 50, 100, 10 * time.Second, "5.0, about 10 seconds left"},
		{"goes on near the end", 999_000, 999_050, 1_000_000, 10 * time.Second, "5.0, about 3 minutes left"},
		{"goes on near the start", 100, 150, 1_000_000, 10 * time.Second, "5.0, about 2 days left"},
		{"nothing new yet", 999_000, 999_000, 1_000_000, time.Hour, "0.0"},
		{"one new", 500, 501, 1000, 10 * time.Second, "0.1, about 83 minutes left"},
		{"too short a look", 500, 600, 1000, paceLeast - 1, "0.0"},
		{"just long enough", 500, 600, 1000, paceLeast, "100.0, about 4 seconds left"},
		{"all is done", 900, 1000, 1000, 10 * time.Second, "10.0"},
		{"less than a second", 0, 999, 1000, 10 * time.Second, "99.9"},
		{"all was done before", 1000, 1000, 1000, 10 * time.Second, "0.0"},
		{"falls behind", 10, 5, 100, 10 * time.Second, "0.0"},
		{"nobody lives so long", 0, 1, 1 << 62, 10 * time.Second, "0.1"},
		{"an empty file", 0, 0, 0, time.Minute, "0.0"},
	} {
		var p Pace
		p.Look(begin, x.before)
		now := begin.Add(x.elapsed)
		p.Look(now, x.after)
		rate := p.PerSecond(now, x.after)
		effort.Is(t, fmt.Sprintf("%.1f", rate)+LeftText(rate, x.total-x.after), x.want, x.name)
	}
	effort.Is(t, new(Pace).PerSecond(begin, 10), 0, "never looked")
}

// TestColoursHaveNoWidth: colours don't move a column, and only states are coloured, not a file's name.
func TestColoursHaveNoWidth(t *testing.T) {
	t.Parallel()
	show := func(colours bool) string {
		page, table := &Page{Width: 80, Colours: colours}, Table{Columns: []Column{{Name: "STATUS"}, {Name: "FILE"}}}
		table.Add("failed", "failed")
		table.Add("paused 5m", "list.csv")
		page.Table(&table)
		page.Field("outcome", "valid: accepted")
		page.Field("file", "failed")
		page.WriteString(page.Mark(Bold, "log") + page.Mark("", " ok") + "\n")
		return page.String()
	}
	plain := "STATUS     FILE\nfailed     failed\npaused 5m  list.csv\noutcome       valid: accepted\n" +
		"file          failed\nlog ok\n"
	effort.Is(t, show(false), plain)
	want := strings.NewReplacer("\nfailed", "\n\x1b[31mfailed\x1b[0m", "paused", "\x1b[33mpaused\x1b[0m", "valid",
		"\x1b[32mvalid\x1b[0m", "log", "\x1b[1mlog\x1b[0m").Replace(plain)
	effort.Is(t, show(true), want)
	effort.ErrorIf(t, ShowsColours(&bytes.Buffer{}), "what is no terminal shows colours")
}
