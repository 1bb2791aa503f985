package domain

import (
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/mx"
)

// newMovingBench is a bench whose receiver has the key that is named at the time.
func newMovingBench(t *testing.T, key *string, addresses int) *bench {
	t.Helper()
	o := testOptions()
	o.Match = func(mx.Route) string { return *key }
	o.Version = func() uint64 { return uint64(len(*key)) }
	b := newBench(t, o, addresses)
	b.takeRoute(b.now, testRoute, nil)
	b.look()
	return b
}

// TestTheReceiverChanges: while chunks are out, another receiver is the right one. The old one is told to drop
// what it has, nothing is lost or doubled, what was deferred keeps its time, and late messages do no harm.
func TestTheReceiverChanges(t *testing.T) {
	key := "receiver.test"
	b := newMovingBench(t, &key, 200)
	b.receivers(true)
	first := b.offered()
	b.ack(first, 0, wire.Refusal_NONE)
	deferred := first.GetProbes()[0].GetOrdinal()
	b.answers(first, 1, told{reason: smtp.Greylisted, wait: time.Hour / 2}, deferred)
	key = "suffix:receiver.test"
	b.backlog.takePulse(b.now, &wire.Pulse{Task: first.GetTask(), Chunks: []uint64{first.GetChunk()}})
	b.look()
	cancelled := 0
	for _, s := range b.steps {
		if tell, ok := s.(tell); ok {
			if _, ok := tell.msg.(*wire.Cancel); ok {
				cancelled++
			}
		}
	}
	effort.MustBe(t, cancelled, 1, "receivers are told to drop what they have")
	effort.ErrorIf(t, b.foundReceiver("receiver.test", true), "the receiver of before is taken")
	b.receivers(true)
	b.answers(first, 2, refused, first.GetProbes()[1].GetOrdinal()) // it counts, though its chunk was taken back
	done := b.drainOut(t)
	effort.FatalIf(t, done != 199 || len(b.done) != 199, "%d answered, %d final, want 199", done, len(b.done))
	b.pass(time.Hour/2 + time.Minute)
	b.answers(b.offered(), 1, refused)
	b.is(deferred, smtp.Invalid, smtp.MailboxNotFound)
	effort.Is(t, b.options.Load.Addresses(), 0, "count as out")
}

// TestAttemptsCountAtAnotherReceiver: an address that is ready for another attempt when the receiver changes
// has made those that it made.
func TestAttemptsCountAtAnotherReceiver(t *testing.T) {
	key := "receiver.test"
	b := newMovingBench(t, &key, 1)
	b.receivers(true)
	b.answers(b.offered(), 1, greylisted)
	b.pass(ladder[0])
	again := b.offered()
	key = "suffix:receiver.test"
	b.backlog.takePulse(b.now, &wire.Pulse{Task: again.GetTask()})
	b.look()
	b.receivers(true)
	b.answers(b.offered(), 1, greylisted)
	effort.Is(t, b.wakes.Sub(b.now), ladder[1], "the second wait")
}

// TestTheReceiverChangesWhileNobodyIsReached: every time a receiver is looked for, it is the present one.
func TestTheReceiverChangesWhileNobodyIsReached(t *testing.T) {
	key := "receiver.test"
	b := newMovingBench(t, &key, 1)
	key = "suffix:receiver.test"
	b.receivers(false)
	b.wants(findReceiver{resolvePause})
	effort.Is(t, b.route.key, key, "looked for")
}

// TestAnswersOfAReceiverBelievedDead: those that come after all count.
func TestAnswersOfAReceiverBelievedDead(t *testing.T) {
	b := newBench(t, testOptions(), 4)
	b.reach()
	first := b.offered()
	b.ack(first, 1, wire.Refusal_NONE)
	b.pass(silenceMax)
	b.answers(first, 1, refused, 0, 1)
	b.answers(first, 2, greylisted, 2) // when it was put off is not known any more
	b.finds(true)
	effort.Is(t, len(b.done), 2, "final")
	effort.Is(t, len(b.offered().GetProbes()), 2, "asked again")
	b.answers(first, 3, refused, 3) // out again
	effort.Is(t, len(b.done), 3, "final")
}

// offersInOrder gives the chunks that are out, oldest first.
func (b *bench) offersInOrder() (list []*wire.Offer) {
	for _, o := range b.backlog.chunks {
		list = append(list, o.offer)
	}
	return list
}

// drainOut refuses everything that is out until nothing is, and returns how much it was.
func (b *bench) drainOut(t *testing.T) (answered int) {
	t.Helper()
	for range 1000 {
		list := b.offersInOrder()
		if len(list) == 0 {
			return answered
		}
		answered += len(list[0].GetProbes())
		b.answers(list[0], 9, refused)
	}
	t.Fatal("it never ends")
	return 0
}

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

func TestWorkThatNobodyTakesIsSaidToWait(t *testing.T) {
	start := time.Unix(1e9, 0)
	pl := newPlanner(start, testOptions(), Work{}, testSeed)
	b, s := &pl.backlog, &pl.backlog.receiver
	s.reaching, s.failures = true, missedMax
	if until, busy := b.quietUntil(start); !busy {
		t.Errorf("after %d searches it waits until %s", s.failures, until)
	}
	s.failures++
	changes, before := 0, time.Time{}
	for at := start; at.Before(start.Add(time.Hour)); at = at.Add(time.Second) {
		until, busy := b.quietUntil(at)
		effort.FatalIf(t, busy || until.Sub(at) < missedFor || until.Sub(at) > 2*missedFor,
			"after %s: until %s, busy %v", at.Sub(start), until.Sub(at), busy)
		if !until.Equal(before) {
			changes, before = changes+1, until
		}
	}
	effort.ErrorIf(t, changes > 61, "within an hour %d times are told", changes)
}
