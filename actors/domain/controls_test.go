package domain

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// isControl reports whether an offer is one control probe and nothing else.
func isControl(o *wire.Offer) bool {
	return len(o.GetProbes()) == 1 && o.GetProbes()[0].GetOrdinal() == controlOrdinal
}

// lives lets time pass. Every second the receiver confirms the chunks that it has. It returns the offers made
// meanwhile.
func (b *bench) lives(d time.Duration) (offers []*wire.Offer) {
	b.t.Helper()
	for d > 0 {
		step := min(d, time.Second)
		d -= step
		b.now = b.now.Add(step)
		pulse := &wire.Pulse{Task: b.backlog.task, Credit: 1}
		for _, o := range b.backlog.chunks {
			pulse.Chunks = append(pulse.Chunks, o.offer.Chunk)
		}
		if len(pulse.Chunks) > 0 {
			b.backlog.takePulse(b.now, pulse)
		}
		b.look()
		offers = append(offers, b.offers()...)
	}
	return offers
}

// nextControl waits for the next control probe, at most within, and answers it.
func (b *bench) nextControl(within time.Duration, say judgement) *wire.Offer {
	b.t.Helper()
	offers := b.offers()
	for at := b.now; len(offers) == 0 && b.now.Sub(at) < within; {
		offers = b.lives(time.Second)
	}
	effort.FatalIf(b.t, len(offers) != 1 || !isControl(offers[0]),
		"%d offers within %v, want a control probe", len(offers), within)
	b.answers(offers[0], 1, say)
	return offers[0]
}

// TestControlProbe: what the answer to a control probe shows.
func TestControlProbe(t *testing.T) {
	catchAll := judgement{outcome: smtp.CatchAll, reason: smtp.NoRcptAnswer}
	for _, c := range []struct {
		name    string
		control judgement
		times   int // how often it is asked
		outcome smtp.Outcome
		reason  smtp.Reason
		known   bool
	}{
		{"refused", refused, 1, smtp.Valid, smtp.MailboxExists, true},
		{"refused as disabled", judgement{outcome: smtp.Invalid, reason: smtp.MailboxDisabled}, 1, smtp.Valid,
			smtp.MailboxExists, true},
		{"refused as full", judgement{outcome: smtp.Invalid, reason: smtp.MailboxFull}, 1, smtp.Valid,
			smtp.MailboxExists, true},
		{"accepted", accepted, 3, smtp.CatchAll, smtp.AcceptAll, true},
		{"252", catchAll, 3, smtp.CatchAll, smtp.AcceptAll, true},
		{"refused, though it is called there", judgement{outcome: smtp.CatchAll, reason: smtp.MailboxRestricted,
			code: 550}, 3, smtp.Unknown, smtp.MailboxRestricted, false},
		{"too much mail for nobody", judgement{outcome: smtp.Valid, reason: smtp.MailboxBusy, code: 450}, 3,
			smtp.Unknown, smtp.MailboxBusy, false},
		{"a policy", judgement{outcome: smtp.Unknown, reason: smtp.Policy}, 3, smtp.Unknown, smtp.Policy, false},
		{"no address", judgement{outcome: smtp.Invalid, reason: smtp.Syntax}, 3, smtp.Unknown, smtp.Syntax, false},
		{"a fault", judgement{outcome: smtp.Error, reason: smtp.Internal}, 3, smtp.Unknown, smtp.Internal, false},
		{"not served", judgement{reason: smtp.DomainNotHosted, code: 554}, 3, smtp.Unknown, smtp.DomainNotHosted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testOptions(), 3)
			b.reach()
			offer := b.offered()
			b.answers(offer, 1, refused, 0)
			effort.MustBe(t, len(b.offers()), 0, "a refusal asks for a control probe")
			b.answers(offer, 2, accepted, 1)
			b.answers2(offer, 3, accepted, 2)
			for i := range c.times {
				effort.MustBe(t, len(b.done), 1, "are final before control probe", i)
				b.nextControl(20*time.Second, c.control)
			}
			b.is(0, smtp.Invalid, smtp.MailboxNotFound)
			for _, ordinal := range []uint32{1, 2} {
				b.is(ordinal, c.outcome, c.reason)
				h := b.done[ordinal].Case.Behaviour
				effort.Is(t, len(h.Controls), c.times, "control probes in the case")
				if _, known := h.CatchAll(); known != c.known {
					t.Errorf("the case says that the habit is known: %v, want %v", known, c.known)
				}
			}
			h := b.done[0].Case.Behaviour
			effort.ErrorIf(t, h.Accepted+h.Refused+len(h.Controls) > 0, "a refusal carries the habit %+v", h)
			left := b.lives(time.Minute)
			effort.ErrorIf(t, b.left != 0 || len(left) > 0, "%d are left, %d offers", b.left, len(left))
		})
	}
}

