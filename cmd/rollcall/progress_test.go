package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/http/api"
)

// TestPaceIsThatOfThisRun at its boundaries: what was done before the first look counts for nothing.
func TestPaceIsThatOfThisRun(t *testing.T) {
	begin := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		name                 string
		before, after, total int64
		elapsed              time.Duration
		want                 string
	}{
		{"from the start", 0, 50, 100, 10 * time.Second, "5.0, about 10s left"},
		{"goes on near the end", 999_000, 999_050, 1_000_000, 10 * time.Second, "5.0, about 3m10s left"},
		{"goes on near the start", 100, 150, 1_000_000, 10 * time.Second, "5.0, about 55h32m50s left"},
		{"nothing new yet", 999_000, 999_000, 1_000_000, time.Hour, "0.0"},
		{"one new", 500, 501, 1000, 10 * time.Second, "0.1, about 1h23m10s left"},
		{"too short a look", 500, 600, 1000, paceLeast - 1, "0.0"},
		{"just long enough", 500, 600, 1000, paceLeast, "100.0, about 4s left"},
		{"all is done", 900, 1000, 1000, 10 * time.Second, "10.0"},
		{"less than a second", 0, 999, 1000, 10 * time.Second, "99.9"},
		{"all was done before", 1000, 1000, 1000, 10 * time.Second, "0.0"},
		{"falls behind", 10, 5, 100, 10 * time.Second, "0.0"},
		{"nobody lives so long", 0, 1, 1 << 62, 10 * time.Second, "0.1"},
		{"an empty file", 0, 0, 0, time.Minute, "0.0"},
	} {
		var p pace
		p.look(begin, x.before)
		now := begin.Add(x.elapsed)
		p.look(now, x.after)
		rate := p.perSecond(now, x.after)
		if got := fmt.Sprintf("%.1f", rate) + leftText(rate, x.total-x.after); got != x.want {
			t.Errorf("%s: got %q, want %q", x.name, got, x.want)
		}
	}
	if rate := new(pace).perSecond(begin, 10); rate != 0 {
		t.Errorf("never looked: got %v", rate)
	}
}

// verifyingAt is what a service says.
func verifyingAt(completed, cancelled, total int64) api.Detail {
	return api.Detail{Summary: api.Summary{Status: "verifying",
		Progress: api.Progress{Total: &total, Completed: completed, Cancelled: cancelled}}}
}

// TestTimeLeftOfARunThatGoesOn: at a terminal and elsewhere, of addresses and of bytes.
func TestTimeLeftOfARunThatGoesOn(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			v := &progressView{out: &out, terminal: terminal}
			step := func(what func()) string {
				if err := sleep(t.Context(), 20*time.Second); err != nil {
					t.Fatal(err)
				}
				out.Reset()
				what()
				return out.String()
			}
			step(func() { v.uploaded(90<<20, 100<<20) })
			if got := step(func() { v.uploaded(91<<20, 100<<20) }); terminal && !strings.Contains(got, "about 3m0s left") {
				t.Errorf("uploading: got %q", got)
			}
			step(func() { v.progress(verifyingAt(9_000, 0, 10_000), tally{"valid": 9_000}) })
			got := step(func() { v.progress(verifyingAt(9_100, 0, 10_000), tally{"valid": 9_100}) })
			if !strings.Contains(got, ", 5.0/s, about 3m0s left: valid 9,100") || strings.Count(got, "left") != 1 {
				t.Errorf("terminal %v: got %q", terminal, got)
			}
		})
	}
}

// TestCountsOfALineAreOfOneMoment: the count of outcomes is newer or older than the look before it.
func TestCountsOfALineAreOfOneMoment(t *testing.T) {
	for _, x := range []struct {
		completed, cancelled int64
		counted              tally
		want                 string
	}{
		{10, 0, tally{}, "verifying: 10 of 100 (10 %)\n"},
		{10, 0, tally{"valid": 7, "invalid": 3}, "verifying: 10 of 100 (10 %): valid 7, invalid 3\n"},
		{10, 0, tally{"valid": 8, "invalid": 4}, "verifying: 12 of 100 (12 %): valid 8, invalid 4\n"},
		{10, 0, tally{"valid": 8}, "verifying: 10 of 100 (10 %): of 8 counted valid 8\n"},
		{10, 90, tally{"valid": 12}, "verifying: 100 of 100 (100 %): valid 12\n"},
		{0, 0, tally{}, "verifying: 0 of 100 (0 %)\n"},
	} {
		var out bytes.Buffer
		(&progressView{out: &out}).progress(verifyingAt(x.completed, x.cancelled, 100), x.counted)
		if out.String() != x.want {
			t.Errorf("%+v: got %q, want %q", x, out.String(), x.want)
		}
	}
}
