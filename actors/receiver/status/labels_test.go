package status

import (
	"fmt"
	"strings"
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
			effort.FatalIf(t, len(top) > collectedMax || len(top)+len(rest) != len(all),
				"%d shown and %d the rest of %d", len(top), len(rest), len(all))
			for _, r := range top {
				if at, known := seen[r.Key]; !known || now.Sub(at) > labelsPer {
					came = append(came, now)
				}
				seen[r.Key] = now
			}
			for len(came) > 0 && now.Sub(came[0]) >= labelsPer {
				came = came[1:]
			}
			effort.FatalIf(t, len(came) >= 100, "%d labels appeared within an hour", len(came))
		}
	})
}

// loadOf returns what n receivers have queued at a step: random numbers, another longest queue each time, or nearly
// equal numbers.
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

// TestTheLongestQueuesHaveLabels: they get labels, at most labelsNew new ones in an hour.
func TestTheLongestQueuesHaveLabels(t *testing.T) {
	var l labels
	for round := range 3 {
		var all []inspect.Receiver
		for i := range 200 {
			all = append(all, inspect.Receiver{Key: fmt.Sprintf("%d.%d", round, i), Queued: i})
		}
		top, rest := l.busiest(start.Add(time.Duration(round)*time.Minute), all)
		if want := min(collectedMax, labelsNew-round*collectedMax); len(top) != max(0, want) || len(top)+len(rest) != 200 {
			t.Errorf("round %d: %d have labels", round, len(top))
		}
		if len(top) > 0 && top[0].Queued != 199 {
			t.Errorf("the first with a label has %d queued", top[0].Queued)
		}
	}
}

// TestNoFormIsOverlooked: where Redact does not look for the forms of a local part, there are none.
func TestNoFormIsOverlooked(t *testing.T) {
	parts := []string{"a", "an", "anna", "b", "bo", "1", ".", "_", "-", "+", "=", "%", "'", " ", "a.b", "a%2eb", "x"}
	held := 0
	effort.Check(t, func(t *rapid.T) {
		local := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 5).Draw(t, "local"), "")
		said := strings.Join(rapid.SliceOfN(rapid.SampledFrom(append(formsOf(local), parts...)), 1, 5).Draw(t, "text"), "")
		want := said
		for _, form := range formsOf(local) {
			want = without(want, form)
		}
		if want != said {
			held++
		}
		effort.MustBe(t, Redact(said, local), want, said, "without", local)
	})
	effort.Not(t, held, 0, "no text held a local part")
}
