package domain

import (
	"testing"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/mx"
)

// failer is what a check needs of a test, also of a property's.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkWaits compares what a planner tells with a look at each of its addresses. All tests
// of planners call it in each turn.
func checkWaits(t failer, a *planner, now time.Time) {
	t.Helper()
	w := a.waits(now)
	sum := 0
	for _, v := range w.Waits {
		if sum += v.Addresses; v.Addresses < 1 || v.For == "" || !v.Last.IsZero() && v.Last.Before(v.Until) {
			t.Fatalf("told %+v", v)
		}
	}
	if sum != a.left {
		t.Fatalf("%d addresses are open, and %d wait: %+v", a.left, sum, w.Waits)
	}
}

// says compares what a planner tells, without times.
func (b *bench) says(want ...inspect.Wait) {
	b.t.Helper()
	got := b.waits(b.now)
	bare := Waits{Ends: got.Ends}
	for _, w := range got.Waits {
		w.Until, w.Last = time.Time{}, time.Time{}
		bare.Waits = append(bare.Waits, w)
	}
	effort.FatalIf(b.t, !bare.equal(Waits{Ends: got.Ends, Waits: want}), "told %+v, want %+v", bare.Waits, want)
}

// TestWaitsAreTold follows four addresses through every kind of wait.
func TestWaitsAreTold(t *testing.T) {
	b := newBench(t, testOptions(), 4)
	const at = "receiver.test"
	b.says(inspect.Wait{Addresses: 4, For: inspect.ForRoute})
	b.reach()
	b.says(inspect.Wait{Addresses: 4, For: inspect.ForReceiver, Receiver: at, Cause: "free"})
	o := b.offered()
	b.ack(o, 1, wire.Refusal_NONE)
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{o.GetChunk()}, Cause: wire.Cause_BUDGET,
		PerHour: 40, WaitingMs: 60_000})
	b.says(inspect.Wait{Addresses: 4, For: inspect.ForReceiver, Receiver: at, Cause: "budget",
		PerHour: 40})
	w := b.waits(b.now).Waits[0]
	effort.ErrorIf(t, !w.Until.Equal(b.now.Add(time.Minute)), "nothing is asked until %v", w.Until)
	b.answers(o, 1, judgement{reason: smtp.Greylisted}, 0)
	b.answers(o, 2, judgement{reason: smtp.MailboxFull}, 1)
	b.answers(o, 3, judgement{outcome: smtp.Valid, reason: smtp.MailboxExists}, 2)
	retry := func(r smtp.Reason) inspect.Wait {
		return inspect.Wait{Addresses: 1, For: inspect.ForRetry, Receiver: at, Reason: r.String()}
	}
	b.says(inspect.Wait{Addresses: 1, For: inspect.ForReceiver, Receiver: at, Cause: "budget", PerHour: 40},
		inspect.Wait{Addresses: 1, For: inspect.ForControl, Receiver: at}, retry(smtp.MailboxFull),
		retry(smtp.Greylisted))
	got := b.waits(b.now)
	for _, w := range got.Waits[2:] {
		if want := b.now.Add(ladder[0]); !w.Until.Equal(want) || !w.Last.Equal(want) {
			t.Errorf("%s: until %v and %v, want %v", w.Reason, w.Until, w.Last, want)
		}
	}
	want := morning.Add(b.options.GiveUpAfter)
	effort.ErrorIf(t, !got.Ends.Equal(want), "ends at %v, want %v: a mailbox that is full stays so", got.Ends, want)
	b.backlog.leaveReceiver() // and what was due waits for the receiver
	b.now = b.now.Add(ladder[0])
	b.says(inspect.Wait{Addresses: 3, For: inspect.ForReceiver, Receiver: at, Cause: "free"},
		inspect.Wait{Addresses: 1, For: inspect.ForControl, Receiver: at})
}

// TestUnknownCauseIsFree: a cause that only a newer program knows is shown as "free".
func TestUnknownCauseIsFree(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Cause: 99})
	b.says(inspect.Wait{Addresses: 1, For: inspect.ForReceiver, Receiver: "receiver.test", Cause: "free"})
}

