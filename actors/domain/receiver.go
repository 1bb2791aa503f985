package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

const (
	ackWithin  = 2 * time.Second // an offer without an answer is sent again
	silenceMax = 5 * time.Second // a receiver that is silent for longer counts as dead

	// resolvePause is the wait before a lost receiver actor is looked up again, doubled each time up to resolveMax:
	// some seconds after a cluster has healed every domain works again.
	resolvePause = 100 * time.Millisecond
	resolveMax   = 5 * time.Second

	// lostMax bounds the suspicion that our addresses make receiver actors fail; beyond it they are deferred. A receiver
	// that stopped after our offer counts lostSure, so eight in a row without an answer reach the bound. One that moved
	// counts as much if it had the offer for less than lostSoon, since no cluster changes that fast that often; after
	// lostSoon it counts one. An unreachable or silent one doesn't count: that is our own fault. Guesses.
	lostMax  = 64
	lostSure = 8
	lostSoon = 3 * time.Second

	// heldJitter is how much sooner than reported a wait may end before the new time is reported: it is sent as a
	// duration, in pulses a second apart. It may come later by up to 1/heldPart of the time left: a receiver that doesn't
	// know the end sends one that moves along.
	heldJitter = time.Second
	heldPart   = 2

	// missedMax is how many lookups of a receiver actor may fail in a row, which takes some seconds, before its work
	// counts as waiting; missedFor is the least wait that customers then see, so that the text doesn't flap.
	missedMax = 6
	missedFor = time.Minute
)

// receiver is the state of our work with the receiver actor.
type receiver struct {
	reached   bool // it is known
	reaching  bool // it is looked for
	failures  int  // in a row, for which the next attempt waits longer
	lost      int  // suspicion since the last answer, see lostMax
	heard     time.Time
	credit    uint32     // chunks of fresh addresses that it takes now
	heldUntil time.Time  // it says that it may not ask before
	cause     wire.Cause // what kept it from asking more, by its last pulse
	perHour   int64      // addresses of this verification that it expects to ask in an hour; 0: it doesn't say
	behind    int        // addresses waiting here, as last sent to it
}

// nextPause returns how long to wait before the next lookup.
func (r *receiver) nextPause() time.Duration {
	if r.failures == 0 {
		return 0
	}
	return min(resolvePause<<min(r.failures-1, 8), resolveMax)
}

// isMissed reports whether lookups failed for so long that its work counts as waiting.
func (r *receiver) isMissed() bool { return r.reaching && r.failures > missedMax }

// holdUntil notes until when the receiver may not ask; zero: it may.
func (r *receiver) holdUntil(now, until time.Time) {
	later := until.Sub(r.heldUntil)
	if later < -heldJitter || later > max(heldJitter, r.heldUntil.Sub(now)/heldPart) {
		r.heldUntil = until
	}
}

// serves reports whether it asks as much as its limits allow: a domain that leaves it then loses its turn.
func (r *receiver) serves() bool {
	switch r.cause {
	case wire.Cause_FREE, wire.Cause_ALLOWANCE, wire.Cause_CONNECTIONS, wire.Cause_BUDGET:
		return true
	}
	return false
}

// takePulse notes that the receiver lives, and takes back chunks that it has lost.
func (b *backlog) takePulse(now time.Time, m *wire.Pulse) {
	r := &b.receiver
	r.heard, r.credit = now, m.GetCredit()
	r.cause, r.perHour = m.GetCause(), m.GetPerHour()
	r.holdUntil(now, wire.Until(now, m.GetWaitingMs()))
	b.noteBarren(now, m)
	for _, o := range slices.Clone(b.chunks) {
		if o.acked && now.Sub(o.sent) > silenceMax && !slices.Contains(m.GetChunks(), o.offer.Chunk) {
			b.takeBack(o)
		}
	}
}

func (b *backlog) leaveReceiver() {
	r := b.receiver
	b.receiver = receiver{failures: r.failures, lost: r.lost, heard: r.heard, reaching: r.reaching}
	b.retries.barren = smtp.ReasonNone
	b.addStep(leave{})
}

// takeMoved takes the notice that the receiver goes away. That is its last message: it has answered what was on the
// wire, and the others are offered again.
func (b *backlog) takeMoved(now time.Time) {
	suspicion := 1
	if slices.ContainsFunc(b.chunks, func(o *open) bool { return now.Sub(o.sent) < lostSoon }) {
		suspicion = lostSure
	}
	b.loseReceiver(now, suspicion)
}

// loseReceiver forgets a lost receiver, takes back what it had, and adds to the suspicion. At lostMax the addresses are
// deferred: they may be the cause.
func (b *backlog) loseReceiver(now time.Time, suspicion int) {
	if !b.receiver.reached {
		return
	}
	b.leaveReceiver()
	b.receiver.failures++
	if len(b.chunks) > 0 {
		b.receiver.lost += suspicion
	}
	if suspicion == 0 || b.receiver.lost < lostMax {
		b.takeAllBack()
		return
	}
	for len(b.chunks) > 0 {
		o := b.chunks[0]
		b.closeChunk(o)
		for _, ordinal := range o.unanswered() {
			p, c := b.retries.takeCase(now, ordinal)
			b.controls.askAgain(now, p, c, answerOf{reason: smtp.Internal})
		}
	}
}

// abandonReceiver leaves the receiver because another one is responsible, and cancels what it hasn't asked.
func (b *backlog) abandonReceiver() {
	b.recallChunks()
	if b.receiver.reached {
		b.leaveReceiver()
	}
	b.receiver.reaching = false
	b.takeAllBack()
}

// recallChunks takes back what the receiver has not asked.
func (b *backlog) recallChunks() {
	if b.receiver.reached && len(b.chunks) > 0 {
		b.addStep(tell{&wire.Cancel{Task: b.task}})
		b.takeAllBack()
		b.receiver.behind = 0 // it forgets that too
	}
}
