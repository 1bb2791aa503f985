package domain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
	r.truth = func(p *wire.Probe) told {
		seen, again := first[p.GetLocal()]
		if !again {
			first[p.GetLocal()], seen = r.now, r.now
		}
		waited := r.now.Sub(seen)
		passes := waited >= greylist
		switch _, _, ok := p.Greylisted(); { // for so long, as the receiver finds
		case ok && passes:
			learned.Passed(waited)
		case ok:
			learned.Again(waited)
		}
		switch {
		case !passes && !names:
			return told{reason: smtp.Greylisted, source: sourceA}
		case !passes:
			return told{reason: smtp.Greylisted, wait: learned.Wait(), source: sourceA}
		case p.GetOrdinal() == controlOrdinal || p.GetOrdinal()%5 == 0:
			return told{outcome: smtp.Invalid, reason: smtp.MailboxNotFound, source: sourceA}
		}
		return told{outcome: smtp.Valid, reason: smtp.MailboxExists, source: sourceA}
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

// TestALaterOwnerAsksInAnotherOrder: what was deferred before stands first in the file, and would fail in a row.
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

// pulse says that the only chunk is alive, and for how long the receiver has answered nobody.
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
		b.answers(o.offer, 99, told{reason: smtp.ReceiverRateLimited, silent: true})
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

// TestOurOwnLimitsGiveNobodyUp: nor a rest that the receiver names, of addresses that nobody asked for.
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
	rest := told{reason: smtp.Greylisted, wait: time.Hour, stage: smtp.StageGreeting, code: 450}
	first := b.offered()
	b.answers(first, 1, rest, 0)
	rest.others = true
	b.answers(first, 2, rest, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	effort.FatalIf(t, len(b.done) > 0, "%d are given up by a rest of an hour, unasked", len(b.done))
	b.pass(2 * time.Hour)
	b.answers(b.offered(), 1, refused)
	effort.Is(t, len(b.done), 10, "final")
}

// TestASteadyDenialForNowTellsApart draws receivers that refuse what doesn't exist for now only: existing mailboxes
// are valid after a control probe that stays refused for a minute, and missing ones unknown, for a reason that says
// it. Trouble and greylisting that last as long show nothing.
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
		w.truth = func(p *wire.Probe) told {
			n := asked[p.GetLocal()]
			asked[p.GetLocal()]++
			switch {
			case verified && n == 0:
				return told{reason: smtp.ReceiverBusy, code: code}
			case exists(p.GetOrdinal()):
				return accepted
			}
			return told{reason: reason, code: code}
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

// TestAControlProbeUnderAnotherName draws receivers that say of some names, existing or not, that a policy refuses
// them, or that they are full or disabled for now. Another control probe is refused for good, and existing mailboxes
// are valid.
func TestAControlProbeUnderAnotherName(t *testing.T) {
	for seed := range uint64(effort.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 10))
		odd := []told{{reason: smtp.Policy, code: 550}, {reason: smtp.MailboxDisabled, code: 450},
			{reason: smtp.MailboxFull, code: 452}}[r.IntN(3)]
		w := &fastReceiver{bench: newBench(t, testOptions(), 5+r.IntN(40)), probes: map[uint64][]*wire.Probe{}}
		names := map[string]bool{} // of control probes, whether they are odd
		w.truth = func(p *wire.Probe) told {
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

// TestAGreylistInWordsAboutMailboxes draws receivers that greylist each address by itself, in any words: a control
// probe passes after its wait too, so existing mailboxes are valid.
func TestAGreylistInWordsAboutMailboxes(t *testing.T) {
	for seed := range uint64(effort.Cases(20)) {
		r := rand.New(rand.NewPCG(seed, 11))
		reason := []smtp.Reason{smtp.Policy, smtp.MailboxDisabled, smtp.MailboxFull, smtp.Greylisted}[r.IntN(4)]
		wait := 10*time.Second + time.Duration(r.IntN(900))*time.Second
		w := &fastReceiver{bench: newBench(t, testOptions(), 5+r.IntN(40)), probes: map[uint64][]*wire.Probe{}}
		first := map[string]time.Time{}
		w.truth = func(p *wire.Probe) told {
			if _, known := first[p.GetLocal()]; !known {
				first[p.GetLocal()] = w.now
			}
			switch {
			case w.now.Sub(first[p.GetLocal()]) < wait:
				return told{reason: reason, code: 450, source: sourceA}
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
