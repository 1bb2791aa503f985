package cluster

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// In a drain a node gives its work away and takes none. It begins when an operator asks for it (a request in the
// node's row of the ledger, which heartbeats.act sees) or when the node stops:
//   - its dispatcher takes no file and gives its files back: each verification settles what it knows and stores the
//     rest (shell.drain in actors/dispatcher, Actor.drain in actors/verification);
//   - gossip says that it drains, so receivers are placed at other nodes (placement.go); the receivers here read the
//     replies to commands already sent, end their sessions with QUIT and move (actors/receiver/actor.go);
//   - /readyz says so, and a load balancer sends no more requests (http/admin).

// drains is why a node drains.
type drains struct {
	wished   atomic.Bool         // an operator wants it
	stopping atomic.Bool         // it ends
	telling  sync.Mutex          // held while onDrain runs, so that its calls are in order
	onDrain  func(draining bool) // guarded by telling; for the rest of the process
}

// Drain asks a node, this one or another, to give its work away and to take none, from its next heartbeat on. Error:
// ledger.ErrNoSuchNode.
func (n *Node) Drain(ctx context.Context, node uuid.UUID) error {
	if n.peers == nil {
		n.wish(true)
		return nil
	}
	return n.loops.wakeAfter("drain node", n.peers.Book.AskDrain(ctx, node))
}

// Undrain takes back Drain: the node takes work again from its next heartbeat on. A node that is stopping still stops.
// Error: ledger.ErrNoSuchNode.
func (n *Node) Undrain(ctx context.Context, node uuid.UUID) error {
	if n.peers == nil {
		n.wish(false)
		return nil
	}
	return n.loops.wakeAfter("undrain node", n.peers.Book.Undrain(ctx, node))
}

// Draining reports whether this node gives its work away: an operator asked for that, or the node stops.
func (n *Node) Draining() bool { return n.drains.wished.Load() || n.drains.stopping.Load() }

// OnDrain sets a function to call when an operator wants this node to drain, and when that wish is taken back. An
// earlier wish counts too. The function may be called twice with the same value.
func (n *Node) OnDrain(do func(draining bool)) {
	n.drains.telling.Lock()
	defer n.drains.telling.Unlock()
	n.drains.onDrain = do
	if n.drains.wished.Load() {
		do(true)
	}
}

// wish moves the actors here to the other members, or makes this node take work again. It may be called twice. A
// stopping node still stops.
func (n *Node) wish(drain bool) {
	n.drains.telling.Lock()
	defer n.drains.telling.Unlock()
	if n.drains.wished.Swap(drain) == drain {
		return
	}
	if n.drains.onDrain != nil {
		n.drains.onDrain(drain)
	}
	if n.peers == nil {
		return
	}
	if err := n.gossip.Drain(n.Draining()); err != nil {
		n.log.Warn("could not gossip drain state", "err", err)
	}
	n.loops.wake()
}
