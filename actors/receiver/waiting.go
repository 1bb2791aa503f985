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
	// heartbeatEvery is how often a receiver without a slot tells its clients that it waits. After five seconds without a
	// message they would look for another actor.
	heartbeatEvery = time.Second

	// staleAfter is how long an offer counts if the client doesn't repeat the offer. Clients repeat offers every few
	// seconds. A receiver without any offer lives as long.
	staleAfter = 10 * time.Second

	// offersMax bounds the offers that a receiver without a slot keeps. More clients must try again later.
	offersMax = 64
)

// waiting is a receiver that has no slot on its node yet. waiting keeps the newest offer of each task, some hundred
// bytes each. Used only from the mailbox.
type waiting struct {
	since  time.Time
	offers map[wire.TaskKey]*heldOffer
}

type heldOffer struct {
	client scheduler.Client
	offer  *wire.Offer
	at     time.Time
}

// awaitSlot handles a message while the actor has no slot.
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

// holdOffer keeps an offer until there is a slot. The first offer asks for the slot.
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
	workspace, _ := uuid.FromBytes(m.GetWorkspace()) // an offer without a workspace counts for the nil workspace
	root, self, there := c.ActorSystem().Root, c.Self(), false
	tell := func(msg any) { root.Send(self, msg) }
	if a.slot, there = a.options.Registry.slots.Take(workspace, key.Verification, tell); there {
		tell(registry.SlotGranted{})
	}
}

// sendHeartbeats tells every client that the receiver waits. sendHeartbeats drops offers that weren't repeated.
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

// release tells the clients of a receiver that it ends. The receiver never had a slot.
func (w *waiting) release(c actor.Context) {
	for _, h := range w.offers {
		if h.client.ID != "" {
			c.Request(pidOf(h.client), &wire.Moved{Task: h.offer.GetTask()})
		}
	}
}
