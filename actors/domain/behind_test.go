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
	effort.ErrorIf(b.t, int(o.GetBehind()) != behind || o.GetWaitingMs() != waiting.Milliseconds(),
		"an offer of %d says that %d are behind it for %d ms, want %d for %s", len(o.GetProbes()), o.GetBehind(),
		o.GetWaitingMs(), behind, waiting)
}

func TestOffersTellWhatIsBehindThem(t *testing.T) {
	const all = 10 * wire.AddressesMax
	b := newBench(t, testOptions(), all)
	b.reach()
	first := b.offered()
	b.backs(first, all-wire.AddressesMax, 0)
	b.pass(ackWithin) // nobody answers
	b.backs(b.offered(), all-wire.AddressesMax, ackWithin)
	b.ack(first, 1, wire.Refusal_NONE)
	second := b.offered()
	b.backs(second, all-2*wire.AddressesMax, ackWithin)
	b.ack(second, 0, wire.Refusal_FULL) // given back
	b.pass(time.Second)
	b.answers(first, 1, greylisted) // they wait for a time, not for the receiver
	third := b.offered()
	b.backs(third, all-wire.AddressesMax-len(third.GetProbes()), ackWithin+time.Second)
	b.pass(10 * time.Minute) // their time has come, and nothing was heard of the receiver
	b.finds(true)
	behind, offers := all, b.offers()
	for _, o := range offers {
		behind -= len(o.GetProbes())
	}
	b.backs(offers[len(offers)-1], behind, ackWithin+time.Second+10*time.Minute)
}

func TestAddressesThatAreDueAreCounted(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		pl := newPlanner(morning, testOptions(), Work{}, testSeed)
		s := &pl.retries
		want := 0
		for range rapid.IntRange(0, 50).Draw(t, "deferred") {
			due := time.Duration(rapid.IntRange(0, 20).Draw(t, "due")) * time.Second
			s.deferred = append(s.deferred, pending{due: due})
			if due <= 10*time.Second {
				want++
			}
		}
		heap.Init(&s.deferred)
		n, _ := pl.backlog.countBehind(morning.Add(10 * time.Second))
		effort.FatalIf(t, n != want, "%d are due, want %d", n, want)
	})
}
