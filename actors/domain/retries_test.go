package domain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// TestDueRetriesHaveChunksOfTheirOwn: they don't wait until the receiver has asked the chunks of
// addresses that were never asked, they are marked, and one for which it has no room is offered again later.
func TestDueRetriesHaveChunksOfTheirOwn(t *testing.T) {
	const all = 20 * wire.AddressesMax
	b := newBench(t, testOptions(), all)
	b.reach()
	first := b.offered()
	b.answers(first, 1, greylisted)
	live := []uint64{}
	for credit := uint32(chunksMax); credit > 0; {
		o := b.offered()
		effort.ErrorIf(t, o.Retries(), "addresses that were never asked are offered as retries")
		live = append(live, o.GetChunk())
		credit--
		b.ack(o, credit, wire.Refusal_NONE)
	}
	busy := func(d time.Duration) {
		t.Helper()
		for end := b.now.Add(d); b.now.Before(end); {
			b.backlog.takePulse(b.now, &wire.Pulse{Task: first.GetTask(), Chunks: live})
			b.pass(min(time.Second, end.Sub(b.now)))
			if b.now.Before(end) && len(b.offers()) > 0 {
				t.Fatalf("offered %v before its time", b.offers())
			}
		}
	}
	busy(ladder[0])
	retries := b.offered()
	effort.FatalIf(t, len(retries.GetProbes()) != len(first.GetProbes()) || !retries.Retries(),
		"offered %d, as retries: %v", len(retries.GetProbes()), retries.Retries())
	b.ack(retries, 0, wire.Refusal_FULL)
	effort.ErrorIf(t, len(b.offers()) > 0, "offered again at once")
	busy(refusedPause)
	again := b.offered()
	effort.ErrorIf(t, len(again.GetProbes()) != wire.AddressesMax || !again.Retries(),
		"offered %d, as retries: %v", len(again.GetProbes()), again.Retries())
	b.answers(again, 0, refused)
	effort.Is(t, len(b.done), wire.AddressesMax, "final, want those that were asked again")
}

// TestGreylistingReceiver: 2,400 addresses at a receiver that puts each off for a minute and may be asked ten a second.
// Each is asked again when its time has come, as the receiver learns it, so that all take little longer than the first
// tries, one retry each and the wait of the last. Where it names no wait, few are asked in vain.
func TestGreylistingReceiver(t *testing.T) {
	for _, names := range []bool{true, false} {
		t.Run(fmt.Sprintf("names=%v", names), func(t *testing.T) { greylistingReceiver(t, names) })
	}
}

func greylistingReceiver(t *testing.T, names bool) {
	const all, greylist, tick = 2400, time.Minute, 100 * time.Millisecond
	o := testOptions()
	o.Waits = always(30*time.Second, time.Minute, 2*time.Minute)
	r := &fastReceiver{bench: newBench(t, o, all), probes: map[uint64][]*wire.Probe{}}
	var learned throttle.Greylist
	first := map[string]time.Time{}
	r.truth = func(p *wire.Probe) judgement {
		seen, again := first[p.GetLocal()]
		if !again {
			first[p.GetLocal()], seen = r.now, r.now
		}
		waited := r.now.Sub(seen)
		passes := waited >= greylist
		switch _, _, ok := p.Greylisted(); { // for so long, as the receiver finds
		case ok && passes:
			learned.Passed(waited, false)
		case ok:
			learned.Again(waited)
		}
		switch {
		case !passes && !names:
			return judgement{reason: smtp.Greylisted, source: sourceA}
		case !passes:
			return judgement{reason: smtp.Greylisted, wait: learned.Wait(), source: sourceA}
		case p.GetOrdinal() == controlOrdinal || p.GetOrdinal()%5 == 0:
			return judgement{outcome: smtp.Invalid, reason: smtp.MailboxNotFound, source: sourceA}
		}
		return judgement{outcome: smtp.Valid, reason: smtp.MailboxExists, source: sourceA}
	}
	r.reach()
	r.take()
	for r.left > 0 && r.now.Sub(morning) < time.Hour {
		r.tick(1, tick)
	}
	ideal := 2*all*tick + greylist
	if took := r.now.Sub(morning); r.left > 0 || took > ideal*115/100 || r.asked > all*22/10 {
		t.Errorf("%d are left after %v and %d RCPTs, want none after 1.15 of %v and 2.2 each", r.left, took, r.asked,
			ideal)
	} else {
		t.Logf("%d addresses in %v by %d RCPTs, where %v is ideal", all, took, r.asked, ideal)
	}
	for ordinal, f := range r.done {
		effort.ErrorIf(t, f.Outcome != smtp.Valid && f.Outcome != smtp.Invalid, "%d is %v", ordinal, f.Outcome)
	}
}

