package status_test

import (
	"fmt"
	"testing"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/config/effort"
)

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
