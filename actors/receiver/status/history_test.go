package status_test

import (
	"fmt"
	"testing"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/config/effort"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	minutesMax   = 6 * 60
	historiesMax = 1_000
)

// of gives what is kept of one receiver.
func of(t *testing.T, all *status.Histories, now time.Time, key string) inspect.ReceiverRecord {
	t.Helper()
	got, _ := all.Record(now, "", 1<<30)
	for _, r := range got.Receivers {
		if r.Key == key {
			return r
		}
	}
	return inspect.ReceiverRecord{}
}

func TestAHistoryCounts(t *testing.T) {
	var all status.Histories
	h := all.Open("example", begin, true)
	h.Opened(begin)
	h.Asked(begin, 4, "")
	h.Asked(begin, 1, "domain.example")
	h.Asked(begin, 1, "other.example")
	for _, code := range []int{550, 550, 250, 450} {
		h.Answered(begin, code)
	}
	got := of(t, &all, begin, "example")
	want := inspect.Minute{At: begin, Asked: 6, Accepted: 1, Refused: 2, Deferred: 1, Opened: 1, Cause: "free",
		AllowedLast: 0}
	effort.ErrorIf(t, len(got.Minutes) != 1 || got.Minutes[0] != want || got.Domain != "domain.example",
		"%s: %+v, want %+v", got.Domain, got.Minutes, want)
}

// TestAMinuteTellsItsCause: the minute has the most sessions of its moments, the newest queue, the
// least and the newest rate, and the cause that was there for the longest.
func TestAMinuteTellsItsCause(t *testing.T) {
	var all status.Histories
	h := all.Open("example", begin, true)
	at := begin.Add(-time.Second)
	for _, m := range []struct {
		after     time.Duration
		is        status.Moment
		permitted float64
	}{
		{0, status.Moment{Sessions: 3, Queued: 9, Permitted: 10, Cause: wire.Cause_BUDGET}, 10},
		{10 * time.Second, status.Moment{Sessions: 1, Queued: 7, Permitted: 5, Cause: wire.Cause_BUDGET}, 5},
		{40 * time.Second, status.Moment{Sessions: 2, Queued: 4, Permitted: 8, Cause: wire.Cause_ALLOWANCE}, 8},
	} {
		now := begin.Add(m.after)
		h.Observe(now, m.is, wire.Cause_BUDGET, at)
		at = now
	}
	got := h.Last(begin.Add(time.Minute-1), 60)
	want := inspect.Minute{At: begin, Sessions: 3, Queued: 4, Allowed: 5, AllowedLast: 8, Cause: "budget"}
	effort.ErrorIf(t, len(got) != 1 || got[0] != want, "%+v, want %+v", got, want)
	later := h.Last(begin.Add(61*time.Minute), 60)
	effort.ErrorIf(t, len(later) != 0, "an hour later: %+v", later)
}

// TestAMinuteIsNotThatBefore: what was there in the minute before counts in that one only.
func TestAMinuteIsNotThatBefore(t *testing.T) {
	var all status.Histories
	h := all.Open("example", begin, true)
	at := time.Time{}
	observe := func(after time.Duration, before, is wire.Cause) {
		now := begin.Add(after)
		h.Observe(now, status.Moment{Cause: is}, before, at)
		at = now
	}
	observe(0, wire.Cause_FREE, wire.Cause_BUDGET)
	observe(50*time.Second, wire.Cause_BUDGET, wire.Cause_BUDGET)
	observe(70*time.Second, wire.Cause_BUDGET, wire.Cause_ALLOWANCE)
	observe(85*time.Second, wire.Cause_ALLOWANCE, wire.Cause_ALLOWANCE)
	got := h.Last(begin.Add(85*time.Second), 60)
	effort.ErrorIf(t, len(got) != 2 || got[0].Cause != "budget" || got[1].Cause != "allowance", "%+v", got)
}

func TestAHistoryIsBounded(t *testing.T) {
	var all status.Histories
	h := all.Open("example", begin, true)
	now := begin
	for range 3 * minutesMax { // hours later
		now = now.Add(time.Minute)
		h.Asked(now, 1, "")
	}
	effort.Is(t, len(of(t, &all, now, "example").Minutes), minutesMax, "minutes are kept")
}

func TestHistoriesOfReceiversThatAreGoneMakeRoom(t *testing.T) {
	var all status.Histories
	var list []*status.History
	for i := range historiesMax {
		h := all.Open(fmt.Sprint(i), begin.Add(time.Duration(i)*time.Second), true)
		h.Asked(begin, 1, "")
		list = append(list, h)
	}
	effort.FatalIf(t, all.Open("more", begin, true) != nil || all.Open("more", begin, false) != nil,
		"a history more than there is room for")
	got, _ := all.Record(begin, "", 1<<30)
	effort.ErrorIf(t, got.Dropped != 1, "%d dropped", got.Dropped)
	list[7].Close(begin.Add(time.Minute))
	list[3].Close(begin.Add(2 * time.Minute))
	effort.ErrorIf(t, all.Open("more", begin, true) == nil || of(t, &all, begin, "7").Key != "" ||
		of(t, &all, begin, "3").Key == "", "not the one that was used least recently made room")
	effort.Is(t, all.Open("3", begin, true), list[3], "a receiver that comes back has lost its history")
	effort.ErrorIf(t, all.Open("another", begin, true) != nil, "a receiver that came back has made room")
}

func TestHistoriesAreReadInPages(t *testing.T) {
	var all status.Histories
	for i := range 50 {
		all.Open(fmt.Sprintf("%02d", i), begin, true).Asked(begin, 1, "")
	}
	seen, pages, after := map[string]bool{}, 0, ""
	for whole := false; !whole; pages++ {
		page, last := all.Record(begin, after, 1000)
		for _, r := range page.Receivers {
			effort.ErrorIf(t, seen[r.Key], "%s comes twice", r.Key)
			seen[r.Key], after = true, r.Key
		}
		whole = last
	}
	effort.ErrorIf(t, len(seen) != 50 || pages < 5, "%d receivers in %d pages", len(seen), pages)
}
