package domain

import (
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
)

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
		w.reach()
		w.take()
		for w.left > 0 && w.now.Before(morning.Add(4*time.Hour)) {
			w.tick(5, time.Second)
		}
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
		w.reach()
		w.take()
		for w.left > 0 && w.now.Before(morning.Add(4*time.Hour)) {
			w.tick(5, time.Second)
		}
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
		w.reach()
		w.take()
		for w.left > 0 && w.now.Before(morning.Add(4*time.Hour)) {
			w.tick(5, time.Second)
		}
		for ordinal, f := range w.done {
			effort.ErrorIf(t, f.Outcome != smtp.Valid,
				"seed %d, %v: %d is %v %v", seed, reason, ordinal, f.Outcome, f.Reason)
		}
		effort.ErrorIf(t, w.left > 0, "seed %d, %v: %d are left", seed, reason, w.left)
	}
}
