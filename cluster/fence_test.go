package cluster

import (
	"testing"
	"time"
)

func TestFence(t *testing.T) {
	const near = time.Minute / 60
	var f fence
	if !f.up() || !f.until().IsZero() {
		t.Error("the fence is down before the first heartbeat")
	}
	now := time.Now()
	f.beaten(now)
	if f.up() || !f.until().Equal(now.Add(fenceAfter)) {
		t.Errorf("after a heartbeat the fence is up or goes up at %s, want %s", f.until(), now.Add(fenceAfter))
	}
	f.beaten(now.Add(-fenceAfter - near))
	if !f.up() || !f.until().IsZero() {
		t.Error("the fence is down though the last heartbeat was sent too long ago")
	}
	if lostAfter-fenceAfter < 2*time.Second {
		t.Errorf("others count a node out %s after its fence, want 2 s", lostAfter-fenceAfter)
	}
	if 2*beatEvery+soonEvery > fenceAfter {
		t.Error("one heartbeat that fails would put the fence up")
	}
}

// TestSinceIsTheLongerTime: a time without a reading of the monotonic clock, as
// after a sleep of the machine or a set clock, counts by the wall clock.
func TestSinceIsTheLongerTime(t *testing.T) {
	then := time.Now()
	if got := since(then, then.Add(3*time.Second)); got != 3*time.Second {
		t.Errorf("got %s, want 3s", got)
	}
	if got := since(then.Round(0).Add(-time.Hour), then); got != time.Hour {
		t.Errorf("got %s by the wall clock, want 1h", got)
	}
}
