package domain

import (
	"container/heap"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/wire"
	"rollcall/config/effort"
)

// backs checks what an offer tells of the addresses that wait behind it.
func (b *bench) backs(o *wire.Offer, behind int, waiting time.Duration) {
	b.t.Helper()
	if int(o.GetBehind()) != behind || o.GetWaitingMs() != waiting.Milliseconds() {
		b.t.Errorf("an offer of %d says that %d are behind it for %d ms, want %d for %s", len(o.GetProbes()),
			o.GetBehind(), o.GetWaitingMs(), behind, waiting)
	}
}

func TestOffersTellWhatIsBehindThem(t *testing.T) {
	const all = 10 * chunkFirst
	b := newBench(t, testOptions(), all)
	b.reach()
	first := b.offered()
	b.backs(first, all-chunkFirst, 0)
	b.pass(ackWithin) // nobody answers
	b.backs(b.offered(), all-chunkFirst, ackWithin)
	b.ack(first, 1, wire.Refusal_NONE)
	second := b.offered()
	b.backs(second, all-2*chunkFirst, ackWithin)
	b.ack(second, 0, wire.Refusal_FULL) // given back
	b.pass(time.Second)
	b.answers(first, 1, greylisted) // they wait for a time, not for the receiver
	third := b.offered()
	b.backs(third, all-chunkFirst-len(third.GetProbes()), ackWithin+time.Second)
	b.pass(10 * time.Minute) // their time has come, and nothing was heard of the receiver
	b.finds(true)
	last := b.offered()
	b.backs(last, all-len(last.GetProbes()), ackWithin+time.Second+10*time.Minute)
}

func TestAddressesThatAreDueAreCounted(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		s := &shard{tally: newAgenda(morning, testOptions(), Work{}, testSeed).tally}
		want := 0
		for range rapid.IntRange(0, 50).Draw(t, "deferred") {
			due := time.Duration(rapid.IntRange(0, 20).Draw(t, "due")) * time.Second
			s.deferred = append(s.deferred, pending{due: due})
			if due <= 10*time.Second {
				want++
			}
		}
		heap.Init(&s.deferred)
		if n, _ := s.behind(10 * time.Second); n != want {
			t.Fatalf("%d are due, want %d", n, want)
		}
	})
}
