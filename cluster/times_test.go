package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestTimesAreInOrderOrRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Times)
		want   string
	}{
		{"the product's", func(*Times) {}, ""},
		{"a fifth", func(x *Times) { *x = x.Scaled(0.2) }, ""},
		{"a thirtieth", func(x *Times) { *x = x.Scaled(1. / 30) }, ""},
		{"none", func(x *Times) { *x = Times{} }, "beat is 0s"},
		{"too small", func(x *Times) { *x = x.Scaled(1e-6) }, "at least 1ms"},
		{"a long soon", func(x *Times) { x.Soon = x.Heartbeat + 1 }, "soon is longer"},
		{"a fence that one lost heartbeat puts up", func(x *Times) { x.Fence = 2*x.Heartbeat + x.Soon - 1 }, "one heartbeat"},
		{"a long way to receivers", func(x *Times) { x.Unacknowledged = x.Fence - x.Heartbeat }, "no heartbeat fits"},
		{"long heartbeats", func(x *Times) { x.HeartbeatWithin = x.Fence }, "as long as the fence"},
		{"long compliance", func(x *Times) { x.ComplyWithin = x.Fence }, "as long as the fence"},
		{"lost as soon as fenced", func(x *Times) { x.Lost = x.Fence }, "less than a sixth"},
		{"rest before lost", func(x *Times) { x.Rest = x.Lost - 1 }, "rest is shorter"},
		{"links that flicker", func(x *Times) { x.LinkLife = x.LinkEvery }, "until the next question"},
	} {
		times := DefaultTimes()
		c.change(&times)
		err := times.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestTheTimesOfTheProduct: docs/operators/cluster.md tells them to people.
func TestTheTimesOfTheProduct(t *testing.T) {
	d := DefaultTimes()
	want := []time.Duration{3 * time.Second, 250 * time.Millisecond, 5 * time.Second, 5 * time.Second, 8 * time.Second,
		10 * time.Second, 4 * time.Second, 5*time.Minute + 10*time.Second, time.Second, 5 * time.Second, time.Second, 3 * time.Second}
	fifth := d.Scaled(0.2)
	for i, one := range d.all() {
		if *one.at != want[i] {
			t.Errorf("%s is %s, want %s", one.name, *one.at, want[i])
		}
		if got := *fifth.all()[i].at; got != want[i]/5 {
			t.Errorf("a fifth of %s is %s, want %s", one.name, got, want[i]/5)
		}
	}
}
