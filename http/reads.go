package http

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// keptMax bounds the cached answers of one kind of read. The largest, a page of 100 verifications, is some 40 KB.
// Guess.
const keptMax = 256

// reads asks the ledger for many requests. Requests that wait for the same answer share one question, which begins
// after the last of them arrived, so that the answer was true at some moment between request and answer. While nothing
// is written it stays true and is reused.
type reads[K comparable, V any] struct {
	ask      func(ctx context.Context, of K) (V, error)
	writes   func() (count uint64, still bool) // see Options.Writes
	panicked func()

	mu      sync.Mutex
	running map[K]*question[V] // guarded by mu
	kept    map[K]V            // guarded by mu; true while writes counts keptAt
	keptAt  uint64             // guarded by mu
}

// question is one question, with the next one for requests that come too late for it.
type question[V any] struct {
	tenant uuid.UUID
	done   chan struct{}
	answer V
	err    error
	next   *question[V] // guarded by reads.mu; not begun
}

func newReads[K comparable, V any](ask func(ctx context.Context, of K) (V, error),
	writes func() (uint64, bool), panicked func()) *reads[K, V] {
	if writes == nil {
		writes = func() (uint64, bool) { return 0, false }
	}
	return &reads[K, V]{ask: ask, writes: writes, panicked: panicked,
		running: make(map[K]*question[V]), kept: make(map[K]V)}
}

// read returns the answer about of.
func (r *reads[K, V]) read(ctx context.Context, of K) (V, error) {
	count, still := r.writes()
	r.mu.Lock()
	if known, ok := r.kept[of]; ok && still && r.keptAt == count {
		r.mu.Unlock()
		return known, nil
	}
	running := r.running[of]
	if running == nil {
		q := &question[V]{tenant: ledger.TenantOf(ctx), done: make(chan struct{})}
		r.running[of] = q
		r.mu.Unlock()
		r.put(ctx, of, q) // no other request waits for it
		return q.answer, q.err
	}
	if running.next == nil {
		running.next = &question[V]{tenant: running.tenant, done: make(chan struct{})}
	}
	q := running.next
	r.mu.Unlock()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// put asks a question and then starts the next one, if any.
func (r *reads[K, V]) put(ctx context.Context, of K, q *question[V]) {
	count, still := r.writes()
	q.err = errNoAnswer // should ask panic
	defer func() {
		close(q.done)
		r.mu.Lock()
		defer r.mu.Unlock()
		if still && q.err == nil {
			r.keep(of, q.answer, count)
		}
		if q.next == nil {
			delete(r.running, of)
			return
		}
		r.running[of] = q.next
		go r.putForMany(of, q.next)
	}()
	q.answer, q.err = r.ask(ctx, of)
}

// putForMany asks a question for several requests, within its own time.
func (r *reads[K, V]) putForMany(of K, q *question[V]) {
	ctx, cancel := context.WithTimeout(ledger.WithTenant(context.Background(), q.tenant), ledgerTimeout)
	defer cancel()
	defer func() {
		if recover() != nil { // no caller of this goroutine would
			r.panicked()
		}
	}()
	r.put(ctx, of, q)
}

// keep caches an answer to a question asked at a count of writes. r.mu is held.
func (r *reads[K, V]) keep(of K, answer V, count uint64) {
	if count < r.keptAt {
		return
	}
	if count > r.keptAt || len(r.kept) >= keptMax {
		clear(r.kept)
		r.keptAt = count
	}
	r.kept[of] = answer
}