// TestALaterOwnerAsksInAnotherOrder: addresses deferred before are first in the file, and would fail in a row.
func TestALaterOwnerAsksInAnotherOrder(t *testing.T) {
	const all, deferred = 2000, 400 // the first ones
	b := newBench(t, testOptions(), all)
	b.work.Epoch++
	b.planner = newPlanner(b.now, b.options, b.work, testSeed)
	b.reach()
	asked, before := b.offered().GetProbes(), 0
	for _, p := range asked {
		if p.GetOrdinal() < deferred {
			before++
		}
	}
	effort.ErrorIf(t, len(asked) < 100 || before > len(asked)/2,
		"%d of the first %d were deferred before", before, len(asked))
}

// pulse sends a pulse for the only chunk, with the time in which the receiver has answered no address.
func (b *bench) pulse(o *wire.Offer, barren time.Duration, cause wire.Cause) {
	b.t.Helper()
	b.backlog.takePulse(b.now, &wire.Pulse{Task: o.GetTask(), Chunks: []uint64{o.GetChunk()}, Cause: cause,
		BarrenMs: barren.Milliseconds(), BarrenReason: uint32(smtp.Protocol)})
	b.pass(time.Second)
}

// TestReceiverThatAnswersNobody: a file waits no longer than GiveUpAfter for it: what was put off, what is
// with the receiver, what nobody could ask, and what was accepted before and waits for a control probe.
func TestReceiverThatAnswersNobody(t *testing.T) {
	const all = 3 * finalsMax
	b := newBench(t, testOptions(), all)
	b.reach()
	first := b.offered()
	b.answers(first, 1, greylisted, 0)
	b.answers(first, 2, accepted, 1)
	for asked := time.Second; asked < b.options.GiveUpAfter; asked += time.Second {
		b.pulse(first, asked, wire.Cause_FREE)
		effort.FatalIf(t, len(b.done) > 0, "%d are final after %v", len(b.done), asked)
	}
	b.pulse(first, b.options.GiveUpAfter, wire.Cause_FREE)
	b.pulse(first, b.options.GiveUpAfter, wire.Cause_FREE)
	for _, s := range b.steps {
		if to, ok := s.(tell); ok {
			_, given := to.msg.(*wire.Cancel)
			effort.ErrorIf(t, given && !to.msg.(*wire.Cancel).GetGiveBack(),
				"what is out is dropped, and may be on the wire")
		}
	}
	b.barren = b.options.GiveUpAfter
	for _, o := range slices.Clone(b.backlog.chunks) { // what had not begun comes back
		effort.Not(t, len(b.done), all, "given up while it may be on the wire")
		b.answers(o.offer, 99, judgement{reason: smtp.ReceiverRateLimited, silent: true})
	}
	for b.left > 0 && !b.wakes.IsZero() && b.wakes.Before(b.now.Add(time.Second)) {
		b.now = b.wakes
		b.look()
	}
	effort.MustBe(t, len(b.done), all, "are final")
	b.is(0, smtp.Unknown, smtp.Greylisted)
	b.is(1, smtp.Unknown, smtp.Protocol)
	b.is(2, smtp.Unknown, smtp.Protocol)
	b.is(all-1, smtp.Unknown, smtp.Protocol)
}

