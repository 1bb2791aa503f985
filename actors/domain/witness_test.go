package domain

import (
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// bare is a refusal in words that may mean us too.
var bare = judgement{outcome: smtp.Invalid, reason: smtp.MailboxNotFound, bare: true}

// knownBehaviour is a domain of which it is known that it tells mailboxes apart.
func knownBehaviour() Options {
	o := testOptions()
	o.Facts.Learn(testBehaviour, false, morning)
	return o
}

// witnessOf returns the next probe for a witness, an address that was accepted before. It must come within a time.
func (b *bench) witnessOf(local string, within time.Duration) *wire.Offer {
	b.t.Helper()
	offers := b.offers()
	for at := b.now; len(offers) == 0 && b.now.Sub(at) < within; {
		offers = b.lives(time.Second)
	}
	effort.FatalIf(b.t, len(offers) != 1 || !isControl(offers[0]) || locals(offers[0])[0] != local,
		"%+v offered, want %s once more", offers, local)
	return offers[0]
}

func TestBareRefusalIsBelievedBesideAnAcceptance(t *testing.T) {
	b := newBench(t, knownBehaviour(), 3)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, bare, 0)
	b.pass(time.Second)
	effort.FatalIf(t, len(b.done) > 0, "believed without a witness")
	b.answers(offer, 2, accepted, 1)
	b.is(0, smtp.Invalid, smtp.MailboxNotFound)
	b.is(1, smtp.Valid, smtp.MailboxExists)
	c := b.done[0].Case
	last, _ := c.Last()
	effort.ErrorIf(t, !c.Behaviour.Witnessed(&last), "the case shows no witness: %+v", c)
	h := b.done[1].Case.Behaviour
	effort.ErrorIf(t, len(h.Controls) > 0, "who was accepted needs no witness: %+v", h)
}

// An acceptance from before shows nothing: a block may have begun since. So it is asked for again.
func TestWitnessIsAskedBehindTheRefusal(t *testing.T) {
	for name, say := range map[string]judgement{"heard": accepted, "blocked": bare, "put off": greylisted,
		"nothing": {silent: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, knownBehaviour(), 2)
			b.reach()
			offer := b.offered()
			b.answers(offer, 1, accepted, 1)
			b.pass(time.Second)
			b.answers(offer, 2, bare, 0)
			b.answers(b.witnessOf("user1", time.Second), 1, say)
			if name == "heard" {
				b.is(0, smtp.Invalid, smtp.MailboxNotFound)
				return
			}
			for range 3 { // asked again, refused again, and the witness too
				effort.MustBe(t, len(b.done), 1, b.done)
				offers := b.lives(20 * time.Minute)
				if len(offers) == 0 {
					break
				}
				b.answers(offers[0], 1, bare)
				if list := b.offers(); len(list) > 0 {
					b.answers(list[0], 1, say)
				}
			}
			b.lives(2 * time.Hour)
			b.is(0, smtp.Unknown, smtp.Policy)
		})
	}
}

func TestWhoIsRefusedLikeEverybodyIsUnknown(t *testing.T) {
	b := newBench(t, knownBehaviour(), 3)
	b.reach()
	b.answers(b.offered(), 1, bare)
	for range 20 {
		for _, o := range b.lives(10 * time.Minute) {
			b.answers(o, 1, bare)
		}
	}
	for ordinal := range uint32(3) {
		b.is(ordinal, smtp.Unknown, smtp.Policy)
	}
}

// Only who is heard at the same host and from the same source, soon behind the refusal, is a witness.
func TestWitnessesFromElsewhere(t *testing.T) {
	for name, say := range map[string]judgement{
		"another source": {outcome: smtp.Valid, reason: smtp.MailboxExists, source: "192.0.2.78"},
		"another host":   {outcome: smtp.Valid, reason: smtp.MailboxExists, host: "mx2.receiver.test"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, knownBehaviour(), 3)
			b.reach()
			offer := b.offered()
			b.answers(offer, 1, bare, 0)
			b.answers(offer, 2, say, 1)
			_, done := b.done[0]
			effort.FatalIf(t, done, "believed")
		})
	}
	t.Run("too late", func(t *testing.T) {
		b := newBench(t, knownBehaviour(), 3)
		b.reach()
		offer := b.offered()
		b.answers(offer, 1, bare, 0)
		b.lives(evidence.WitnessWithin + time.Second)
		b.answers(offer, 2, accepted, 1)
		_, done := b.done[0]
		effort.FatalIf(t, done, "believed")
	})
}

// A control probe that is refused in bare words tells mailboxes apart only when an address that was
// accepted is accepted once more behind it.
func TestControlProbeThatIsRefusedInBareWords(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, accepted)
	b.nextControl(time.Second, bare)
	effort.FatalIf(t, len(b.done) > 0, "believed without a witness: %+v", b.done)
	b.answers(b.witnessOf("user0", time.Second), 1, accepted)
	b.is(0, smtp.Valid, smtp.MailboxExists)
	h := b.done[0].Case.Behaviour
	effort.ErrorIf(t, h.Refused != 1 || h.Accepted != 0 || len(h.Controls) != 2, "the habit is %+v", h)

	b = newBench(t, testOptions(), 1) // and when a block has begun in between
	b.reach()
	b.answers(b.offered(), 1, accepted)
	for range 3 {
		b.nextControl(20*time.Second, bare)
		b.answers(b.witnessOf("user0", time.Second), 1, bare)
	}
	b.lives(time.Minute)
	b.is(0, smtp.Unknown, smtp.Policy)
}

// What waits for a witness ends with the time of its verification, and when DNS has the last word.
func TestWhatWaitsForAWitnessEnds(t *testing.T) {
	b := newBench(t, knownBehaviour(), 2)
	b.work.Deadline = morning.Add(10 * time.Second)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, bare, 0)
	b.lives(15 * time.Second)
	b.is(0, smtp.Unknown, smtp.Policy)

	b = newBench(t, knownBehaviour(), 1)
	b.reach()
	b.answers(b.offered(), 1, bare)
	b.route.closed = smtp.NoMailService
	b.look()
	b.is(0, smtp.Invalid, smtp.NoMailService)
}
