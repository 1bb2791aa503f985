package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

const (
	ackWithin  = 2 * time.Second // an offer without an answer is repeated after this
	silenceMax = 5 * time.Second // after a longer silence a receiver counts as dead

	// resolvePause is the wait before a lost receiver actor is looked up again. resolvePause doubles each time, up to
	// resolveMax. So every domain works again some seconds after a cluster has healed.
	resolvePause = 100 * time.Millisecond
	resolveMax   = 5 * time.Second

	// lostMax bounds the suspicion that our addresses make receiver actors fail. At lostMax the addresses are deferred. A
	// receiver that stops after our offer adds lostSure, so eight in a row without an answer reach the bound. A receiver
	// that moves adds lostSure if the offer is younger than lostSoon, because no cluster moves receivers that fast that
	// often; otherwise a move adds one. An unreachable or silent receiver adds nothing, because that is our own fault.
	// Guesses.
	lostMax  = 64
	lostSure = 8
	lostSoon = 3 * time.Second

	// A receiver reports the rest of a wait as a duration, in pulses a second apart. An end that is earlier than the known
	// end by more than heldJitter is taken over. A later end is taken over if the difference is more than 1/heldPart of
	// the time left: a receiver that doesn't know the end reports one that moves along.
	heldJitter = time.Second
	heldPart   = 2

	// missedMax is how many lookups of a receiver actor may fail in a row before its work counts as waiting. The lookups
	// take some seconds. Customers then see a wait of at least missedFor, so that the text doesn't flicker.
	missedMax = 6
	missedFor = time.Minute
)

// receiver is the state of our work with the receiver actor.
type receiver struct {
	reached   bool // its actor is known
	reaching  bool // its actor is being looked up
	failures  int  // failures in a row; the next lookup waits longer for each
	lost      int  // suspicion since the last answer: see lostMax
	heard     time.Time
	credit    uint32     // chunks of fresh addresses that the receiver takes now
	heldUntil time.Time  // until when the receiver says that it can't ask
	cause     wire.Cause // why the receiver asks no more, by its last pulse
	perHour   int64      // addresses of this verification that the receiver expects to ask in an hour; 0: not known
	behind    int        // addresses waiting here, as the receiver last heard
}

func (r *receiver) nextPause() time.Duration {
	if r.failures == 0 {
		return 0
	}
	return min(resolvePause<<min(r.failures-1, 8), resolveMax)
}

// isMissed reports whether lookups have failed for so long that the work counts as waiting.
func (r *receiver) isMissed() bool { return r.reaching && r.failures > missedMax }

// holdUntil notes until when the receiver can't ask; zero: it can.
func (r *receiver) holdUntil(now, until time.Time) {
	later := until.Sub(r.heldUntil)
	if later < -heldJitter || later > max(heldJitter, r.heldUntil.Sub(now)/heldPart) {
		r.heldUntil = until
	}
}

// serves reports whether the receiver asks as much as its limits allow. A domain that then leaves it loses its turn.
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

// takeMoved handles a receiver's last message, that it moves away. The receiver has answered what was on the wire.
// Everything else is offered again.
func (b *backlog) takeMoved(now time.Time) {
	suspicion := 1
	if slices.ContainsFunc(b.chunks, func(o *open) bool { return now.Sub(o.sent) < lostSoon }) {
		suspicion = lostSure
	}
	b.loseReceiver(now, suspicion)
}

// loseReceiver forgets a lost receiver and takes back what it had. loseReceiver adds to the suspicion; at lostMax the
// addresses are deferred, because they may be the cause.
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

// abandonReceiver leaves the receiver because another one is responsible. abandonReceiver cancels what isn't asked.
func (b *backlog) abandonReceiver() {
	b.recallChunks()
	if b.receiver.reached {
		b.leaveReceiver()
	}
	b.receiver.reaching = false
	b.takeAllBack()
}

func (b *backlog) recallChunks() {
	if b.receiver.reached && len(b.chunks) > 0 {
		b.addStep(tell{&wire.Cancel{Task: b.task}})
		b.takeAllBack()
		b.receiver.behind = 0 // the receiver forgets this count too
	}
}
