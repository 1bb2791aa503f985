package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
)

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
				if err := term.Sleep(t.Context(), 20*time.Second); err != nil {
					t.Fatal(err)
				}
				out.Reset()
				what()
				return out.String()
			}
			step(func() { v.uploaded(90<<20, 100<<20) })
			if got := step(func() { v.uploaded(91<<20, 100<<20) }); terminal && !strings.Contains(got, "about 3 minutes left") {
				t.Errorf("uploading: got %q", got)
			}
			step(func() { v.progress(verifyingAt(9_000, 0, 10_000), client.Tally{"valid": 9_000}) })
			got := step(func() { v.progress(verifyingAt(9_100, 0, 10_000), client.Tally{"valid": 9_100}) })
			if !strings.Contains(got, ", 5.0/s, about 3 minutes left: valid") || strings.Count(got, "left") != 1 {
				t.Errorf("terminal %v: got %q", terminal, got)
			}
		})
	}
}

// TestABarIsDrawnInOnePiece, with the count that its text is of, and its end whenever that comes.
func TestABarIsDrawnInOnePiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		v := &progressView{out: &out, terminal: true}
		v.progress(verifyingAt(0, 0, 62), client.Tally{})
		v.progress(verifyingAt(30, 0, 62), client.Tally{"valid": 30}) // too soon to be drawn
		v.progress(verifyingAt(62, 0, 62), client.Tally{"valid": 60, "invalid": 2})
		v.stop()
		want := "\r  0% |" + strings.Repeat(" ", barWidth) + "| (0/62) verifying\x1b[K" +
			"\r100% |" + strings.Repeat("█", barWidth) + "| (62/62) verifying: valid 60, invalid 2\x1b[K\n"
		if got := out.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestCountsOfALineAreOfOneMoment: the count of outcomes is newer or older than the look before it.
func TestCountsOfALineAreOfOneMoment(t *testing.T) {
	for _, x := range []struct {
		completed, cancelled int64
		counted              client.Tally
		want                 string
	}{
		{10, 0, client.Tally{}, "verifying: 10 of 100 (10 %)\n"},
		{10, 0, client.Tally{"valid": 7, "invalid": 3}, "verifying: 10 of 100 (10 %): valid 7, invalid 3\n"},
		{10, 0, client.Tally{"valid": 8, "invalid": 4}, "verifying: 12 of 100 (12 %): valid 8, invalid 4\n"},
		{10, 0, client.Tally{"valid": 8}, "verifying: 10 of 100 (10 %): of 8 counted valid 8\n"},
		{10, 90, client.Tally{"valid": 12}, "verifying: 100 of 100 (100 %): valid 12\n"},
		{0, 0, client.Tally{}, "verifying: 0 of 100 (0 %)\n"},
	} {
		var out bytes.Buffer
		(&progressView{out: &out}).progress(verifyingAt(x.completed, x.cancelled, 100), x.counted)
		if out.String() != x.want {
			t.Errorf("%+v: got %q, want %q", x, out.String(), x.want)
		}
	}
}