// TestReceiverThatAnswersAgain: what it gave nobody counts from the first offer of the file only, and
// an answer ends it.
func TestReceiverThatAnswersAgain(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	first := b.offered()
	b.pulse(first, 24*time.Hour, wire.Cause_UNREACHED)
	effort.FatalIf(t, len(b.done) > 0, "given up at once for what others waited for")
	for range int(b.options.GiveUpAfter/time.Second) - 2 {
		b.pulse(first, 24*time.Hour, wire.Cause_UNREACHED)
	}
	for range 100 {
		b.pulse(first, 0, wire.Cause_FREE)
	}
	effort.FatalIf(t, len(b.done) > 0, "given up though others are answered")
	b.answers(first, 1, refused)
	b.is(1, smtp.Invalid, smtp.MailboxNotFound)
}

// TestOurOwnLimitsGiveNobodyUp: neither our limits nor a pause named by the receiver end addresses that weren't asked.
func TestOurOwnLimitsGiveNobodyUp(t *testing.T) {
	for _, cause := range []wire.Cause{wire.Cause_PAUSED, wire.Cause_BUDGET, wire.Cause_NO_SOURCE, wire.Cause_NO_SHARE} {
		b := newBench(t, testOptions(), 2)
		b.reach()
		first := b.offered()
		for range int(3 * b.options.GiveUpAfter / time.Second) {
			b.pulse(first, 0, cause)
		}
		effort.ErrorIf(t, len(b.done) > 0, "%v: %d are given up", cause, len(b.done))
	}
	o := testOptions()
	o.GiveUpAfter = time.Minute
	b := newBench(t, o, 10)
	b.reach()
	rest := judgement{reason: smtp.Greylisted, wait: time.Hour, stage: smtp.StageGreeting, code: 450}
	first := b.offered()
	b.answers(first, 1, rest, 0)
	rest.others = true
	b.answers(first, 2, rest, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	effort.FatalIf(t, len(b.done) > 0, "%d are given up by a rest of an hour, unasked", len(b.done))
	b.pass(2 * time.Hour)
	b.answers(b.offered(), 1, refused)
	effort.Is(t, len(b.done), 10, "final")
}

// TestASteadyDenialForNowTellsApart draws receivers that refuse missing mailboxes with a temporary code. If a control
// probe stays refused for a minute, existing mailboxes are valid; missing ones are unknown with a reason that explains
// it. Trouble and greylisting that last as long prove nothing.
func TestASteadyDenialForNowTellsApart(t *testing.T) {
	for seed := range uint64(effort.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 9))
		reason := []smtp.Reason{smtp.NotAccepted, smtp.NotAccepted, smtp.ReceiverBusy, smtp.Greylisted}[r.IntN(4)]
		code := 450 + r.IntN(2)
		verified := r.IntN(3) == 0 // the first answer is that it is being found out
		o := testOptions()
		if r.IntN(2) == 0 {
			o.Waits = always(10*time.Second, 20*time.Second, time.Minute)
		}
		w := &fastReceiver{bench: newBench(t, o, 5+r.IntN(40)), probes: map[uint64][]*wire.Probe{}}
		asked := map[string]int{}
		exists := func(ordinal uint32) bool { return ordinal != controlOrdinal && ordinal%3 != 0 }
		w.truth = func(p *wire.Probe) judgement {
			n := asked[p.GetLocal()]
			asked[p.GetLocal()]++
			switch {
			case verified && n == 0:
				return judgement{reason: smtp.ReceiverBusy, code: code}
			case exists(p.GetOrdinal()):
				return accepted
			}
			return judgement{reason: reason, code: code}
		}
		w.finish(4 * time.Hour)
		for ordinal, f := range w.done {
			want, why := smtp.Unknown, reason
			if exists(ordinal) && reason == smtp.NotAccepted {
				want, why = smtp.Valid, smtp.MailboxExists
			}
			effort.ErrorIf(t, f.Outcome != want || f.Reason != why,
				"seed %d, %v: %d is %v %v, want %v %v", seed, reason, ordinal, f.Outcome, f.Reason, want, why)
		}
		effort.ErrorIf(t, w.left > 0, "seed %d, %v: %d are left", seed, reason, w.left)
	}
}

