package status

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
)

// start is any time.
var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// TestFewLabelsAppear: whatever receivers come and go and however their queues grow and fall, in no hour do 100 label
// values appear that were not there in the hour before, and there are never more than 50.
func TestFewLabelsAppear(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		var l labels
		n := rapid.IntRange(1, 300).Draw(t, "receivers")
		kind := rapid.SampledFrom([]string{"drawn", "turning", "alike"}).Draw(t, "load")
		seen := map[string]time.Time{} // when a label was there last
		var came []time.Time
		now := start
		for step := range 80 {
			now = now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
			all := loadOf(t, kind, step, n)
			top, rest := l.busiest(now, all)
			if len(top) > collectedMax || len(top)+len(rest) != len(all) {
				t.Fatalf("%d shown and %d the rest of %d", len(top), len(rest), len(all))
			}
			for _, r := range top {
				if at, known := seen[r.Key]; !known || now.Sub(at) > labelsPer {
					came = append(came, now)
				}
				seen[r.Key] = now
			}
			for len(came) > 0 && now.Sub(came[0]) >= labelsPer {
				came = came[1:]
			}
			if len(came) >= 100 {
				t.Fatalf("%d labels appeared within an hour", len(came))
			}
		}
	})
}

// loadOf is what n receivers have queued at a step: at random, the longest another one each
// time, or all nearly the same.
func loadOf(t *rapid.T, kind string, step, n int) (all []inspect.Receiver) {
	for i := range n {
		queued := 0
		switch kind {
		case "drawn":
			if i%37 == step%37 { // drawing all of them takes long
				queued = rapid.IntRange(0, 1_000_000).Draw(t, "queued")
			} else {
				queued = (i*7919 + step*104_729) % 1_000_003
			}
		case "turning":
			queued = (i + step*collectedMax) % n * 1000
		case "alike":
			queued = 1000 + (i*31+step*17)%50
		}
		if (i+step)%11 != 0 { // some are gone
			all = append(all, inspect.Receiver{Key: fmt.Sprintf("r%d.example", i), Queued: queued})
		}
	}
	return all
}

// TestAReceiverKeepsItsLabelNearTheTop, gives it to one that has far more, and gets it back as soon as there is room.
func TestAReceiverKeepsItsLabelNearTheTop(t *testing.T) {
	var l labels
	queues := func(first int) (all []inspect.Receiver) { // r0 has first, the others from 1,000 down
		for i := range 200 {
			all = append(all, inspect.Receiver{Key: fmt.Sprintf("r%d", i), Queued: 1000 - i})
		}
		all[0].Queued = first
		return all
	}
	shown := func(minute int, all []inspect.Receiver, key string) bool {
		top, _ := l.busiest(start.Add(time.Duration(minute)*time.Minute), all)
		for _, r := range top {
			if r.Key == key {
				return true
			}
		}
		return false
	}
	if !shown(0, queues(2000), "r0") || !shown(1, queues(1000-labelsNear+10), "r0") {
		t.Error("it has lost its label though it is near the top")
	}
	if shown(2, queues(0), "r0") || !shown(2, queues(0), "r50") {
		t.Error("it keeps its label at the end of all")
	}
	big := append(queues(0), inspect.Receiver{Key: "new", Queued: 100_000})
	if !shown(3, big, "new") {
		t.Error("one with far more than all others is not shown")
	}
	if !shown(4, queues(999)[:40], "r0") {
		t.Error("there is room, and it has no label")
	}
}
