package ledger

import (
	"context"
	"sync"
	"time"
)

const (
	// UseEvery is how old the note of a use may become: the ledger keeps minutes.
	UseEvery = time.Minute

	// usesAfter is how long uses are collected before they are written at once.
	usesAfter = 10 * time.Second

	// usesMost bounds the uses of one write.
	usesMost = 500

	// usesWithin bounds one write.
	usesWithin = 5 * time.Second
)

// Uses are when keys and sessions were used, to be written many at once: a write for each request would cost more than
// the requests. A use that cannot be written is lost: the next one is noted again. Safe for concurrent use.
type Uses[K comparable] struct {
	write func(ctx context.Context, ids []K) error

	mu    sync.Mutex
	used  map[K]bool  // guarded by mu
	timer *time.Timer // guarded by mu: of the next write; nil: none is due
}

// NewUses makes a collector.
func NewUses[K comparable](write func(ctx context.Context, ids []K) error) *Uses[K] {
	return &Uses[K]{write: write, used: map[K]bool{}}
}

// Note notes that something is used now.
func (n *Uses[K]) Note(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[id] = true
	n.planWrite()
}

// Forget takes a note back, of something that has ended.
func (n *Uses[K]) Forget(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, id)
}

// Stop writes what is left, all of it.
func (n *Uses[K]) Stop() {
	for n.writeSome() {
	}
}

// planWrite makes sure that a write is due. The caller has mu.
func (n *Uses[K]) planWrite() {
	if n.timer == nil {
		n.timer = time.AfterFunc(usesAfter, func() { n.writeSome() })
	}
}

// writeSome writes once, and reports whether more is left.
func (n *Uses[K]) writeSome() (more bool) {
	n.mu.Lock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	ids := make([]K, 0, min(len(n.used), usesMost))
	for id := range n.used {
		if len(ids) == usesMost {
			break
		}
		ids = append(ids, id)
		delete(n.used, id)
	}
	if more = len(n.used) > 0; more {
		n.planWrite()
	}
	n.mu.Unlock()
	if len(ids) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), usesWithin)
		defer cancel()
		_ = n.write(ctx, ids)
	}
	return more
}