// TestAControlProbeUnderAnotherName draws receivers that refuse some names, existing or not, by policy or as full or
// disabled for now. A control probe with another name is refused permanently, and existing mailboxes
// are valid.
func TestAControlProbeUnderAnotherName(t *testing.T) {
	for seed := range uint64(effort.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 10))
		odd := []judgement{{reason: smtp.Policy, code: 550}, {reason: smtp.MailboxDisabled, code: 450},
			{reason: smtp.MailboxFull, code: 452}}[r.IntN(3)]
		w := &fastReceiver{bench: newBench(t, testOptions(), 5+r.IntN(40)), probes: map[uint64][]*wire.Probe{}}
		names := map[string]bool{} // of control probes, whether they are odd
		w.truth = func(p *wire.Probe) judgement {
			switch isOdd, asked := names[p.GetLocal()]; {
			case p.GetOrdinal() != controlOrdinal && p.GetOrdinal()%3 == 0:
				return odd
			case p.GetOrdinal() != controlOrdinal:
				return accepted
			case !asked:
				isOdd = len(names) == 0 || r.IntN(5) == 0
				names[p.GetLocal()] = isOdd
				if !isOdd {
					return refused
				}
				return odd
			case isOdd:
				return odd
			}
			return refused
		}
		w.finish(4 * time.Hour)
		for ordinal, f := range w.done {
			effort.ErrorIf(t, ordinal%3 != 0 && f.Outcome != smtp.Valid,
				"seed %d, %v: %d is %v %v", seed, odd.reason, ordinal, f.Outcome, f.Reason)
		}
		effort.ErrorIf(t, w.left > 0, "seed %d: %d are left", seed, w.left)
	}
}

// TestAGreylistInWordsAboutMailboxes draws receivers that greylist each address separately, with a reply that may
// speak of mailboxes. A control probe is answered after its wait too, so existing mailboxes are valid.
func TestAGreylistInWordsAboutMailboxes(t *testing.T) {
	for seed := range uint64(effort.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 11))
		reason := []smtp.Reason{smtp.Policy, smtp.MailboxDisabled, smtp.MailboxFull, smtp.Greylisted}[r.IntN(4)]
		wait := 10*time.Second + time.Duration(r.IntN(900))*time.Second
		w := &fastReceiver{bench: newBench(t, testOptions(), 5+r.IntN(40)), probes: map[uint64][]*wire.Probe{}}
		first := map[string]time.Time{}
		w.truth = func(p *wire.Probe) judgement {
			if _, known := first[p.GetLocal()]; !known {
				first[p.GetLocal()] = w.now
			}
			switch {
			case w.now.Sub(first[p.GetLocal()]) < wait:
				return judgement{reason: reason, code: 450, source: sourceA}
			case p.GetOrdinal() == controlOrdinal:
				return refused
			}
			return accepted
		}
		w.finish(4 * time.Hour)
		for ordinal, f := range w.done {
			effort.ErrorIf(t, f.Outcome != smtp.Valid,
				"seed %d, %v: %d is %v %v", seed, reason, ordinal, f.Outcome, f.Reason)
		}
		effort.ErrorIf(t, w.left > 0, "seed %d, %v: %d are left", seed, reason, w.left)
	}
}

// greyFrom is a greylisting of one of our sources.
func greyFrom(source string) judgement { return judgement{reason: smtp.Greylisted, source: source} }

const (
	sourceA = "192.0.2.101"
	sourceB = "2001:db8::102"
)

