package signin

import (
	"context"
	"sync"

	"rollcall/ledger"
)

// How many requests about one subject are accepted at once: one has its turn, the others wait. A network may be a whole
// office.
const (
	turnsMost   = 8
	networkMost = hashWaits
)

// turns let one request at a time try a password or a code of one subject or from one network, so that each failure is
// counted before the next try. Each node does so by itself, so n nodes allow up to n-1 more tries. The zero value is
// ready. Safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	taken map[ledger.Hash]*turn // guarded by mu
}

// turn is the queue of one subject.
type turn struct {
	busy chan struct{}
	in   int // that have it or wait for it; guarded by mu of turns
}

// take waits for a turn, and returns the function that ends it. ErrBusy when too many wait already, or the context
// ends.
func (t *turns) take(ctx context.Context, subject ledger.Hash, most int) (leave func(), err error) {
	t.mu.Lock()
	one := t.taken[subject]
	if one == nil {
		if t.taken == nil {
			t.taken = map[ledger.Hash]*turn{}
		}
		one = &turn{busy: make(chan struct{}, 1)}
		t.taken[subject] = one
	}
	full := one.in >= most
	if !full {
		one.in++
	}
	t.mu.Unlock()
	if full {
		return nil, ErrBusy
	}
	select {
	case one.busy <- struct{}{}:
		return func() { <-one.busy; t.left(subject, one) }, nil
	case <-ctx.Done():
		t.left(subject, one)
		return nil, ErrBusy
	}
}

// takeBoth waits for the turns of a subject and of its network, in this order.
func (t *turns) takeBoth(ctx context.Context, subject, network ledger.Hash) (leave func(), err error) {
	first, err := t.take(ctx, subject, turnsMost)
	if err != nil {
		return nil, err
	}
	second, err := t.take(ctx, network, networkMost)
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}

// left removes a request from a subject, and a subject without requests.
func (t *turns) left(subject ledger.Hash, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.in--; one.in == 0 {
		delete(t.taken, subject)
	}
}
