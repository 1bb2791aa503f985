package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	minutesMax   = 6 * 60
	historiesMax = 1_000
	heardMax     = 64 // texts of an hour
)

// refusal and refused are what a receiver says to an address that it does not know.
var (
	refusal = &evidence.Attempt{Stage: smtp.StageRcpt, Host: "mx1.example", Code: 550}
	refused = &verdict.Verdict{Outcome: smtp.Invalid, Rule: "a-rule"}
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
	h.Heard(begin, refusal, refused, "no such user", 2)
	h.Heard(begin, &evidence.Attempt{Stage: smtp.StageRcpt, Code: 250}, &verdict.Verdict{Outcome: smtp.Valid}, "ok", 1)
	h.Heard(begin, &evidence.Attempt{Stage: smtp.StageRcpt, Code: 450}, &verdict.Verdict{}, "later", 1)
	h.Heard(begin, &evidence.Attempt{Stage: smtp.StageGreeting, Code: 554}, &verdict.Verdict{}, "go away", 1)
	h.Heard(begin, &evidence.Attempt{Stage: smtp.StageConnect}, &verdict.Verdict{}, "", 1)
	got := of(t, &all, begin, "example")
	want := inspect.Minute{At: begin, Asked: 6, Accepted: 1, Refused: 2, Deferred: 1, Opened: 1, Cause: "free",
		AllowedLast: 0}
	if len(got.Minutes) != 1 || got.Minutes[0] != want || got.Domain != "domain.example" {
		t.Errorf("%s: %+v, want %+v", got.Domain, got.Minutes, want)
	}
	times := map[string]int{}
	for _, r := range got.Replies {
		times[fmt.Sprintf("%d %s %s", r.Code, r.Text, r.Did)] = r.Times
	}
	if len(times) != 5 || times["550 no such user invalid"] != 2 {
		t.Errorf("heard %v", times)
	}
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
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if later := h.Last(begin.Add(61*time.Minute), 60); len(later) != 0 {
		t.Errorf("an hour later: %+v", later)
	}
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
	if len(got) != 2 || got[0].Cause != "budget" || got[1].Cause != "allowance" {
		t.Errorf("%+v", got)
	}
}

func TestAHistoryIsBounded(t *testing.T) {
	var all status.Histories
	h := all.Open("example", begin, true)
	for i := range heardMax + 7 {
		h.Heard(begin, refusal, refused, fmt.Sprintf("text %d", i), 1)
	}
	if got := of(t, &all, begin, "example"); len(got.Replies) != heardMax || got.Lost != 7 {
		t.Errorf("%d texts in an hour and %d lost, want %d and 7", len(got.Replies), got.Lost, heardMax)
	}
	now := begin
	for range 3 * minutesMax { // hours later
		now = now.Add(time.Minute)
		h.Asked(now, 1, "")
	}
	if got := of(t, &all, now, "example"); len(got.Minutes) != minutesMax || len(got.Replies) != 0 {
		t.Errorf("%d minutes and %d texts are kept, want %d and none", len(got.Minutes), len(got.Replies), minutesMax)
	}
	long := strings.Repeat("x", 1<<20)
	for i := range 40 {
		h.Heard(now, refusal, refused, fmt.Sprint(i, long), 1)
	}
	if got := of(t, &all, now, "example"); len(got.Replies) < 30 || len(got.Replies) > 32 {
		t.Errorf("%d texts of a megabyte are kept", len(got.Replies))
	}
}

func TestHistoriesOfReceiversThatAreGoneMakeRoom(t *testing.T) {
	var all status.Histories
	var list []*status.History
	for i := range historiesMax {
		h := all.Open(fmt.Sprint(i), begin.Add(time.Duration(i)*time.Second), true)
		h.Asked(begin, 1, "")
		list = append(list, h)
	}
	if all.Open("more", begin, true) != nil || all.Open("more", begin, false) != nil {
		t.Fatal("a history more than there is room for")
	}
	if got, _ := all.Record(begin, "", 1<<30); got.Dropped != 1 {
		t.Errorf("%d dropped", got.Dropped)
	}
	list[7].Close(begin.Add(time.Minute))
	list[3].Close(begin.Add(2 * time.Minute))
	if all.Open("more", begin, true) == nil || of(t, &all, begin, "7").Key != "" || of(t, &all, begin, "3").Key == "" {
		t.Error("not the one that was used least recently made room")
	}
	if all.Open("3", begin, true) != list[3] {
		t.Error("a receiver that comes back has lost its history")
	}
	if all.Open("another", begin, true) != nil {
		t.Error("a receiver that came back has made room")
	}
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
			if seen[r.Key] {
				t.Errorf("%s comes twice", r.Key)
			}
			seen[r.Key], after = true, r.Key
		}
		whole = last
	}
	if len(seen) != 50 || pages < 5 {
		t.Errorf("%d receivers in %d pages", len(seen), pages)
	}
}

func BenchmarkHeard(b *testing.B) {
	var all status.Histories
	h := all.Open("example", begin, true)
	text := strings.Repeat("no such user here, sorry; ", 4)
	b.ReportAllocs()
	for b.Loop() {
		h.Heard(begin, refusal, refused, status.Redact(text, "anna.schmidt"), 1)
	}
}
