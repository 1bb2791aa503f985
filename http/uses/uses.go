package uses

import (
	"context"
	"sync"
	"time"
)

const (
	// Every is how old the note of a use may become: the ledger keeps minutes.
	Every = time.Minute

	// after is how long uses are collected before they are written at once.
	after = 10 * time.Second

	// most bounds the uses of one write.
	most = 500

	// writeTime bounds one write.
	writeTime = 5 * time.Second
)

// Notes are the uses that are not written yet. Safe for concurrent use. A use that cannot be written is lost: the next
// one is noted again.
type Notes[K comparable] struct {
	write func(ctx context.Context, ids []K) error

	mu    sync.Mutex
	used  map[K]bool  // guarded by mu
	timer *time.Timer // guarded by mu: of the next write; nil: none is due
}

// New makes a collector.
func New[K comparable](write func(ctx context.Context, ids []K) error) *Notes[K] {
	return &Notes[K]{write: write, used: map[K]bool{}}
}

// Note notes that something is used now.
func (n *Notes[K]) Note(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[id] = true
	n.plan()
}

// Forget takes a note back, of something that has ended.
func (n *Notes[K]) Forget(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, id)
}

// Stop writes what is left, all of it.
func (n *Notes[K]) Stop() {
	for n.flush() {
	}
}

// plan makes sure that a write is due. The caller has mu.
func (n *Notes[K]) plan() {
	if n.timer == nil {
		n.timer = time.AfterFunc(after, func() { n.flush() })
	}
}

// flush writes once, and says whether more is left.
func (n *Notes[K]) flush() (more bool) {
	n.mu.Lock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	ids := make([]K, 0, min(len(n.used), most))
	for id := range n.used {
		if len(ids) == most {
			break
		}
		ids = append(ids, id)
		delete(n.used, id)
	}
	if more = len(n.used) > 0; more {
		n.plan()
	}
	n.mu.Unlock()
	if len(ids) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), writeTime)
		defer cancel()
		_ = n.write(ctx, ids)
	}
	return more
}