// answers2 answers while an offer is in the last plan, which is kept for who looks at it next.
func (b *bench) answers2(o *wire.Offer, batch uint64, say judgement, which ...uint32) {
	b.t.Helper()
	steps := b.steps
	b.answers(o, batch, say, which...)
	b.steps = append(steps, b.steps...)
}

// TestControlProbesThatTellNothing: temporary refusals, connections that break, answers from poisoned sessions and no
// answer at all neither show that a domain accepts everything nor that it does not, however often they come.
func TestControlProbesThatTellNothing(t *testing.T) {
	for name, say := range map[string]judgement{
		"greylisted": greylisted, "void": {outcome: smtp.Valid, reason: smtp.MailboxExists, void: true},
		"void refusal":                {outcome: smtp.Invalid, reason: smtp.MailboxNotFound, void: true},
		"dropped":                     {reason: smtp.ConnectionFailed},
		"nobody asked":                {reason: smtp.ReceiverRateLimited, silent: true},
		"an outcome without evidence": {outcome: smtp.Invalid, reason: smtp.MailboxNotFound, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), 1)
			b.reach()
			b.answers(b.offered(), 1, accepted)
			first := b.offered().GetProbes()[0].GetLocal()
			for asked := 0; len(b.done) == 0; asked++ {
				if again := b.offered().GetProbes()[0].GetLocal(); again != first || asked > 20 {
					t.Fatalf("%q is asked for the %dth time after %q", again, asked, first)
				}
				b.answers(b.offered(), 1, say)
				if len(b.done) == 0 {
					b.pass(b.wakes.Sub(b.now))
				}
			}
			b.is(0, smtp.Unknown, say.reason)
			h := b.options.Facts.Behaviour(testBehaviour, b.now)
			effort.ErrorIf(t, h.Accepted+h.Refused > 0, "learned %+v", h)
		})
	}
}

// TestControlProbesAreSpread: each asks for another mailbox, after growing pauses,
// and one refusal among acceptances is enough.
func TestControlProbesAreSpread(t *testing.T) {
	o := testOptions()
	o.ControlPauses = []time.Duration{3 * time.Second, 20 * time.Second}
	b := newBench(t, o, 1)
	b.reach()
	b.answers(b.offered(), 1, accepted)
	var asked []time.Duration
	var names []string
	for i, say := range []judgement{accepted, accepted, refused} {
		names = append(names, b.nextControl(time.Minute, say).GetProbes()[0].GetLocal())
		asked = append(asked, b.now.Sub(morning))
		if i < 2 && (len(b.done) > 0 || !b.wakes.Equal(b.now.Add(o.ControlPauses[i])) ||
			!b.quietUntil(b.now).Equal(b.wakes)) {
			t.Fatalf("after control probe %d: %d final, woken at %v, quiet until %v", i, len(b.done),
				b.wakes.Sub(morning), b.quietUntil(b.now).Sub(morning))
		}
	}
	want := []time.Duration{0, 3 * time.Second, 23 * time.Second}
	effort.ErrorIf(t, !slices.Equal(asked, want), "asked at %v, want %v", asked, want)
	slices.Sort(names)
	effort.ErrorIf(t, len(slices.Compact(names)) != 3, "asked for %v", names)
	b.is(0, smtp.Valid, smtp.MailboxExists)
	h := b.done[0].Case.Behaviour
	effort.ErrorIf(t, h.Accepted != 2 || h.Refused != 1 || !h.First.Equal(morning) || !h.Last.Equal(b.now) ||
		len(h.Controls) != 3 || h.Controls[2].Reason != smtp.MailboxNotFound, "the case has the habit %+v", h)
}

