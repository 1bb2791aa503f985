package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

const (
	ackWithin  = 2 * time.Second // an offer without an answer is sent again
	silenceMax = 5 * time.Second // a receiver that says nothing for so long is believed dead

	// resolvePause is before a receiver actor that was lost, or is not to be had, is
	// looked for again, doubled each time up to resolveMax: some seconds after a
	// cluster has healed everybody works again.
	resolvePause = 100 * time.Millisecond
	resolveMax   = 5 * time.Second

	// lostMax bounds the suspicion that the addresses make their receiver actors fail:
	// from then on they are put off. One that ends under what it was offered counts
	// lostSure, so eight in a row without one answer are too many. One that moved
	// counts so too when it had the offer for less than lostSoon, for no view of the
	// cluster changes so fast so often; later, it counts one. One that cannot be
	// reached or falls silent never counts: that is our own trouble. Guesses.
	lostMax  = 64
	lostSure = 8
	lostSoon = 3 * time.Second

	// heldJitter is by how much the end of a wait may come sooner from one pulse to the
	// next, for which nobody is told: it is named as a duration, and pulses are a second
	// apart. It may come later by up to the heldPart-th part of what was left: a receiver
	// that does not know the end names one that moves along.
	heldJitter = time.Second
	heldPart   = 2

	// missedMax is how many times in a row a receiver actor may be looked for in vain,
	// which takes some seconds, before its work is said to wait; missedFor is how far
	// ahead that points at least, far enough for what is told to customers to be calm.
	missedMax = 6
	missedFor = time.Minute
)

// receiver is how it stands with the receiver actor that asks about the addresses.
type receiver struct {
	reached   bool // it is known
	reaching  bool // it is looked for
	failures  int  // in a row, for which the next attempt waits longer
	lost      int  // suspicion since the last answer, see lostMax
	heard     time.Time
	credit    uint32     // chunks of fresh addresses that it takes now
	heldUntil time.Time  // it says that it may not ask before
	cause     wire.Cause // what keeps it from asking more, as it said last
	perHour   int64      // that it expects to ask of this verification; 0: it does not say
	told      int        // addresses that are behind, as it was told last
	toldAt    time.Time  // when
}

// nextPause is how long to wait before it is looked for.
func (r *receiver) nextPause() time.Duration {
	if r.failures == 0 {
		return 0
	}
	return min(resolvePause<<min(r.failures-1, 8), resolveMax)
}

// found notes that it is known, or that it is not to be had now.
func (r *receiver) found(ok bool) {
	r.reaching, r.reached = false, ok
	if ok {
		r.credit = 1 // until it says more
	} else {
		r.failures++
	}
}

// forget begins anew with another one, or with this one later.
func (r *receiver) forget() {
	*r = receiver{failures: r.failures, lost: r.lost, heard: r.heard, reaching: r.reaching, toldAt: r.toldAt}
}

// isMissed reports whether it was looked for in vain for so long that its work waits.
func (r *receiver) isMissed() bool { return r.reaching && r.failures > missedMax }

// holdUntil notes until when it may not ask; zero: it may.
func (r *receiver) holdUntil(now, until time.Time) {
	later := until.Sub(r.heldUntil)
	if later < -heldJitter || later > max(heldJitter, r.heldUntil.Sub(now)/heldPart) {
		r.heldUntil = until
	}
}

// serves reports whether it asks what its limits let it ask: who leaves it then loses its turn there.
func (r *receiver) serves() bool {
	switch r.cause {
	case wire.Cause_FREE, wire.Cause_ALLOWANCE, wire.Cause_CONNECTIONS, wire.Cause_BUDGET:
		return true
	}
	return false
}

// takePulse notes that the receiver lives, and takes back chunks that it has lost.
func (b *backlog) takePulse(now time.Time, m *wire.Pulse) {
	if !b.isMine(m.GetTask()) {
		return
	}
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

// foundReceiver notes that the receiver actor is known, or that it is not to be had now; then it is looked for again,
// for as long as the work is ours. It reports whether it was looked for.
func (b *backlog) foundReceiver(ok bool) bool {
	if !b.receiver.reaching {
		return false
	}
	b.receiver.found(ok)
	return true
}

// leaveReceiver forgets the receiver.
func (b *backlog) leaveReceiver() {
	b.receiver.forget()
	b.retries.barren = smtp.ReasonNone
	b.addStep(leave{})
}

// takeMoved takes the notice that the receiver goes away. It is its last word: what was
// on the wire it has answered before, and all that is left is to be offered again.
func (b *backlog) takeMoved(now time.Time, m *wire.Moved) {
	if !b.isMine(m.GetTask()) {
		return
	}
	suspicion := 1
	for _, o := range b.chunks {
		if now.Sub(o.sent) < lostSoon {
			suspicion = lostSure
		}
	}
	b.loseReceiver(now, suspicion)
}

// loseReceiver forgets a receiver that is lost and takes back what it had, which is under
// so much more suspicion. At the bound it comes later: it may be the fault.
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

// abandonReceiver leaves the receiver because another one is right. What it has not begun it must not begin.
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
		b.receiver.told = 0 // it forgets that too
	}
}
