package domain

import (
	"testing"
	"time"

	"rollcall/config/effort"
)

func TestWorkThatNobodyTakesIsSaidToWait(t *testing.T) {
	start := time.Unix(1e9, 0)
	pl := newPlanner(start, testOptions(), Work{}, testSeed)
	b, s := &pl.backlog, &pl.backlog.receiver
	s.reaching, s.failures = true, missedMax
	if until, busy := b.quietUntil(start); !busy {
		t.Errorf("after %d searches it waits until %s", s.failures, until)
	}
	s.failures++
	changes, before := 0, time.Time{}
	for at := start; at.Before(start.Add(time.Hour)); at = at.Add(time.Second) {
		until, busy := b.quietUntil(at)
		effort.FatalIf(t, busy || until.Sub(at) < missedFor || until.Sub(at) > 2*missedFor,
			"after %s: until %s, busy %v", at.Sub(start), until.Sub(at), busy)
		if !until.Equal(before) {
			changes, before = changes+1, until
		}
	}
	effort.ErrorIf(t, changes > 61, "within an hour %d times are told", changes)
}