// TestGreylistedProbesSaySinceWhen: a probe says how long its address has been greylisted. That time goes on during
// other trouble. With another source it begins anew, and so do the configured waits if that source is greylisted.
func TestGreylistedProbesSaySinceWhen(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	for i, c := range []struct {
		ago  time.Duration // that the probe names; 0: none
		from string
		say  judgement
		wait time.Duration // for the next attempt
	}{
		{0, "", judgement{reason: smtp.TimedOut, source: sourceA}, ladder[0]},
		{ladder[0], sourceA, greyFrom(sourceA), ladder[1]},
		{ladder[0] + ladder[1], sourceA, judgement{reason: smtp.ReceiverBusy, source: sourceB}, ladder[1]},
		{ladder[1], sourceB, greyFrom(sourceB), ladder[1]},
		{2 * ladder[1], sourceB, judgement{reason: smtp.Greylisted, silent: true}, ladder[1]}, // nobody was asked
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

// TestOthersGoOnWhileSomeAreGreylisted: every address is asked once before a greylisted one is asked again.
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
	b.answers(offer, 1, judgement{reason: smtp.Greylisted, source: sourceA, wait: 2 * time.Minute}, 0)
	b.answers(offer, 2, greyFrom(sourceA), 1, 2)
	b.answers(offer, 3, greyFrom(sourceB), 3)
	b.answers(offer, 4, judgement{reason: smtp.Greylisted, source: sourceA, wait: 9 * time.Minute}, 4)
	b.answers(offer, 5, judgement{reason: smtp.ReceiverBusy, source: sourceA}, 5)
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

// TestWhatDoesNotPass: temporary refusals, other sources and replies to a stage before RCPT are no reason to hurry.
func TestWhatDoesNotPass(t *testing.T) {
	for name, say := range map[string]judgement{
		"put off": greyFrom(sourceA), "another source": {outcome: smtp.Invalid, reason: smtp.MailboxNotFound,
			source: sourceB}, "void": {outcome: smtp.Valid, reason: smtp.MailboxExists, source: sourceA, void: true},
	} {
		b := newBench(t, testOptions(), 2)
		b.reach()
		offer := b.offered()
		b.answers(offer, 1, judgement{reason: smtp.Greylisted, source: sourceA, wait: 10 * time.Second}, 0)
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
	b.answers(offer, 1, judgement{reason: smtp.Greylisted, source: sourceA, wait: 10 * time.Second}, 0, 1)
	retry := b.lives(b.retries.deferred[0].due)[0]
	b.answers(retry, 1, refusedBy(sourceA), 0)
	b.answers(offer, 2, greyFrom(sourceA), 2) // greylisted after the first has passed
	b.answers(retry, 2, refusedBy(sourceA), 1)
	p := b.retries.deferred[0]
	effort.ErrorIf(t, p.marks&^markAsked != 0, "what waits was looked at again: %+v", p)
}

// refusedBy is a refusal that one of our sources got.
func refusedBy(source string) judgement {
	return judgement{outcome: smtp.Invalid, reason: smtp.MailboxNotFound, source: source}
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

// TestAControlProbeWaitsBesideTheGreylisted: it waits beside them, not after them, even for one address. It comes as
// soon as the cluster knows no better. Where a guard is suspected, what is known doesn't suffice.
func TestAControlProbeWaitsBesideTheGreylisted(t *testing.T) {
	for _, c := range []struct{ known, shared, suspect bool }{{}, {known: true}, {shared: true}, {suspect: true}} {
		o := testOptions()
		if c.shared {
			o.Facts = sharing(&receivertest.Shelf{})
		}
		if c.known || c.suspect {
			o.Facts.Learn(testBehaviour, false, morning)
		}
		for range suspectAfter {
			if c.suspect {
				o.Facts.Refused(testBehaviour, morning)
			}
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
		if c.suspect { // what was refused before the acceptance doesn't prove it
			again := b.offered()
			effort.Is(t, again.GetProbes()[0].GetLocal(), control.GetProbes()[0].GetLocal(), "the name that waited")
			b.answers(again, 1, refused)
			both = append(both, controlOrdinal)
		}
		slices.Sort(both)
		effort.FatalIf(t, !slices.Equal(both, []uint32{0, controlOrdinal}), "%+v: asked again: %v", c, both)
		b.is(0, smtp.Valid, smtp.MailboxExists)
	}
}
