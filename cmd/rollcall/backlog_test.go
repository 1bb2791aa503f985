package main

import (
	"strings"
	"testing"
	"time"

	"rollcall/actors/inspect"
)

func TestABacklogIsShown(t *testing.T) {
	var b strings.Builder
	d := inspect.ReceiverDetail{Receiver: inspect.Receiver{Key: "example.test", Queued: 1500, Behind: 1200, Oldest: 60}}
	if err := printReceivers(&b, []inspect.ReceiverDetail{d}, time.Now()); err != nil {
		t.Fatal(err)
	}
	holds(t, unfolded(b.String()), "1,500, the oldest for", "; 1,200 of them are not handed over to it yet")
}

func TestAReplayOfTooLittleSaysAtLeast(t *testing.T) {
	for _, c := range []struct {
		atLeast bool
		want    string
	}{
		{false, "asked 1,500, then at most 1,600; the last of them 10s sooner\n"},
		{true, "asked 1,500, then at least 1,600; the last of them 10s sooner, or even sooner: more waited than the " +
			"record shows\n"},
	} {
		var b strings.Builder
		err := printThrottleReplay(&b, inspect.Replayed{Receivers: []inspect.ReceiverReplay{{Key: "example.test",
			Asked: 1500, Would: 1600, Delay: -10, AtLeast: c.atLeast}}})
		if err != nil {
			t.Fatal(err)
		}
		if text := unfolded(b.String()); !strings.Contains(text, unfolded(c.want)) {
			t.Errorf("%s\nwant %s", text, c.want)
		}
	}
}

// unfolded puts a text on one line.
func unfolded(text string) string { return strings.Join(strings.Fields(text), " ") }
