package clustertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// errDead: the process is dead and can't reach the ledger.
var errDead = errors.New("clustertest: this node is dead")

// book is one node's connection to the ledger, which a test can cut. Safe for concurrent use.
type book struct {
	ledger  ledger.Nodes
	gate    <-chan struct{} // calls wait until it is closed
	arrived chan struct{}   // closed when the node comes to the gate
	once    sync.Once

	mu   sync.Mutex
	open chan struct{} // guarded by mu; closed while the connection works
	dead bool          // guarded by mu
}

func newBook(l ledger.Nodes, gate <-chan struct{}) *book {
	b := &book{ledger: l, gate: gate, arrived: make(chan struct{}), open: make(chan struct{})}
	close(b.open)
	return b
}

func (b *book) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.open:
		b.open = make(chan struct{})
	default:
	}
}

func (b *book) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.open:
	default:
		close(b.open)
	}
}

func (b *book) die() {
	b.heal()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = true
}

// pass waits until the connection is not cut, or ctx ends.
func (b *book) pass(ctx context.Context) error {
	b.once.Do(func() { close(b.arrived) })
	select {
	case <-b.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	open, dead := b.open, b.dead
	b.mu.Unlock()
	if dead {
		return errDead
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Identity implements ledger.Nodes.
func (b *book) Identity(ctx context.Context) (uuid.UUID, error) {
	if err := b.pass(ctx); err != nil {
		return uuid.Nil, err
	}
	return b.ledger.Identity(ctx)
}

// WriteHeartbeat implements ledger.Nodes.
func (b *book) WriteHeartbeat(ctx context.Context, beat ledger.Heartbeat) (ledger.NodeSnapshot, error) {
	if err := b.pass(ctx); err != nil {
		return ledger.NodeSnapshot{}, err
	}
	return b.ledger.WriteHeartbeat(ctx, beat)
}

// ReadNodes implements ledger.Nodes.
func (b *book) ReadNodes(ctx context.Context) (ledger.NodeSnapshot, error) {
	if err := b.pass(ctx); err != nil {
		return ledger.NodeSnapshot{}, err
	}
	return b.ledger.ReadNodes(ctx)
}

// Leave implements ledger.Nodes.
func (b *book) Leave(ctx context.Context, session uuid.UUID) error {
	if err := b.pass(ctx); err != nil {
		return err
	}
	return b.ledger.Leave(ctx, session)
}

// Retire implements ledger.Nodes.
func (b *book) Retire(ctx context.Context, session uuid.UUID, after time.Duration, dead bool) error {
	if err := b.pass(ctx); err != nil {
		return err
	}
	return b.ledger.Retire(ctx, session, after, dead)
}

// AskDrain implements ledger.Nodes.
func (b *book) AskDrain(ctx context.Context, node uuid.UUID) error {
	if err := b.pass(ctx); err != nil {
		return err
	}
	return b.ledger.AskDrain(ctx, node)
}

// Undrain implements ledger.Nodes.
func (b *book) Undrain(ctx context.Context, node uuid.UUID) error {
	if err := b.pass(ctx); err != nil {
		return err
	}
	return b.ledger.Undrain(ctx, node)
}

// Forget implements ledger.Nodes.
func (b *book) Forget(ctx context.Context, node uuid.UUID, after time.Duration) error {
	if err := b.pass(ctx); err != nil {
		return err
	}
	return b.ledger.Forget(ctx, node, after)
}
