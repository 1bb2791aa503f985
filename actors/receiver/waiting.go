package receiver

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/wire"
)

const (
	// heartbeatEvery is how often a receiver without a slot writes to its clients that it waits; after five seconds
	// without a message they would look for another actor.
	heartbeatEvery = time.Second

	// staleAfter is how long an offer counts without being repeated, which clients do every few seconds. It is also how
	// long a receiver without any offer lives.
	staleAfter = 10 * time.Second

	// offersMax bounds the offers that a receiver without a slot keeps; further clients must try again later.
	offersMax = 64
)

// waiting is a receiver that has no slot on its node yet: the newest offer of each task, some
// hundred bytes. Mailbox only.
type waiting struct {
	since  time.Time
	offers map[wire.TaskKey]*heldOffer
}

type heldOffer struct {
	client scheduler.Client
	offer  *wire.Offer
	at     time.Time
}

// awaitSlot handles one message of an actor without a slot.
func (a *Actor) awaitSlot(c actor.Context, now time.Time) {
	w := a.waiting
	switch m := c.Message().(type) {
	case *wire.Offer:
		a.holdOffer(c, now, m)
	case *wire.Cancel:
		if h := w.offers[m.GetTask().Key()]; h != nil && m.GetTask().GetEpoch() >= h.offer.GetTask().GetEpoch() {
			delete(w.offers, m.GetTask().Key())
		}
	case registry.SlotGranted:
		a.begin(c, now)
		return
	case stopForMove:
		c.Stop(c.Self())
		return
	case process.WakeUp:
		if _, ok := a.timer.Rang(m, now); !ok {
			return
		}
		a.sendHeartbeats(c, now)
	default:
		return
	}
	if len(w.offers) == 0 && now.Sub(w.since) >= min(a.idle, staleAfter) {
		c.Stop(c.Self())
		return
	}
	a.timer.Set(c, now, now.Add(min(a.idle, heartbeatEvery)))
}

// holdOffer keeps an offer until there is a slot; the first offer asks for one.
func (a *Actor) holdOffer(c actor.Context, now time.Time, m *wire.Offer) {
	w, key := a.waiting, m.GetTask().Key()
	before := w.offers[key]
	switch {
	case c.Sender() == nil:
		return
	case before != nil && m.GetTask().GetEpoch() < before.offer.GetTask().GetEpoch():
		c.Respond(&wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_STALE_EPOCH})
		return
	case before == nil && len(w.offers) >= offersMax:
		c.Respond(&wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_FULL})
		return
	}
	w.offers[key] = &heldOffer{client: clientOf(c.Sender()), offer: m, at: now}
	if a.slot != nil {
		return
	}
	workspace, _ := uuid.FromBytes(m.GetWorkspace()) // none: the nil workspace
	root, self, there := c.ActorSystem().Root, c.Self(), false
	tell := func(msg any) { root.Send(self, msg) }
	if a.slot, there = a.options.Registry.slots.Take(workspace, key.Verification, tell); there {
		tell(registry.SlotGranted{})
	}
}

// sendHeartbeats tells every client that the receiver waits, and drops offers that aren't repeated.
func (a *Actor) sendHeartbeats(c actor.Context, now time.Time) {
	for key, h := range a.waiting.offers {
		if now.Sub(h.at) >= staleAfter {
			delete(a.waiting.offers, key)
			continue
		}
		if h.client.ID != "" {
			c.Request(pidOf(h.client), &wire.Pulse{Task: h.offer.GetTask(), Cause: wire.Cause_CONNECTIONS})
		}
	}
	if len(a.waiting.offers) > 0 {
		a.waiting.since = now
	}
}

// release tells the clients of a receiver that ends without ever having a slot.
func (w *waiting) release(c actor.Context) {
	for _, h := range w.offers {
		if h.client.ID != "" {
			c.Request(pidOf(h.client), &wire.Moved{Task: h.offer.GetTask()})
		}
	}
}
