package listen

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestWarningsAreFew writes one a thousand times a second for twelve seconds.
func TestWarningsAreFew(t *testing.T) {
	var lines bytes.Buffer
	c := Warning{Log: slog.New(slog.NewTextHandler(&lines, nil)), Message: "ledger did not answer"}
	begun := time.Now()
	for i := range 12_000 {
		c.Write(begun.Add(time.Duration(i)*time.Millisecond), "stage", "create")
	}
	got := lines.String()
	if n := strings.Count(got, "\n"); n != 3 || strings.Count(got, "more=0") != 1 ||
		strings.Count(got, "more=4999") != 2 || strings.Count(got, "level=WARN") != 3 {
		t.Errorf("got %d lines, want 3 that say how many were not logged:\n%s", n, got)
	}
}