// TestControlProbesGoOnFromOthers: what others found out counts, and ends what is planned here.
func TestControlProbesGoOnFromOthers(t *testing.T) {
	o := testOptions()
	o.Facts.Learn(testBehaviour, true, morning.Add(-time.Minute))
	b := newBench(t, o, 1)
	b.reach()
	b.answers(b.offered(), 1, accepted)
	b.nextControl(0, accepted)
	o.Facts.Learn(testBehaviour, true, b.now)
	b.lives(time.Second)
	b.is(0, smtp.CatchAll, smtp.AcceptAll)
	offers := b.lives(time.Minute)
	effort.ErrorIf(t, len(offers) > 0, "%d offers when nothing is left", len(offers))
}

// TestControlProbeThatNobodyNeedsAnyMore: it waited for its time, and others found out meanwhile. Its name is kept.
func TestControlProbeThatNobodyNeedsAnyMore(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, accepted, 0)
	control := b.offered()
	b.answers(control, 1, greylisted)
	b.options.Facts.Learn(testBehaviour, false, b.now)
	offers := b.lives(2 * ladder[0])
	effort.ErrorIf(t, len(offers) > 0 || b.controls.asking, "offered %v, asking: %v", offers, b.controls.asking)
	b.controls.beginControl()
	effort.Is(t, b.controls.local, control.GetProbes()[0].GetLocal(), "the next name; a greylist knows the first one")
	b.controls.endControl()
	b.is(0, smtp.Valid, smtp.MailboxExists)
	b.answers(offer, 2, refused, 1)
	effort.Is(t, b.left, 0, "left")
}

// TestReceiversThatDoNotAnswerAtRcpt: the rules know them, and no control probe is asked.
func TestReceiversThatDoNotAnswerAtRcpt(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	b.answers(b.offered(), 1, judgement{outcome: smtp.CatchAll, reason: smtp.NoRcptAnswer, code: 250})
	b.is(0, smtp.CatchAll, smtp.NoRcptAnswer)
	effort.ErrorIf(t, b.left != 0 || len(b.offers()) > 0, "%d are left, %d offers", b.left, len(b.offers()))
}

// TestDoubtIsRemembered: when control probes told nothing, later acceptances are not examined again at once, and the
// cluster isn't asked again.
func TestDoubtIsRemembered(t *testing.T) {
	policy := judgement{outcome: smtp.Unknown, reason: smtp.Policy}
	o := testOptions()
	o.Facts = sharing(&receivertest.Shelf{})
	b := newBench(t, o, 3)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, accepted, 0)
	b.controls.recallOver(b.now)
	b.look()
	for range unclearMax {
		b.nextControl(20*time.Second, policy)
	}
	b.is(0, smtp.Unknown, smtp.Policy)
	offers := b.lives(unclearFor - time.Second)
	effort.FatalIf(t, len(offers) > 0, "%d offers", len(offers))
	b.answers(offer, 2, accepted, 1)
	b.is(1, smtp.Unknown, smtp.Policy)
	b.lives(time.Second)
	b.answers(offer, 3, accepted, 2)
	b.wants()
	b.nextControl(0, refused)
	b.is(2, smtp.Valid, smtp.MailboxExists)
}

