package domain

import (
	"slices"
	"testing"
	"time"

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
)

// greyFrom is a greylisting of one of our sources.
func greyFrom(source string) told { return told{reason: smtp.Greylisted, source: source} }

const (
	sourceA = "192.0.2.101"
	sourceB = "2001:db8::102"
)

// TestGreylistedProbesSaySinceWhen: a receiver learns from it how long it takes. The clock runs through other trouble,
// and begins anew with another source; if that is greylisted, the configured waits do too.
func TestGreylistedProbesSaySinceWhen(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	for i, c := range []struct {
		ago  time.Duration // that the probe names; 0: none
		from string
		say  told
		wait time.Duration // for the next attempt
	}{
		{0, "", told{reason: smtp.TimedOut, source: sourceA}, ladder[0]},
		{ladder[0], sourceA, greyFrom(sourceA), ladder[1]},
		{ladder[0] + ladder[1], sourceA, told{reason: smtp.ReceiverBusy, source: sourceB}, ladder[1]},
		{ladder[1], sourceB, greyFrom(sourceB), ladder[1]},
		{2 * ladder[1], sourceB, told{reason: smtp.Greylisted, silent: true}, ladder[1]}, // nobody was asked
		{3 * ladder[1], sourceB, greyFrom(sourceA), ladder[0]},
		{ladder[0], sourceA, refused, 0},
	} {
		p := b.offered().GetProbes()[0]
		if ago, from, ok := p.Greylisted(); ok != (c.from != "") || ago != c.ago || from != c.from {
			t.Fatalf("attempt %d: greylisted %v ago (%v) by %q, want %v by %q", i, ago, ok, from, c.ago, c.from)
		}
		b.answers(b.offered(), 1, c.say)
		if c.wait == 0 {
			break
		}
		effort.MustBe(t, b.wakes.Sub(b.now), c.wait, "attempt", i, "the next is after")
		b.pass(c.wait)
	}
	b.is(0, smtp.Invalid, smtp.MailboxNotFound)
}

// TestOthersGoOnWhileSomeAreGreylisted: a first pass asks every address before one is asked again.
func TestOthersGoOnWhileSomeAreGreylisted(t *testing.T) {
	b := newBench(t, testOptions(), 3*wire.AddressesMax)
	b.reach()
	first := b.offered()
	b.answers(first, 1, greylisted)
	second := b.offered() // at once
	if got := second.GetProbes()[0].GetOrdinal(); got != wire.AddressesMax {
		t.Fatalf("ordinal %d is offered behind the greylisted ones, want %d", got, wire.AddressesMax)
	}
	b.answers(second, 1, refused)
	effort.Is(t, len(b.done), len(second.GetProbes()), "final while others wait")
}

// TestOnePassedSoOthersAreAskedSoon: when a greylisted address got an answer, those that wait for the same source
// without a named time are asked again early, apart, once, and not before they waited as long as the one that passed.
func TestOnePassedSoOthersAreAskedSoon(t *testing.T) {
	o := testOptions()
	o.Waits = always(10*time.Minute, 20*time.Minute)
	b := newBench(t, o, 7)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, told{reason: smtp.Greylisted, source: sourceA, wait: 2 * time.Minute}, 0)
	b.answers(offer, 2, greyFrom(sourceA), 1, 2)
	b.answers(offer, 3, greyFrom(sourceB), 3)
	b.answers(offer, 4, told{reason: smtp.Greylisted, source: sourceA, wait: 9 * time.Minute}, 4)
	b.answers(offer, 5, told{reason: smtp.ReceiverBusy, source: sourceA}, 5)
	b.lives(time.Minute)
	b.answers(offer, 6, greyFrom(sourceA), 6) // a minute later
	b.pass(b.wakes.Sub(b.now))
	passedAfter := b.now.Sub(morning)
	b.answers(b.offered(), 1, refusedBy(sourceA), 0)

	at := map[uint32]time.Duration{}
	for b.wakes.Sub(morning) <= 10*time.Minute {
		b.pass(b.wakes.Sub(b.now))
		for _, offer := range b.offers() {
			for _, p := range offer.GetProbes() {
				effort.FatalIf(t, at[p.GetOrdinal()] != 0, "ordinal %d is asked early twice", p.GetOrdinal())
				at[p.GetOrdinal()] = b.now.Sub(morning)
			}
			b.answers(offer, 1, greyFrom(sourceA)) // not let through
		}
	}
	early := passedAfter + earlyApart
	want := map[uint32]time.Duration{1: early, 2: early, 3: 10 * time.Minute,
		4: 9*time.Minute + time.Second, 5: 10 * time.Minute, 6: time.Minute + passedAfter}
	for ordinal, when := range want {
		if got := at[ordinal]; got < when || got > when+time.Second || when >= 9*time.Minute && got != when {
			t.Errorf("ordinal %d is asked at %v, want %v", ordinal, got, when)
		}
	}
	effort.Not(t, at[1], at[2], "two come at once")
	for _, p := range b.retries.deferred { // it was greylisted a second time: the second wait
		if wait := p.due + morning.Sub(b.start) - at[p.ordinal]; p.ordinal == 1 && wait != 20*time.Minute {
			t.Errorf("the wait behind the early attempt is %v, want %v", wait, 20*time.Minute)
		}
	}
}