// TestGreylistingTeachesTheEnd: what one address showed is expected of the others.
func TestGreylistingTeachesTheEnd(t *testing.T) {
	o := testOptions()
	o.Waits = always(time.Minute, 10*time.Minute, 20*time.Minute)
	b := newBench(t, o, 3)
	b.reach()
	grey := judgement{reason: smtp.Greylisted, source: "192.0.2.9"}
	first := b.offered()
	b.answers(first, 1, grey, 0, 1, 2)
	// Put off for five minutes and more, as most are, which is until the second of the
	// waits is over; the control probe behind it is put off as long.
	got, want := b.waits(b.now).Ends, b.now.Add(22*time.Minute)
	effort.ErrorIf(t, !got.Equal(want), "ends at %v, want %v", got.Sub(morning), want.Sub(morning))
	b.pass(time.Minute)
	b.answers(b.offered(), 1, judgement{reason: smtp.MailboxNotFound, outcome: smtp.Invalid, source: "192.0.2.9"}, 0)
	b.answers(b.backlog.chunks[len(b.backlog.chunks)-1].offer, 2, grey, 1)
	w := b.waits(b.now)
	want = b.now.Add(10 * time.Minute)
	effort.ErrorIf(t, w.Ends.Before(want), "ends at %v, want %v or later", w.Ends.Sub(morning), want.Sub(morning))
	effort.Is(t, w.Deferred, 1, "those that were not asked are expected to be put off")
}

// TestAChangedTableIsFollowed: a rule that makes a key of its own takes what is out along.
func TestAChangedTableIsFollowed(t *testing.T) {
	o := testOptions()
	key, version, asked := "receiver.test", uint64(1), 0
	o.Match = func(mx.Route) string { asked++; return key }
	o.Version = func() uint64 { return version }
	b := newBench(t, o, 1)
	b.reach()
	b.ack(b.offered(), 1, wire.Refusal_NONE)
	key = "domain:example.test/receiver.test"
	before := asked
	b.pass(time.Second)
	effort.FatalIf(t, b.route.key != "receiver.test" || asked != before,
		"key %s, asked %d times for it while nothing changed", b.route.key, asked-before)
	version++
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{b.backlog.chunk}})
	b.look()
	effort.FatalIf(t, b.route.key != key || b.backlog.receiver.reached || len(b.backlog.chunks) != 0,
		"key %s after the change, reached %v, %d chunks out", b.route.key, b.backlog.receiver.reached,
		len(b.backlog.chunks))
	b.finds(true)
	effort.Is(t, locals(b.offered())[0], "user0", "what was out is not offered again")
	version++ // of others
	b.pass(time.Second)
	effort.ErrorIf(t, !b.backlog.receiver.reached || len(b.backlog.chunks) != 1,
		"a change that is of others took the work away")
}

// TestWaitsOfAReceiver are asked for by its key.
func TestWaitsOfAReceiver(t *testing.T) {
	const own = 42 * time.Second
	o := testOptions()
	o.Waits = func(key string) []time.Duration {
		effort.Is(t, key, "receiver.test", "waits are asked for")
		return []time.Duration{own}
	}
	b := newBench(t, o, 1)
	b.reach()
	b.answers(b.offered(), 1, judgement{reason: smtp.Greylisted})
	effort.Is(t, b.quietUntil(b.now).Sub(b.now), own, "asked again after")
}

// TestActorTellsWhatItWaitsFor: it tells its parent only changes, at most one each tellEvery. If nothing can
// be asked any more, it tells that at once and first.
func TestActorTellsWhatItWaitsFor(t *testing.T) {
	withActorOf(t, func(_ *stage, o *Options) { // no control probe, which would wait beside them
		o.Facts.Learn(testBehaviour, false, time.Now())
	}, func(s *stage) {
		r := s.receiver()
		offer, self := gets[*wire.Offer](s, r)
		began := time.Now()
		s.system.Root.Send(self, &wire.OfferAck{Task: offer.GetTask(), Chunk: offer.GetChunk(), Credit: 1})
		w := <-s.waits
		effort.ErrorIf(t, time.Since(began) != tellEvery || w.Waits[0].Addresses != 2 ||
			w.Waits[0].For != inspect.ForReceiver, "after %v: %+v", time.Since(began), w)
		s.answers(r, self, offer, greylisted, 2)
		gets[*wire.ResultsAck](s, r)
		if m := (<-s.told).(Quiet); !m.Until.Equal(time.Now().Add(ladder[0])) {
			t.Errorf("quiet until %v, want %v", m.Until, time.Now().Add(ladder[0]))
		}
		effort.Not(t, len(s.waits), 0, "it said that nothing can be asked before it said why")
		if w := <-s.waits; time.Since(began) != tellEvery || w.Waits[0].Reason != smtp.Greylisted.String() {
			t.Errorf("after %v: %+v", time.Since(began), w)
		}
		<-time.After(ladder[0] / 2)
		if len(s.waits) > 0 {
			t.Errorf("told again while nothing changed: %+v", <-s.waits)
		}
		again, self := gets[*wire.Offer](s, r)
		m := (<-s.told).(Quiet)
		effort.ErrorIf(t, !m.Until.IsZero(), "quiet until %v while asking", m.Until)
		s.answers(r, self, again, refused, 2)
		gets[*wire.ResultsAck](s, r)
		s.finals(2, true)
	})
}