// TestAnUnreadableRefusalCostsOneControl draws refusals of control probes: one in a charset that nobody can tell stays
// so, and isn't asked for again; words that only no rule knows are.
func TestAnUnreadableRefusalCostsOneControl(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 28))
		unreadable := seed%2 == 0
		say := judgement{reason: smtp.Policy, code: 550 + r.IntN(5), text: "^: what it says", rule: "5xx"}
		if unreadable {
			say.text = []string{"^: ~~~~~~~ ~~~~ ~~", "~~ ~~~~", "sorry ~~~~~~ ~~~~~~~~", "~~~~ (#5)", "еунб бнпр",
				"рџ ђѕђё"}[r.IntN(6)]
		}
		w := &fastReceiver{bench: newBench(t, testOptions(), 3+r.IntN(30)), probes: map[uint64][]*wire.Probe{}}
		controls := 0
		w.truth = func(p *wire.Probe) judgement {
			if p.GetOrdinal() != controlOrdinal {
				return accepted
			}
			controls++
			return say
		}
		w.finish(2 * time.Hour)
		effort.ErrorIf(t, unreadable != (controls == 1) || w.left > 0 && unreadable,
			"seed %d, %q: %d control probes, %d are left", seed, say.text, controls, w.left)
		for ordinal, f := range w.done {
			effort.ErrorIf(t, f.Outcome != smtp.Unknown || f.Reason != smtp.Policy,
				"seed %d: %d is %v %v", seed, ordinal, f.Outcome, f.Reason)
		}
	}
}

// TestCasesShowTheNewestControlProbes: and no more than evidence.ControlsMax.
func TestCasesShowTheNewestControlProbes(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, accepted)
	for range evidence.ControlsMax {
		b.answers(b.offered(), 1, greylisted)
		b.pass(b.wakes.Sub(b.now))
	}
	b.answers(b.offered(), 1, refused)
	h := b.done[0].Case.Behaviour
	if n := len(h.Controls); n != evidence.ControlsMax || h.Controls[n-1].Reason != smtp.MailboxNotFound {
		t.Errorf("%d control probes: %+v", n, h.Controls)
	}
}

// behindRefusals is a bench where n addresses were refused, and the next one was accepted.
func behindRefusals(t *testing.T, o Options, refusals uint32) (*bench, *wire.Offer) {
	t.Helper()
	b := newBench(t, o, 30)
	b.backlog.size = 30
	b.reach()
	offer := b.offered()
	for i := range refusals {
		b.now = b.now.Add(100 * time.Millisecond)
		b.answers(offer, uint64(i+1), refused, i)
	}
	b.answers(offer, 1000, accepted, refusals)
	return b, offer
}

// TestSilentGuard: behind many refusals an acceptance is believed only when a mailbox
// that nobody has is still refused. When it is accepted, a guard is at work: all
// acceptances since are void, nothing is asked for an hour, and then all goes on.
func TestSilentGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		before bool
		hour   throttle.Hour
	}{
		"told apart before": {before: true}, "nothing known": {},
		"a short hour": {true, throttle.Hour(6 * time.Minute)}, "and nothing known": {hour: throttle.Hour(6 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			var lines strings.Builder
			o.GiveUpAfter, o.Log = 6*time.Hour, slog.New(slog.NewTextHandler(&lines, nil))
			o.Facts.Hour = tc.hour
			guardFor, canaryAfter := tc.hour.Of(guardFor), tc.hour.Of(canaryAfter)
			if tc.before {
				o.Facts.Learn(testBehaviour, false, morning)
			}
			b, offer := behindRefusals(t, o, suspectAfter)
			b.answers2(offer, 1001, accepted, suspectAfter+1)
			canary := b.nextControl(2*canaryAfter, accepted)
			effort.MustBe(t, len(b.done), suspectAfter, "are final")
			if until := b.now.Add(guardFor); !b.quietUntil(b.now).Equal(until) || !b.wakes.Equal(until) {
				t.Fatalf("quiet until %v, woken at %v", b.quietUntil(b.now), b.wakes)
			}
			got := lines.String()
			effort.ErrorIf(t, strings.Count(got, "\n") != 1 || !strings.Contains(got, "domain=example.test") ||
				strings.Contains(got, "@"), "logged %q", got)
			b.answers(offer, 1002, accepted, 20) // too late: it was taken back
			notes := b.controls.notes
			effort.ErrorIf(t, !notes[len(notes)-1].Void, "the control probes are %+v, want the last one void", notes)
			h := o.Facts.Behaviour(testBehaviour, b.now)
			effort.FatalIf(t, h.Accepted > 0 || len(b.done) != suspectAfter, "learned %+v, %d final", h, len(b.done))
			b.pass(guardFor - time.Millisecond)
			effort.FatalIf(t, len(b.offers()) > 0, "asked before the guard had time to forget us")
			b.pass(time.Millisecond)
			b.answers(b.offered(), 1, refused) // what had no answer
			b.pass(time.Minute)
			b.answers(b.offered(), 1, refused) // what was accepted in silence
			effort.MustBe(t, b.left, 0, "are left")
			c := b.done[suspectAfter].Case
			effort.ErrorIf(t, len(c.Attempts) != 2 || !c.Attempts[0].Void || c.Attempts[1].Void,
				"the case of an address that was accepted in silence: %+v", c)
			b.is(suspectAfter, smtp.Invalid, smtp.MailboxNotFound)
			effort.Not(t, canary.GetProbes()[0].GetLocal(), b.controls.locals.next(),
				"the next control probe asks for the same mailbox")
		})
	}
}

