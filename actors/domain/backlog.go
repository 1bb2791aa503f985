package domain

import (
	"bytes"
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

const (
	// chunksMax bounds the chunks at the receiver, whatever credit a late message grants: one chunk is being asked, and
	// the next one waits. Due retries may have as many chunks again, so that they don't wait behind a thousand fresh
	// addresses.
	chunksMax = 2

	// refusedPause is how long we don't offer due retries after the receiver had no room for them.
	refusedPause = time.Second

	// A chunk has at most wire.AddressesMax addresses. If a chunk is answered within chunkSoon, the next one is twice as
	// large. Otherwise the next one is half as large, but at least chunkLeast. So a fast receiver never waits for
	// addresses, and a slow one holds about a minute's work in memory. While the node has many addresses out, each chunk
	// has chunkLeast. Measured: with 25 as the first size, 20,000 addresses at 20 ms a round trip took 6 s instead of 5.
	chunkLeast = 25
	chunkSoon  = 20 * time.Second

	// crowdedPause is the wait until a domain asks again whether its workspace may offer more. crowdedPause is as long as
	// the time between two pulses of a receiver.
	crowdedPause = time.Second

	// triesShift leaves room for four billion chunks each time the work on a domain is begun. So a receiver never mistakes
	// a new chunk for a chunk of a crashed actor.
	triesShift = 32
)

// open is a chunk at the receiver.
type open struct {
	offer   *wire.Offer
	left    map[uint32]struct{} // addresses without an answer
	retries bool                // the chunk has due retries
	acked   bool
	sent    time.Time
}

// backlog holds the addresses that were never asked, and those that are at the receiver.
type backlog struct {
	*job
	controls *controls
	retries  *retries
	receiver receiver

	task      *wire.Task
	workspace []byte
	ordinals  []uint32 // all addresses in the order of the file; read only
	next      int      // index in ordinals of the first address that was never offered
	ready     []uint32 // came back unasked; offered before the others

	chunks    []*open   // oldest first
	chunk     uint64    // number of the newest; no number is used twice
	size      int       // size of the next chunk
	retryAt   time.Time // until when no due retries are offered
	offeredAt time.Time // when the first address was offered, or the ledger caught up after a stall; zero: no address was
	crowded   bool      // the workspace has all the addresses at receivers that it may have
}

func newBacklog(j *job, k *controls, r *retries) backlog {
	// Receivers on this node keep the message. If ids were a slice of the planner's work, they would keep all of it in
	// memory.
	return backlog{job: j, controls: k, retries: r, workspace: bytes.Clone(j.work.Workspace[:]),
		task: &wire.Task{Verification: bytes.Clone(j.work.Verification[:]), Epoch: j.work.Epoch,
			Domain: j.work.Domain}, ordinals: j.work.Ordinals, chunk: uint64(j.work.Tries) << triesShift,
		size: wire.AddressesMax}
}

func (b *backlog) isMine(t *wire.Task) bool {
	return t.GetEpoch() == b.work.Epoch &&
		t.Key() == wire.TaskKey{Verification: b.work.Verification, Domain: b.work.Domain}
}

// hasFresh reports whether an address that was never deferred waits to be offered.
func (b *backlog) hasFresh() bool { return b.countFresh() > 0 }

// countFresh returns how many addresses were never deferred and wait to be offered.
func (b *backlog) countFresh() int { return len(b.ordinals) - b.next + len(b.ready) }

// hasWaiting reports whether an address can be offered.
func (b *backlog) hasWaiting(now time.Time) bool { return b.hasFresh() || b.retries.hasDue(now) }

// isBusy reports whether addresses are out, or can be offered soon. Deferred addresses become due one by one.
func (b *backlog) isBusy(now time.Time, within time.Duration) bool {
	return len(b.chunks) > 0 || b.hasWaiting(now.Add(within))
}

// takeNext returns the next address to offer, from the due retries or from the fresh ones.
func (b *backlog) takeNext(now time.Time, retries bool) (ordinal uint32, ok bool) {
	switch {
	case retries && b.retries.hasDue(now):
		return b.retries.popDue(), true
	case retries:
		return 0, false
	case len(b.ready) > 0: // take from the end: a lost receiver asked the first addresses in vain
		last := len(b.ready) - 1
		ordinal, b.ready = b.ready[last], b.ready[:last]
		return ordinal, true
	case b.next < len(b.ordinals):
		b.next++
		return b.ordinals[b.next-1], true
	}
	return 0, false
}

func (o *open) unanswered() (out []uint32) {
	for _, q := range o.offer.Probes {
		if _, left := o.left[q.GetOrdinal()]; left {
			out = append(out, q.GetOrdinal())
		}
	}
	return out
}

// chunkOf returns the chunk at the receiver with a number; nil: none.
func (b *backlog) chunkOf(number uint64) *open {
	for _, o := range b.chunks {
		if o.offer.Chunk == number {
			return o
		}
	}
	return nil
}

// countOut returns how many chunks are at the receiver, of due retries or of fresh addresses.
func (b *backlog) countOut(retries bool) (n int) {
	for _, o := range b.chunks {
		if o.retries == retries {
			n++
		}
	}
	return n
}

// quietUntil returns until when there is nothing to do; the zero time: there is no end. busy: there is something to do
// now, or work is under way.
func (b *backlog) quietUntil(now time.Time) (until time.Time, busy bool) {
	switch r := &b.receiver; {
	case r.isMissed(): // no node may probe: the customer sees that the work waits
		return now.Truncate(missedFor).Add(2 * missedFor), false
	case r.reaching:
		return time.Time{}, true
	case len(b.chunks) > 0:
		return r.heldUntil, !r.heldUntil.After(now)
	case b.hasWaiting(now):
		return time.Time{}, true
	}
	return b.retries.nextDue(), false
}

// checkSilence repeats offers that weren't acknowledged, and gives up a silent receiver.
func (b *backlog) checkSilence(now time.Time) {
	b.crowded = false
	if len(b.chunks) == 0 {
		return
	}
	if now.Sub(b.receiver.heard) >= silenceMax {
		b.loseReceiver(now, 0)
		return
	}
	for _, o := range b.chunks {
		if !o.acked && now.Sub(o.sent) >= ackWithin {
			b.sendOffer(now, o, o.offer.Chunk, o.offer.Hosts, slices.DeleteFunc(slices.Clone(o.offer.Probes),
				func(q *wire.Probe) bool { _, left := o.left[q.GetOrdinal()]; return !left }))
		}
	}
}

// offerMore looks up the receiver, or offers it as many chunks as it grants.
func (b *backlog) offerMore(now time.Time, hosts []*wire.Host) {
	r := &b.receiver
	switch {
	case !b.hasWaiting(now) || r.reaching || b.retries.barren != smtp.ReasonNone,
		b.work.LedgerBehind != nil && b.work.LedgerBehind.Load():
	case !r.reached:
		r.reaching = true
		b.addStep(findReceiver{r.nextPause()})
	default:
		if len(b.chunks) == 0 {
			r.credit = max(1, r.credit) // no message will grant more credit: one offer asks for more
		}
		for b.retries.hasDue(now) && !b.crowded && b.countOut(true) < b.chunksNow() && !now.Before(b.retryAt) {
			b.offerChunk(now, hosts, true)
		}
		for b.hasFresh() && !b.crowded && b.countOut(false) < b.chunksNow() && r.credit > 0 {
			r.credit--
			b.offerChunk(now, hosts, false)
		}
	}
}

// chunksNow is how many chunks may be out, of fresh addresses and of due retries each. While the node has many
// addresses out, each may have only one chunk, so that every domain progresses.
func (b *backlog) chunksNow() int {
	if b.options.Load.isHeavy() {
		return 1
	}
	return chunksMax
}

// offerChunk sends the next chunk, of due retries or of fresh addresses.
func (b *backlog) offerChunk(now time.Time, hosts []*wire.Host, retries bool) {
	if len(b.chunks) == 0 {
		b.receiver.heard = now
	}
	b.chunk++
	o := &open{retries: retries, left: map[uint32]struct{}{}}
	size := b.size
	if b.options.Load.isHeavy() {
		size = chunkLeast
	}
	var ordinals []uint32
	for len(o.left) < size {
		if !b.options.Load.takeAddress(b.work.Workspace) {
			b.crowded = true
			break
		}
		ordinal, ok := b.nextFor(now, o)
		if !ok {
			b.options.Load.giveAddresses(b.work.Workspace, 1)
			break
		}
		o.left[ordinal] = struct{}{}
		ordinals = append(ordinals, ordinal)
	}
	if len(ordinals) == 0 {
		return
	}
	if b.offeredAt.IsZero() {
		b.offeredAt = now
	}
	b.chunks = append(b.chunks, o)
	b.sendOffer(now, o, b.chunk, hosts, b.retries.makeProbes(now, ordinals, b.controls.localOf))
}

// sendOffer offers a chunk, and says how many addresses wait here. A repeated offer stays as it was.
func (b *backlog) sendOffer(now time.Time, o *open, chunk uint64, hosts []*wire.Host, probes []*wire.Probe) {
	n, oldest := b.countBehind(now)
	b.receiver.behind, o.sent = n, now
	o.offer = &wire.Offer{Task: b.task, Chunk: chunk, Hosts: hosts, Probes: probes, Workspace: b.workspace,
		ExpiresInMs: wire.Left(now, b.work.Deadline), Behind: uint32(n), WaitingMs: oldest.Milliseconds()}
	b.addStep(tell{o.offer})
}

// nextFor takes the next address for a chunk, or the control probe.
func (b *backlog) nextFor(now time.Time, o *open) (ordinal uint32, ok bool) {
	if len(o.left) == controlBehind && b.hasFresh() && b.offeredAt.IsZero() &&
		b.controls.beginControlEarly(b.controls.knowsBehaviour(now)) {
		return controlOrdinal, true
	}
	ordinal, ok = b.takeNext(now, o.retries)
	if ok && ordinal == controlOrdinal && o.retries && !b.controls.isNeeded(now) { // the behaviour is known by now
		b.controls.keepName(b.retries.again[ordinal].reason)
		delete(b.retries.again, ordinal)
		b.controls.endControl()
		return b.takeNext(now, o.retries)
	}
	return ordinal, ok
}

// countBehind returns how many addresses of the file wait to be offered, and how long the oldest has waited.
func (b *backlog) countBehind(now time.Time) (n int, oldest time.Duration) {
	n = b.countFresh() + b.retries.countRipe(now)
	switch {
	case b.hasFresh():
		oldest = b.since(now)
	case b.retries.hasDue(now):
		oldest = now.Sub(b.retries.nextDue())
	}
	return n, oldest
}

func (b *backlog) takeAck(now time.Time, m *wire.OfferAck) {
	o := b.chunkOf(m.GetChunk())
	if !b.isMine(m.GetTask()) || o == nil {
		return
	}
	b.receiver.heard, b.receiver.credit = now, m.GetCredit()
	if m.GetRefusal() == wire.Refusal_NONE {
		o.acked = true
		return
	}
	b.takeBack(o) // full, or our epoch is old: a pulse or our parent will say which
	if o.retries {
		b.retryAt = now.Add(refusedPause)
	} else {
		b.receiver.credit = 0 // whatever credit came: the receiver would refuse the same offer again
	}
	if len(b.chunks) == 0 {
		b.leaveReceiver() // look the receiver up again after a pause
		b.receiver.failures++
	}
}

// takeResults acknowledges results of a chunk and returns the chunk; nil: it is fully answered or was taken back.
func (b *backlog) takeResults(now time.Time, m *wire.Results) *open {
	b.addStep(reply{&wire.ResultsAck{Task: b.task, Chunk: m.GetChunk(), Batch: m.GetBatch()}})
	o := b.chunkOf(m.GetChunk())
	if o == nil {
		return nil
	}
	r := &b.receiver
	r.heard, r.credit, r.heldUntil = now, m.GetCredit(), time.Time{}
	r.failures, r.lost = 0, 0
	o.acked = true
	return o
}

// takeLate handles the answer to an address whose chunk was taken back. takeLate removes the address from the chunk or
// list that has it now, and reports whether one had it.
func (b *backlog) takeLate(now time.Time, ordinal uint32) bool {
	if at := slices.Index(b.ready, ordinal); at >= 0 {
		b.ready = slices.Delete(b.ready, at, at+1)
		return true
	}
	for _, o := range b.chunks {
		if ordinal != controlOrdinal && b.takeOff(o, ordinal) {
			b.finishChunk(now, o)
			return true
		}
	}
	return false
}

// takeOff removes an address from a chunk, and reports whether the chunk had it.
func (b *backlog) takeOff(o *open, ordinal uint32) bool {
	if _, left := o.left[ordinal]; !left {
		return false
	}
	delete(o.left, ordinal)
	b.options.Load.giveAddresses(b.work.Workspace, 1)
	return true
}

// finishChunk ends a chunk when all of it is answered. The time that this took decides the size of the next chunk.
func (b *backlog) finishChunk(now time.Time, o *open) {
	if len(o.left) > 0 {
		return
	}
	b.closeChunk(o)
	switch took := now.Sub(o.sent); {
	case o.retries:
	case took <= chunkSoon:
		b.size = min(2*b.size, wire.AddressesMax)
	default:
		b.size = max(b.size/2, chunkLeast)
	}
}

func (b *backlog) closeChunk(o *open) {
	b.options.Load.giveAddresses(b.work.Workspace, len(o.left))
	b.chunks = slices.DeleteFunc(b.chunks, func(other *open) bool { return other == o })
}

// takeBack closes a chunk and makes its addresses ready for the next one.
func (b *backlog) takeBack(o *open) {
	b.closeChunk(o)
	for _, ordinal := range o.unanswered() {
		b.putBack(ordinal)
	}
}

// putBack makes an address that came back unasked ready for the next chunk.
func (b *backlog) putBack(ordinal uint32) {
	switch {
	case b.retries.giveBack(ordinal):
	case ordinal == controlOrdinal: // the early control probe: a new one is made when needed
		b.controls.endControl()
	default:
		b.ready = append(b.ready, ordinal)
	}
}

func (b *backlog) takeAllBack() {
	for len(b.chunks) > 0 {
		b.takeBack(b.chunks[0])
	}
}
