package domain

import (
	"slices"
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
	b.answers(first, 1, judgement{reason: smtp.Greylisted, wait: time.Hour / 2}, deferred)
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

// offersInOrder returns the chunks that are out, oldest first.
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

// receivers answers the questions for the receiver of a bench, and gives the pauses that were made before them.
func (b *bench) receivers(ok bool) (pauses []time.Duration) {
	b.t.Helper()
	for _, s := range slices.Clone(b.steps) {
		if f, asks := s.(findReceiver); asks {
			pauses = append(pauses, f.after)
			b.now = b.now.Add(f.after)
			b.foundReceiver(b.route.key, ok)
			b.look()
		}
	}
	return pauses
}

// TestOurOwnTroubleIsNoAttempt: if we can't reach a receiver's actor for minutes, no address is deferred and nothing
// counts as an attempt. The actor is looked up every few seconds, never without a pause. When it is back, the
// addresses are asked at once.
func TestOurOwnTroubleIsNoAttempt(t *testing.T) {
	for _, c := range []struct {
		name    string
		trouble func(b *bench) // what happens to an offer, or instead of one
		found   bool           // the receiver can be resolved meanwhile
		worst   time.Duration  // between two attempts
	}{
		{"not to be had", func(*bench) {}, false, resolveMax},
		{"says nothing at all", func(b *bench) { b.pass(silenceMax) }, true, resolveMax + silenceMax},
		{"says nothing after it took the offer", func(b *bench) {
			b.ack(b.offered(), 1, wire.Refusal_NONE)
			b.pass(silenceMax)
		}, true, resolveMax + silenceMax},
		{"its node is gone", func(b *bench) {
			b.ack(b.offered(), 1, wire.Refusal_NONE)
			b.backlog.loseReceiver(b.now, 0)
			b.look()
		}, true, resolveMax},
		{"moves after a while, to one that answers nothing either", func(b *bench) {
			o := b.offered()
			b.ack(o, 1, wire.Refusal_NONE)
			b.now = b.now.Add(lostSoon)
			b.backlog.takeMoved(b.now)
			b.look()
		}, true, resolveMax + lostSoon},
		{"drains", func(b *bench) { b.ack(b.offered(), 1, wire.Refusal_DRAINING) }, true, resolveMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testOptions(), 2)
			b.takeRoute(b.now, testRoute, nil)
			b.look()
			before, tries := b.now, 0
			for ; b.now.Sub(morning) < 6*time.Minute; tries++ {
				if pauses := b.receivers(c.found); tries > 0 && (len(pauses) != 1 || pauses[0] < resolvePause) {
					t.Fatalf("pauses of %v before attempt %d", pauses, tries)
				}
				c.trouble(b)
				took := b.now.Sub(before)
				effort.FatalIf(t, took > c.worst, "%v between two attempts, want at most %v", took, c.worst)
				before = b.now
			}
			if s := &b.retries; len(b.done) > 0 || len(s.deferred) > 0 || len(s.again) > 0 {
				t.Fatalf("%d final, %d deferred, %d with attempts after our own trouble", len(b.done),
					len(s.deferred), len(s.again))
			}
			b.receivers(true)
			b.answers(b.offered(), 1, refused)
			b.is(0, smtp.Invalid, smtp.MailboxNotFound)
			b.is(1, smtp.Invalid, smtp.MailboxNotFound)
		})
	}
}

// TestReceiversThatFailOverWhatTheyGot: one that ends again and again under the same
// addresses, without one answer, is not retried for ever.
func TestReceiversThatFailOverWhatTheyGot(t *testing.T) {
	stops := func(b *bench) {
		b.backlog.loseReceiver(b.now, lostSure)
		b.backlog.loseReceiver(b.now, lostSure) // the notice may come twice
	}
	moves := func(b *bench) {
		b.backlog.takeMoved(b.now)
		b.backlog.loseReceiver(b.now, lostSure) // and the notice of the end behind it
	}
	for _, c := range []struct {
		name  string
		ends  func(b *bench)
		after time.Duration // the offer
		times int           // until it is put off
	}{
		{"stops at once", stops, 0, lostMax / lostSure},
		{"stops after a while", stops, 10 * time.Second, lostMax / lostSure},
		{"moves at once", moves, 0, lostMax / lostSure},
		{"moves after a while", moves, lostSoon, lostMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testOptions(), 1)
			b.reach()
			for range c.times {
				o := b.offered()
				b.ack(o, 0, wire.Refusal_NONE)
				for range c.after / time.Second {
					b.now = b.now.Add(time.Second)
					b.backlog.takePulse(b.now, &wire.Pulse{Task: o.GetTask(), Chunks: []uint64{o.GetChunk()}})
					b.look()
				}
				effort.FatalIf(t, len(b.done)+len(b.retries.deferred) > 0, "put off too early")
				c.ends(b)
				b.look()
				b.receivers(true)
			}
			if until := b.quietUntil(b.now); len(b.retries.deferred) != 1 || !until.Equal(b.now.Add(ladder[0])) {
				t.Fatalf("%d are put off, quiet until %v, want the first wait", len(b.retries.deferred), until)
			}
			b.pass(ladder[0])
			b.receivers(true)
			b.answers(b.offered(), 1, refused)
			b.is(0, smtp.Invalid, smtp.MailboxNotFound)
		})
	}
}

// TestAnAnswerEndsTheSuspicion: lost receivers count only if no answer comes between them.
func TestAnAnswerEndsTheSuspicion(t *testing.T) {
	b := newBench(t, testOptions(), 2*lostMax)
	b.reach()
	for i := range uint32(2*lostMax - 1) {
		b.answers(b.offered(), 1, refused, i)
		b.backlog.loseReceiver(b.now, lostSure)
		b.look()
		b.receivers(true)
	}
	n := len(b.retries.deferred)
	effort.ErrorIf(t, n > 0, "%d are put off though the receivers answered", n)
}

