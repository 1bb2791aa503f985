package cluster

import (
	"testing"
	"time"
)

func TestFence(t *testing.T) {
	const near, after = time.Second, 8 * time.Second
	f := fence{after: after, ahead: 2 * near}
	if !f.near() || !f.up() || !f.until().IsZero() {
		t.Error("the fence is down before the first heartbeat")
	}
	now := time.Now()
	f.beaten(now)
	if f.up() || !f.until().Equal(now.Add(after)) {
		t.Errorf("after a heartbeat the fence is up or goes up at %s, want %s", f.until(), now.Add(after))
	}
	f.beaten(now.Add(near - after))
	if f.up() || !f.near() {
		t.Error("a second before it goes up the fence is up, or not near")
	}
	if f.beaten(time.Now()); f.near() {
		t.Error("right after a heartbeat the fence is near")
	}
	f.beaten(now.Add(-after - near))
	if !f.up() || !f.until().IsZero() {
		t.Error("the fence is down though the last heartbeat was sent too long ago")
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
