package receiver

import (
	"rollcall/config/effort"
	"testing"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/receiver/scheduler"
	"rollcall/smtp/throttle"
)

// TestWhatIsKeptOfASleepingReceiverIsForgotten: it lives nowhere, and would know it all again.
func TestWhatIsKeptOfASleepingReceiverIsForgotten(t *testing.T) {
	t.Parallel()
	m := facts.Snapshot{V: facts.SnapshotVersion, Pauses: 2, Paused: 60_000, Limits: []facts.Limit{{Which: 0, Most: 5, Left: 60_000}}}
	fact := facts.Fact{Key: throttle.SuffixKey("example.net"), Data: m.Encode()}
	kept := receivertest.Holding(fact)
	o := testOptions(openedWide())
	o.Facts = kept
	o.Registry.stateWriter(o)
	got, err := o.Registry.ForgetKept(t.Context(), "example.net", scheduler.ForgetBlock)
	effort.FatalIf(t, err != nil || len(got) != 1 || got[0].Key != fact.Key || len(got[0].Dropped) != 1,
		"%v %+v", err, got)
	effort.Is(t, len(effort.Must(o.Registry.ForgetKept(t.Context(), "another.net", scheduler.ForgetAll))(t)), 0, "another")
	if m, err := facts.Decode(kept.Fact(fact.Key).Data); err != nil || m.Paused != 0 || len(m.Limits) != 1 {
		t.Errorf("%v %+v", err, m)
	}
}