func TestAnIdleReceiverThatEndsIsNoFault(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, greylisted)
	for range 2 * lostMax {
		b.backlog.loseReceiver(b.now, lostSure)
		b.backlog.receiver.reached = true
	}
	effort.Is(t, b.backlog.receiver.lost, 0, "receivers count as lost that had nothing")
}

// TestReceiverThatMoved: addresses that it has not answered are offered to the next actor at once, and answers behind
// its last message still count.
func TestReceiverThatMoved(t *testing.T) {
	b := newBench(t, testOptions(), 3)
	b.reach()
	first := b.offered()
	b.answers(first, 1, refused, 0)
	b.backlog.takeMoved(b.now)
	b.look()
	if pauses := b.receivers(true); len(pauses) != 1 || pauses[0] != resolvePause {
		t.Fatalf("pauses %v before the next receiver is looked for", pauses)
	}
	second := b.offered()
	if got := locals(second); !slices.Equal(got, []string{"user2", "user1"}) {
		t.Fatalf("offered to the next receiver: %v, want what had no answer, the last first", got)
	}
	b.answers(first, 2, refused, 1)
	effort.Is(t, len(b.done), 2, "final, one of them answered when it was with another receiver")
	b.answers(second, 1, refused)
	effort.ErrorIf(t, b.left != 0 || b.options.Load.Addresses() != 0,
		"%d are left, %d count as out", b.left, b.options.Load.Addresses())
}

// TestShortWaitsGrow: who names a short wait each time is asked as often as one who names none, but for the first
// times. What was not asked was only kept waiting: its waits stay as they are named, and only the deadline ends it.
func TestShortWaitsGrow(t *testing.T) {
	const deadline = 3 * time.Hour
	for name, tc := range map[string]struct {
		say  judgement
		want []time.Duration // between the first attempts
		most int             // of them in all
		ends time.Duration   // the last of them comes before
	}{
		"asked": {judgement{reason: smtp.Greylisted, wait: 10 * time.Second}, []time.Duration{10550 * time.Millisecond,
			10550 * time.Millisecond, 10550 * time.Millisecond, 10550 * time.Millisecond, time.Minute,
			5 * time.Minute}, 18, time.Hour},
		"longer than ours": {judgement{reason: smtp.Greylisted, wait: 6 * time.Minute},
			slices.Repeat([]time.Duration{361 * time.Second}, 6), 10, time.Hour},
		"not asked": {judgement{reason: smtp.ReceiverRateLimited, wait: 10 * time.Second, silent: true},
			slices.Repeat([]time.Duration{10550 * time.Millisecond}, 8), 1024, deadline},
		"the connection broke": {judgement{reason: smtp.ConnectionFailed, wait: 10 * time.Second, code: 2},
			slices.Repeat([]time.Duration{10550 * time.Millisecond}, 8), 342, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), 1)
			b.work.Deadline = morning.Add(deadline)
			b.reach()
			var at []time.Duration
			for len(b.done) == 0 {
				at = append(at, b.now.Sub(morning))
				b.answers(b.offered(), 1, tc.say)
				if len(b.done) == 0 {
					b.pass(b.wakes.Sub(b.now))
				}
			}
			for i, want := range tc.want {
				effort.Is(t, at[i+1]-at[i], want, "wait", i)
			}
			if last := at[len(at)-1]; len(at) != tc.most || last > tc.ends {
				t.Errorf("asked %d times, the last time after %v; want %d", len(at), last, tc.most)
			}
			b.is(0, smtp.Unknown, tc.say.reason)
		})
	}
}

// TestWaitingForALimitUsesNoTime: an address that waited for a limit, a pause or a budget longer than GiveUpAfter is
// still asked, and GiveUpAfter counts from its own first attempt.
func TestWaitingForALimitUsesNoTime(t *testing.T) {
	rested := judgement{reason: smtp.ReceiverRateLimited, wait: 20 * time.Minute, others: true}
	silent := judgement{reason: smtp.ReceiverRateLimited, wait: 20 * time.Minute, silent: true}
	for name, waits := range map[string][]judgement{
		"nobody was asked":      slices.Repeat([]judgement{silent}, 9),
		"what others were told": slices.Repeat([]judgement{rested}, 9),
		"a guard": slices.Repeat([]judgement{{reason: smtp.HarvestGuard, wait: time.Hour, silent: true}},
			9),
		"between attempts of its own": {greylisted, rested, rested, rested, greylisted, rested, rested, rested, rested},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), 1)
			b.reach()
			waited, before := time.Duration(0), b.now
			for _, say := range waits {
				b.answers(b.offered(), 1, say)
				before = b.now
				if b.pass(b.wakes.Sub(b.now)); say.reason != smtp.Greylisted {
					waited += b.now.Sub(before)
				}
			}
			effort.FatalIf(t, waited <= b.options.GiveUpAfter,
				"it has waited for %s only, it may for %s", waited, b.options.GiveUpAfter)
			for asked := 0; len(b.done) == 0; asked++ {
				effort.FatalIf(t, asked > 100, "asked for ever")
				b.answers(b.offered(), 1, greylisted)
				before = b.now
				if len(b.done) == 0 {
					b.pass(b.wakes.Sub(b.now))
				}
			}
			b.is(0, smtp.Unknown, smtp.Greylisted)
			most := b.options.GiveUpAfter
			if own := before.Sub(morning) - waited; own < most-time.Second || own > most+time.Minute {
				t.Errorf("given up after %s that did not go to limits, want %s", own, most)
			}
		})
	}
}
