package status_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

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

// linesMax bounds the lines that are kept of a trace.
const linesMax = 1_000

// only stands for one receiver.
func only(name string) func(key string) bool { return func(key string) bool { return key == name } }

func TestTracesAreBoundedAndEnd(t *testing.T) {
	var traces status.Traces
	now := begin
	for i := range 4 {
		effort.Must(traces.Read(now, fmt.Sprint(i), only(fmt.Sprint(i)), inspect.AnySource, 0))(t)
	}
	effort.Denied(traces.Read(now, "more", only("more"), inspect.AnySource, 0))(t, status.ErrTraces, "one trace more")
	for i := range linesMax + 10 {
		traces.Add(now, "0", inspect.TraceLine{Line: fmt.Sprint(i), Source: "192.0.2.1"})
	}
	traces.Add(now, "nobody asks for this", inspect.TraceLine{})
	lines, _ := traces.Read(now, "0", only("0"), inspect.AnySource, 0)
	effort.ErrorIf(t, len(lines) != linesMax || lines[0].Line != "10" ||
		lines[linesMax-1].Line != fmt.Sprint(linesMax+9), "%d lines are kept, from %q", len(lines), lines[0].Line)
	rest, _ := traces.Read(now, "0", only("0"), "192.0.2.1", lines[linesMax-3].Number)
	effort.ErrorIf(t, len(rest) != 2, "%d lines are newer, want 2", len(rest))
	now = now.Add(10 * time.Second)
	traces.Add(now, "0", inspect.TraceLine{}) // whoever comes next ends what is over
	effort.ErrorIf(t, traces.On(), "a trace that nobody asks for goes on")
	if lines, err := traces.Read(now, "0", only("0"), inspect.AnySource, 0); err != nil || len(lines) != 0 {
		t.Errorf("a trace that begins anew has %d lines and %v", len(lines), err)
	}
}

// TestLinesGoOnAfterARestart: whoever asks for what is above the newest number that an
// earlier process gave sees what the next one says.
func TestLinesGoOnAfterARestart(t *testing.T) {
	after, now := uint64(0), begin
	for process := range 3 {
		var traces status.Traces
		effort.Must(traces.Read(now, "x", only("x"), inspect.AnySource, after))(t)
		for range 1000 * (3 - process) {
			traces.Add(now, "x", inspect.TraceLine{})
		}
		lines, err := traces.Read(now, "x", only("x"), inspect.AnySource, after)
		effort.FatalIf(t, err != nil || len(lines) != linesMax, "process %d: %d lines and %v", process, len(lines), err)
		after, now = lines[len(lines)-1].Number, now.Add(5*time.Second)
	}
	effort.ErrorIf(t, after >= 1<<53, "%d is more than a number of JSON bears", after)
}

