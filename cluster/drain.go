package cluster

import (
	"context"

	"github.com/google/uuid"
)

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

// Draining reports whether this node gives its work away, because an operator wants that or it stops.
func (n *Node) Draining() bool { return n.drains.wished.Load() || n.drains.stopping.Load() }
