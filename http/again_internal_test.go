package http

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger"
)

// TestRetryAfter has every boundary of what a client is told to wait.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	const unknown = -1 << 62
	for _, c := range []struct {
		name             string
		status           ledger.Status
		age, finish, try time.Duration // from now; unknown: zero
		issue            *ledger.Issue
		want             int
	}{
		{"uploading", ledger.Uploading, time.Hour, unknown, unknown, nil, 2},
		{"preparing", ledger.Preparing, time.Hour, unknown, unknown, nil, 2},
		{"cancelling", ledger.Cancelling, time.Hour, time.Hour, unknown, nil, 2},
		{"just begun, nothing known", ledger.Verifying, 0, unknown, unknown, nil, 5},
		{"50 s", ledger.Verifying, 50 * time.Second, unknown, unknown, nil, 5},
		{"51 s", ledger.Verifying, 51 * time.Second, unknown, unknown, nil, 6},
		{"five minutes", ledger.Verifying, 5 * time.Minute, unknown, unknown, nil, 30},
		{"a day", ledger.Verifying, 24 * time.Hour, unknown, unknown, nil, 30},
		{"done in four seconds", ledger.Verifying, time.Second, 4 * time.Second, unknown, nil, 4},
		{"done in a bit less", ledger.Verifying, time.Second, 3900 * time.Millisecond, unknown, nil, 4},
		{"done in a second", ledger.Verifying, time.Hour, time.Second, unknown, nil, 2},
		{"done now", ledger.Verifying, time.Hour, 0, unknown, nil, 2},
		{"done in six seconds, just begun", ledger.Verifying, 0, 6 * time.Second, unknown, nil, 5},
		{"done in twenty seconds, an old one", ledger.Verifying, time.Hour, 20 * time.Second, unknown, nil, 20},
		{"done in an hour, an old one", ledger.Verifying, time.Hour, time.Hour, unknown, nil, 30},
		{"overdue for a moment", ledger.Verifying, time.Hour, -time.Second, unknown, nil, 2},
		{"overdue for ten seconds", ledger.Verifying, time.Hour, -10 * time.Second, unknown, nil, 10},
		{"overdue for an hour", ledger.Verifying, time.Hour, -time.Hour, unknown, nil, 30},
		{"credits", ledger.Waiting, 0, unknown, unknown, &ledger.Issue{Code: string(api.CreditsRequired)}, 60},
		{"a receiver in an hour", ledger.Waiting, 0, unknown, time.Hour, nil, 60},
		{"in sixty seconds", ledger.Waiting, 0, unknown, time.Minute, nil, 60},
		{"in sixteen seconds", ledger.Waiting, 0, unknown, 16 * time.Second, nil, 16},
		{"in a bit more", ledger.Waiting, 0, unknown, 16*time.Second + 1, nil, 17},
		{"in a second", ledger.Waiting, 0, unknown, time.Second, nil, 15},
		{"was to be asked long ago", ledger.Waiting, 0, unknown, -time.Hour, nil, 15},
		{"in a minute, and done then", ledger.Waiting, 0, time.Minute, time.Minute, nil, 60},
		{"done sooner than was said", ledger.Waiting, 0, 5 * time.Second, time.Hour, nil, 20},
		{"done long ago, as was said", ledger.Waiting, 0, -time.Minute, time.Hour, nil, 60},
		{"completed", ledger.Completed, 0, unknown, unknown, nil, 0},
		{"failed", ledger.Failed, 0, unknown, unknown, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := ledger.Verification{Status: c.status, Created: now.Add(-c.age), Issue: c.issue}
			if c.finish != unknown {
				v.Expected = now.Add(c.finish)
			}
			if c.try != unknown {
				v.NextTry = now.Add(c.try)
			}
			if got := RetryAfter(v, now); got != c.want {
				t.Errorf("Retry-After %d, want %d", got, c.want)
			}
		})
	}
}

// TestRetryAfterIsTrue: whatever is expected, nobody is sent past the finish by more than
// is allowed, nor told to ask without a pause.
func TestRetryAfterIsTrue(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
		seconds := rapid.Int64Range(-100_000, 100_000)
		age := time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "age")) * time.Second
		v := ledger.Verification{Created: now.Add(-age),
			Status:   rapid.SampledFrom([]ledger.Status{ledger.Verifying, ledger.Waiting}).Draw(t, "status"),
			Expected: now.Add(time.Duration(seconds.Draw(t, "finish")) * time.Second),
			NextTry:  now.Add(time.Duration(seconds.Draw(t, "try")) * time.Second)}
		got := RetryAfter(v, now)
		left := int(v.Expected.Sub(now) / time.Second)
		if v.Status == ledger.Verifying && (got < 2 || got > 30 || left > 0 && got > max(2, left)) {
			t.Errorf("verifying, expected in %d s: Retry-After %d", left, got)
		}
		if v.Status == ledger.Waiting && (got < 15 || got > 60 || left > 0 && got > left+15) {
			t.Errorf("waiting, expected in %d s: Retry-After %d", left, got)
		}
	})
}