// TestWhatDoesNotPass: temporary refusals, other sources and what came from a stage before RCPT are no reason to hurry.
func TestWhatDoesNotPass(t *testing.T) {
	for name, say := range map[string]told{
		"put off": greyFrom(sourceA), "another source": {outcome: smtp.Invalid, reason: smtp.MailboxNotFound,
			source: sourceB}, "void": {outcome: smtp.Valid, reason: smtp.MailboxExists, source: sourceA, void: true},
	} {
		b := newBench(t, testOptions(), 2)
		b.reach()
		offer := b.offered()
		b.answers(offer, 1, told{reason: smtp.Greylisted, source: sourceA, wait: 10 * time.Second}, 0)
		b.answers(offer, 2, greyFrom(sourceA), 1)
		b.pass(b.wakes.Sub(b.now))
		b.answers(b.offered(), 1, say)
		for _, p := range b.retries.deferred {
			effort.ErrorIf(t, p.ordinal == 1 && p.due != ladder[0], "%s: the other is asked at %v", name, p.due)
		}
	}
}

// TestPassesAreNotCostly: of many that pass after about the same time, the first alone has what waits looked at.
func TestPassesAreNotCostly(t *testing.T) {
	b := newBench(t, testOptions(), 3)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, told{reason: smtp.Greylisted, source: sourceA, wait: 10 * time.Second}, 0, 1)
	retry := b.lives(b.retries.deferred[0].due)[0]
	b.answers(retry, 1, refusedBy(sourceA), 0)
	b.answers(offer, 2, greyFrom(sourceA), 2) // greylisted after the first has passed
	b.answers(retry, 2, refusedBy(sourceA), 1)
	p := b.retries.deferred[0]
	effort.ErrorIf(t, p.marks&^markAsked != 0, "what waits was looked at again: %+v", p)
}

// refusedBy is a refusal that one of our sources got.
func refusedBy(source string) told {
	return told{outcome: smtp.Invalid, reason: smtp.MailboxNotFound, source: source}
}

// TestEarlyOnce: an address that was asked early is not asked early again, however soon others pass.
func TestEarlyOnce(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, greyFrom(sourceA))
	s, from := &b.retries, b.retries.sourceOf(sourceA)
	b.retries.speedUpGreylisted(b.now, from, 30*time.Second)
	b.retries.speedUpGreylisted(b.now, from, 10*time.Second)
	effort.Is(t, s.deferred[0].due, 30*time.Second, "due after, want what the first that passed had waited")
}

// TestAControlProbeWaitsBesideTheGreylisted, and not after them, also where only one address is greylisted. It comes as
// soon as the cluster knows no better.
func TestAControlProbeWaitsBesideTheGreylisted(t *testing.T) {
	for _, c := range []struct{ known, shared bool }{{}, {known: true}, {shared: true}} {
		o := testOptions()
		if c.shared {
			o.Facts = sharing(&receivertest.Shelf{})
		}
		if c.known {
			o.Facts.Learn(testBehaviour, false, morning)
		}
		b := newBench(t, o, 1)
		b.controls.early = true
		b.reach()
		b.answers(b.offered(), 1, greylisted)
		if got := b.offers(); (c.known || c.shared) && len(got) > 0 {
			t.Fatalf("%+v: offered %v", c, locals(got[0]))
		}
		if c.known {
			continue
		}
		if c.shared {
			b.controls.recallOver(b.now)
			b.look()
		}
		control := b.offered()
		effort.FatalIf(t, !isControl(control), "%+v: offered %v, want a control probe", c, locals(control))
		b.answers(control, 1, greylisted)
		b.pass(ladder[0])
		var both []uint32
		for _, again := range b.offers() {
			for _, p := range again.GetProbes() {
				both = append(both, p.GetOrdinal())
			}
			b.answers(again, 1, refused, controlOrdinal)
			b.answers(again, 2, accepted, 0)
		}
		slices.Sort(both)
		effort.FatalIf(t, !slices.Equal(both, []uint32{0, controlOrdinal}), "%+v: asked again: %v", c, both)
		b.is(0, smtp.Valid, smtp.MailboxExists)
	}
}