// TestGuardSeenByAnother: two verifications ask one domain on a node, and one detects a harvest guard. The other takes
// its chunks back, and the unproven acceptances that it has are void.
func TestGuardSeenByAnother(t *testing.T) {
	o := testOptions()
	o.GiveUpAfter = 6 * time.Hour
	o.Facts.Learn(testBehaviour, false, morning)
	b, _ := behindRefusals(t, o, suspectAfter)
	o.Facts.Guard(testBehaviour, b.now.Add(guardFor))
	b.look()
	effort.FatalIf(t, len(b.backlog.chunks) > 0 || len(b.controls.accepted) > 0 || len(b.steps) != 1 ||
		!b.quietUntil(b.now).Equal(b.now.Add(guardFor)), "%d chunks out, %d accepted, steps %v", len(b.backlog.chunks),
		len(b.controls.accepted), b.steps)
	if cancel, ok := b.steps[0].(tell); !ok || cancel.msg.(*wire.Cancel) == nil {
		t.Errorf("told %v, want a cancel", b.steps[0])
	}
	b.pass(2 * guardFor)
	for _, o := range b.offers() { // what is due again, and what had no answer
		b.answers(o, 1, refused)
	}
	effort.Is(t, b.left, 0, "left")
}

// TestCanaryThatIsRefused: then acceptances are worth what they were.
func TestCanaryThatIsRefused(t *testing.T) {
	o := testOptions()
	o.Facts.Learn(testBehaviour, false, morning)
	b, offer := behindRefusals(t, o, suspectAfter)
	b.nextControl(2*canaryAfter, refused)
	b.is(suspectAfter, smtp.Valid, smtp.MailboxExists)
	b.answers(offer, 1001, accepted, suspectAfter+1) // it may have been one too many
	began := b.now
	b.nextControl(2*canaryAfter, refused)
	b.is(suspectAfter+1, smtp.Valid, smtp.MailboxExists)
	effort.Is(t, b.now.Sub(began), canaryAfter, "the next control probe is asked after: one for many")
	for i := uint32(suspectAfter + 2); i < 29; i++ {
		b.answers(offer, uint64(2000+i), refused, i)
	}
	b.answers(offer, 3000, accepted, 29)
	b.nextControl(0, refused) // nothing else is to be asked
	b.is(29, smtp.Valid, smtp.MailboxExists)
}

// TestAcceptedBehindTheCanary: what was accepted after the control probe was refused
// is not proven by it, though it is told first.
func TestAcceptedBehindTheCanary(t *testing.T) {
	o := testOptions()
	o.Facts.Learn(testBehaviour, false, morning)
	b, offer := behindRefusals(t, o, suspectAfter)
	canary := b.lives(canaryAfter)[0]
	at := b.now
	b.now = b.now.Add(time.Millisecond)
	b.answers(offer, 2000, accepted, suspectAfter+1)
	b.takeResults(b.now, results(canary, 1, at, canary.GetProbes(), refused.toAll))
	b.look()
	b.is(suspectAfter, smtp.Valid, smtp.MailboxExists)
	_, early := b.done[suspectAfter+1]
	effort.ErrorIf(t, early, "believed, though a guard may have been at work since")
}

