package status_test

import (
	"fmt"
	"testing"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/config/effort"
)

// TestTalliesAddUpTheLastSpans and nothing older, whatever order the spans come in.
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

// TestBlockedInAWord: each cause has the word that people know.
func TestBlockedInAWord(t *testing.T) {
	for c := range status.Causes {
		b := status.Blocked{Cause: wire.Cause(c)}
		effort.ErrorIf(t, b.Word() != inspect.Causes[c] || b.Free() != (c == 0),
			"cause %d: %q, free %v", c, b.Word(), b.Free())
	}
	for _, c := range []wire.Cause{-1, wire.Cause(status.Causes)} {
		effort.Is(t, (status.Blocked{Cause: c}).Word(), "", fmt.Sprintf("cause %d", c))
	}
}
