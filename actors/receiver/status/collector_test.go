package status_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/config/effort"
)

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

// TestTheRestIsAddedUp, but for what is a mean, or the most of all.
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

// TestAReceiverThatIsHereTwiceHasOneSeries, of the busier, and nothing is told before there is a node.
func TestAReceiverThatIsHereTwiceHasOneSeries(t *testing.T) {
	got := series(t, []inspect.Receiver{{Key: "a", Queued: 1}, {Key: "a", Queued: 2}}, true)["rollcall_receiver_queued"]
	effort.ErrorIf(t, got["a"] != 2 || got["(rest)"] != 1 || len(got) != 2, "series %v", got)
	if got := series(t, nil, false); len(got) > 0 {
		t.Errorf("before there is a node: %v", got)
	}
}

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
