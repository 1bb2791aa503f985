package http

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestComplaintsAreFew complains a thousand times a second for twelve seconds.
func TestComplaintsAreFew(t *testing.T) {
	var lines bytes.Buffer
	c := complaint{log: slog.New(slog.NewTextHandler(&lines, nil)), message: "ledger did not answer"}
	begun := time.Now()
	for i := range 12_000 {
		c.warn(begun.Add(time.Duration(i)*time.Millisecond), "stage", "create")
	}
	got := lines.String()
	if n := strings.Count(got, "\n"); n != 3 || strings.Count(got, "more=0") != 1 ||
		strings.Count(got, "more=4999") != 2 || strings.Count(got, "level=WARN") != 3 {
		t.Errorf("got %d lines, want 3 that say how many were not logged:\n%s", n, got)
	}
}