// TestFewRefusalsNeedNoCanary: one below the bound, or spread over more than an hour.
func TestFewRefusalsNeedNoCanary(t *testing.T) {
	o := testOptions()
	o.Facts.Learn(testBehaviour, false, morning)
	b, _ := behindRefusals(t, o, suspectAfter-2) // and the control probe that was refused
	b.is(suspectAfter-2, smtp.Valid, smtp.MailboxExists)
	f := NewFacts()
	for i := range time.Duration(suspectAfter) {
		f.Refused("slow.test", morning.Add(i*time.Minute))
	}
	effort.ErrorIf(t, !f.Suspect("slow.test", morning.Add(suspectWithin)) ||
		f.Suspect("slow.test", morning.Add(suspectWithin+time.Second)), "refusals do not count for an hour")
	f.Hour = throttle.Hour(20 * time.Minute)
	end := morning.Add(20 * time.Minute)
	effort.ErrorIf(t, !f.Suspect("slow.test", end) || f.Suspect("slow.test", end.Add(time.Second)),
		"refusals do not count for an hour of twenty minutes")
}

// TestGuardIsNotForgotten: a domain that told mailboxes apart before a guard was seen
// is believed again only when it refuses a control probe.
func TestGuardIsNotForgotten(t *testing.T) {
	f := NewFacts()
	f.Learn("x.test", false, morning)
	f.Guard("x.test", morning.Add(guardFor))
	at := morning.Add(2 * guardFor)
	effort.ErrorIf(t, !f.Suspect("x.test", at), "believed without a control probe")
	f.Learn("x.test", false, morning.Add(2*guardFor))
	effort.ErrorIf(t, f.Suspect("x.test", morning.Add(2*guardFor)) || !f.Pause("x.test").IsZero(),
		"suspected though a control probe was refused")
}

// fastReceiver answers the chunks of a planner: a number of addresses in each tick, due retries first.
type fastReceiver struct {
	*bench
	open   []*wire.Offer
	probes map[uint64][]*wire.Probe // that are not answered
	batch  uint64
	asked  int
	truth  func(p *wire.Probe) judgement
}

// finish plays until every address has an outcome, at most for a time.
func (w *fastReceiver) finish(most time.Duration) {
	w.reach()
	w.take()
	for w.left > 0 && w.now.Before(morning.Add(most)) {
		w.tick(5, time.Second)
	}
}

// take accepts what is offered.
func (r *fastReceiver) take() {
	for offers := r.offers(); len(offers) > 0; offers = r.offers() {
		for _, o := range offers {
			if r.probes[o.GetChunk()] == nil {
				r.open = append(r.open, o)
				r.probes[o.GetChunk()] = o.GetProbes()
				r.backlog.takeAck(r.now, &wire.OfferAck{Task: o.GetTask(), Chunk: o.GetChunk(), Credit: chunksMax})
			}
		}
		r.look()
	}
}

// tick answers some addresses, and lets time pass.
func (r *fastReceiver) tick(addresses int, d time.Duration) {
	r.now = r.now.Add(d)
	slices.SortStableFunc(r.open, func(a, b *wire.Offer) int {
		switch {
		case a.Retries() == b.Retries():
			return 0
		case a.Retries():
			return -1
		}
		return 1
	})
	for len(r.open) > 0 && addresses > 0 {
		o := r.open[0]
		left := r.probes[o.GetChunk()]
		n := min(len(left), addresses)
		r.batch++
		m := results(o, r.batch, r.now, left[:n], r.truth)
		m.Credit = chunksMax
		r.asked += n
		addresses -= n
		if r.probes[o.GetChunk()] = left[n:]; n == len(left) {
			r.open = r.open[1:]
		}
		r.takeResults(r.now, m)
		r.look()
		r.take()
	}
	r.look()
	r.take()
}