// series are those of receivers that are collected, by metric and receiver.
func series(t *testing.T, all []inspect.Receiver, ok bool) map[string]map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(status.NewCollector(func(context.Context) ([]inspect.Receiver, bool) { return all, ok }))
	families := effort.Must(registry.Gather())(t)
	out := map[string]map[string]float64{}
	for _, f := range families {
		of := map[string]float64{}
		for _, m := range f.GetMetric() {
			of[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		out[f.GetName()] = of
	}
	return out
}

// TestCollectedReceiversAreBounded: the fifty with the most queued have series of their own, all
// others have one together.
func TestCollectedReceiversAreBounded(t *testing.T) {
	const most = 50
	for _, n := range []int{0, 1, most, most + 1, 500} {
		all := make([]inspect.Receiver, n)
		sum := 0.0
		for i := range all {
			all[i] = inspect.Receiver{Key: fmt.Sprintf("r%03d.example", i), Queued: i, Oldest: float64(i), Refused: 0.5}
			sum += float64(i)
		}
		got := series(t, all, true)["rollcall_receiver_queued"]
		effort.Is(t, len(got), min(n, most)+1, fmt.Sprintf("of %d receivers there are series", n))
		shown := 0.0
		for i := max(0, n-most); i < n; i++ {
			key := fmt.Sprintf("r%03d.example", i)
			v, here := got[key]
			effort.ErrorIf(t, !here || v != float64(i), "of %d receivers, %s has %v queued", n, key, v)
			shown += float64(i)
		}
		effort.Is(t, got["(rest)"], sum-shown, fmt.Sprintf("of %d receivers the rest has queued", n))
	}
}

// TestTheRestIsAddedUp: values of the receivers without labels are summed, except means and maxima.
func TestTheRestIsAddedUp(t *testing.T) {
	all := make([]inspect.Receiver, 54)
	for i := range all {
		all[i] = inspect.Receiver{Key: fmt.Sprintf("r%02d.example", i), Queued: i, Sessions: 1, Oldest: float64(i), Refused: 0.5}
	}
	got := series(t, all, true)
	for name, want := range map[string]float64{"sessions": 4, "oldest_seconds": 3, "refused_ratio": 0.5} {
		effort.Is(t, got["rollcall_receiver_"+name]["(rest)"], want, name)
	}
}

// TestAReceiverThatIsHereTwiceHasOneSeries: it is that of the busier actor. There are no series before there is a node.
func TestAReceiverThatIsHereTwiceHasOneSeries(t *testing.T) {
	got := series(t, []inspect.Receiver{{Key: "a", Queued: 1}, {Key: "a", Queued: 2}}, true)["rollcall_receiver_queued"]
	effort.ErrorIf(t, got["a"] != 2 || got["(rest)"] != 1 || len(got) != 2, "series %v", got)
	if got := series(t, nil, false); len(got) > 0 {
		t.Errorf("before there is a node: %v", got)
	}
}

// TestTalliesAddUpTheLastSpans: older spans don't count, in whatever order the spans come.
func TestTalliesAddUpTheLastSpans(t *testing.T) {
	var r status.Tallies
	for at := int64(100); at < 200; at++ {
		tally := r.Of(at)
		tally.Asked++
		tally.Refused += 2
		r.Of(at-1).Asked++           // late, and counted
		r.Of(at - 50).Deferred += 99 // far too late
		n := min(at-99, status.Spans)
		all := r.Sum(at)
		want := int32(min(2*(at-99), 2*status.Spans-1))
		effort.FatalIf(t, all.Asked != want, "at %d: %d asked, want %d", at, all.Asked, want)
		effort.FatalIf(t, all.Refused != int32(2*n) || all.Deferred != 0 || all.Answered != 0, "at %d: %+v", at, all)
	}
	effort.Is(t, r.Sum(300), (status.Tally{}), "long after")
}

func TestLocalPartsAreTakenOutOfTexts(t *testing.T) {
	for _, c := range []struct{ text, local, want string }{
		{"jsmith unknown user", "JSmith", "~ unknown user"},
		{"user jsmith, jsmith: unknown", "jsmith", "user ~, ~: unknown"},
		{"jsmithson unknown", "jsmith", "jsmithson unknown"},
		{"user unknown", "user", "user unknown"},
		{"no such mailbox", "a", "no such mailbox"},
		{"mailbox john unknown", "john+news", "mailbox ~ unknown"},
		{"john+news: john", "John+News", "~: ~"},
		{"user bob, bob=list", "bob=list", "user ~, ~"},
		{"user johnsmith not found", "john.smith", "user ~ not found"},
		{"john smith has left", "john_smith", "~ has left"},
		{"johnsmith has left", "john.smith+x", "~ has left"},
		{"user o\\'brien unknown", "o'brien", "user ~ unknown"},
		{"o%27brien or o=27brien", "o'brien", "~ or ~"},
		{"j%25smith unknown", "j%smith", "~ unknown"},
		{"john%2bnews, john=2bnews", "john+news", "~, ~"},
		{"müller, muller, mueller", "Müller", "~, ~, ~"},
		{"m=c3=bcller, m%c3%bcller", "müller", "~, ~"},
		{"oezil, ozil", "özil", "~, ~"},
		{"user name unknown", "user+x", "user name unknown"},
		{"johnson smithers", "john.smith", "johnson smithers"},
		{"no user", "no.user", "~"},
		{"ok", "", "ok"},
		{"", "x", ""},
	} {
		effort.Is(t, status.Redact(c.text, c.local), c.want, fmt.Sprintf("%q without %q is", c.text, c.local))
	}
}

// TestClippedTextsEndWithARune: no text is cut within a character.
func TestClippedTextsEndWithARune(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("ä", 100)} {
		effort.Is(t, status.Clip(text), text, fmt.Sprintf("%q is", text))
	}
	for _, text := range []string{strings.Repeat("x", 1000), strings.Repeat("ä", 1000), strings.Repeat("xä", 1000),
		strings.Repeat("語", 1000)} {
		got := status.Clip(text)
		effort.ErrorIf(t, len(got) > 200 || len(got) < 190 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…"),
			"%d bytes: %q", len(got), got)
	}
}
