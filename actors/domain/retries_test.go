package domain

import (
	"testing"
	"time"

	"rollcall/actors/wire"
)

// TestDueRetriesHaveChunksOfTheirOwn: they don't wait until the receiver has asked the chunks of
// addresses that were never asked, they are marked, and one for which it has no room is offered again later.
func TestDueRetriesHaveChunksOfTheirOwn(t *testing.T) {
	const all = 20 * chunkFirst
	b := newBench(t, testOptions(), all)
	b.reach()
	first := b.offered()
	b.answers(first, 1, greylisted)
	live := []uint64{}
	for credit := uint32(chunksMax); credit > 0; {
		o := b.offered()
		if o.Retries() {
			t.Error("addresses that were never asked are offered as retries")
		}
		live = append(live, o.GetChunk())
		credit--
		b.ack(o, credit, wire.Refusal_NONE)
	}
	busy := func(d time.Duration) {
		t.Helper()
		for end := b.now.Add(d); b.now.Before(end); {
			b.pulsed(b.now, &wire.Pulse{Task: first.GetTask(), Chunks: live})
			b.pass(min(time.Second, end.Sub(b.now)))
			if b.now.Before(end) && len(b.offers()) > 0 {
				t.Fatalf("offered %v before its time", b.offers())
			}
		}
	}
	busy(ladder[0])
	retries := b.offered()
	if len(retries.GetProbes()) != len(first.GetProbes()) || !retries.Retries() {
		t.Fatalf("offered %d, as retries: %v", len(retries.GetProbes()), retries.Retries())
	}
	b.ack(retries, 0, wire.Refusal_FULL)
	if len(b.offers()) > 0 {
		t.Error("offered again at once")
	}
	busy(refusedPause)
	again := b.offered()
	if len(again.GetProbes()) != chunkFirst || !again.Retries() {
		t.Errorf("offered %d, as retries: %v", len(again.GetProbes()), again.Retries())
	}
	b.answers(again, 0, refused)
	if len(b.done) != chunkFirst {
		t.Errorf("%d are final, want those that were asked again", len(b.done))
	}
}