// TestFewAcceptancesAreHeld: behind many refusals the acceptances of a large domain wait for a control probe,
// but not for the end of the domain: some hundred at a time. A slow receiver is asked few of these.
func TestFewAcceptancesAreHeld(t *testing.T) {
	for _, tc := range []struct{ all, perTick, held int }{
		{20_000, 50, canaryMost + 2*50},
		{600, 1, 2 * canaryFew},
	} {
		o := testOptions()
		o.Facts.Learn(testBehaviour, false, morning)
		r := &fastReceiver{bench: newBench(t, o, tc.all), probes: map[uint64][]*wire.Probe{}}
		controls := 0
		r.truth = func(p *wire.Probe) judgement {
			switch {
			case p.GetOrdinal() == controlOrdinal:
				controls++
				return refused
			case p.GetOrdinal()%5 == 0:
				return refused
			}
			return accepted
		}
		r.reach()
		r.take()
		most := 0
		for tick := 0; r.left > 0 && tick < 10*tc.all; tick++ {
			r.tick(tc.perTick, 10*time.Millisecond)
			most = max(most, r.controls.countWeighed())
		}
		effort.ErrorIf(t, r.left > 0 || most > tc.held,
			"%d of %d are left, at most %d acceptances were held, want %d", r.left, tc.all, most, tc.held)
		effort.ErrorIf(t, controls*100 > 3*tc.all, "%d control probes for %d addresses", controls, tc.all)
		t.Logf("%d addresses, %d control probes, at most %d acceptances were held", tc.all, controls, most)
	}
}

// TestAddressesThatPassOneByOneShareAControlProbe: greylisted ones that become due one by one don't need one each.
func TestAddressesThatPassOneByOneShareAControlProbe(t *testing.T) {
	o := testOptions()
	o.Facts.Learn(testBehaviour, false, morning)
	r := &fastReceiver{bench: newBench(t, o, 100), probes: map[uint64][]*wire.Probe{}}
	controls, asked := 0, map[uint32]bool{}
	r.truth = func(p *wire.Probe) judgement {
		ordinal := p.GetOrdinal()
		switch {
		case ordinal == controlOrdinal:
			controls++
			return refused
		case !asked[ordinal]:
			asked[ordinal] = true
			return judgement{reason: smtp.Greylisted, source: sourceA, wait: 601 * time.Second}
		case ordinal%5 < 2:
			return refused
		}
		return accepted
	}
	r.reach()
	r.take()
	for r.left > 0 && r.now.Before(morning.Add(time.Hour)) {
		r.tick(0, 3500*time.Millisecond)
		r.tick(1+len(asked)/100, 500*time.Millisecond)
	}
	if minutes := int(r.now.Sub(morning).Minutes()); r.left > 0 || controls > minutes+1 {
		t.Errorf("%d are left, %d control probes in %d minutes", r.left, controls, minutes)
	}
}

// TestTheFirstControlProbeGoesWithTheFirstChunk: it goes behind some addresses of the chunk, and not for domains that
// may not need it.
func TestTheFirstControlProbeGoesWithTheFirstChunk(t *testing.T) {
	for _, tc := range []struct {
		addresses int
		known     bool
		early     bool
	}{{controlBehind, false, false}, {controlBehind + 1, false, true}, {100, false, true}, {100, true, false}} {
		o := testOptions()
		if tc.known {
			o.Facts.Learn(testBehaviour, false, morning)
		}
		b := newBench(t, o, tc.addresses)
		b.controls.early = true
		b.reach()
		first := b.offered()
		at := slices.IndexFunc(first.GetProbes(), func(p *wire.Probe) bool { return p.GetOrdinal() == controlOrdinal })
		if early := at == controlBehind; early != tc.early || !early && at >= 0 {
			t.Errorf("%+v: the control probe is at %d", tc, at)
			continue
		}
		if !tc.early {
			continue
		}
		b.answers(first, 1, refused, controlOrdinal)
		b.answers(first, 2, accepted)
		effort.Is(t, len(b.done), tc.addresses, tc, "final at once")
		b.is(0, smtp.Valid, smtp.MailboxExists)
	}
}
