package operate

import (
	"testing"
	"time"
)

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
		if got := p.countdown(now.Add(left)); got != want {
			t.Errorf("%s: %q, want %q", left, got, want)
		}
	}
}
