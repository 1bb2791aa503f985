package quota

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// ErrClosed means that a queue is closed.
var ErrClosed = errors.New("quota: the queue is closed")

// firstInRow is how many places in a row go to the first tenant while others wait. Its work is small; the bound
// keeps a fault in it from stopping all others. Guess.
const firstInRow = 16

// Queue gives places to waiting tenants. Each tenant has a queue, and the queues take turns: one place
// each, whatever their length (start-time fair queueing with a cost of 1: P. Goyal, H. M. Vin and H. Cheng, IEEE/ACM
// Transactions on Networking 5(5), 1997). A new tenant waits for at most one place of each other tenant. The Pool
// bounds a tenant's places.
//
// One tenant goes first and may have all places, because all others depend on its work. Safe for concurrent use.
type Queue[Tenant comparable] struct {
	mu     sync.Mutex
	places *Pool[Tenant]
	weight int
	first  Tenant
	closed bool

	queues map[Tenant]*tenantQueue[Tenant] // with waiters, or with a virtual time ahead of the clock
	busy   []*tenantQueue[Tenant]          // with waiters
	clock  int64                           // the virtual time now
	count  int64                           // number of waiters so far, for their order
	inRow  int                             // places in a row for the first tenant while others waited
}

type tenantQueue[Tenant comparable] struct {
	tenant      Tenant
	virtualTime int64 // of its next place
	waits       []*waiter
}

type waiter struct {
	number int64
	ready  chan struct{} // closed when it has the place, or the queue is closed
	closed bool
}

// NewQueue makes a queue for that many places. Every tenant has the weight at the Pool, except the first, which may
// have all places.
func NewQueue[Tenant comparable](places int64, weight int, first Tenant) *Queue[Tenant] {
	return &Queue[Tenant]{places: New[Tenant](places), weight: weight, first: first,
		queues: map[Tenant]*tenantQueue[Tenant]{}}
}

// Take waits for a place until ctx ends. waited reports whether no place was free at once. ErrClosed, or the error
// of ctx.
func (q *Queue[Tenant]) Take(ctx context.Context, t Tenant) (waited bool, err error) {
	return q.take(ctx, t, false)
}

// TakeAgain is Take for a caller that had a place and needs another for the same work. It precedes others of its
// tenant.
func (q *Queue[Tenant]) TakeAgain(ctx context.Context, t Tenant) (waited bool, err error) {
	return q.take(ctx, t, true)
}

func (q *Queue[Tenant]) take(ctx context.Context, t Tenant, again bool) (waited bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false, ErrClosed
	}
	l := q.queueOf(t)
	q.count++
	w := &waiter{number: q.count, ready: make(chan struct{})}
	if len(l.waits) == 0 {
		l.virtualTime = max(l.virtualTime, q.clock)
		q.busy = append(q.busy, l)
	}
	if again {
		l.waits = slices.Insert(l.waits, 0, w)
	} else {
		l.waits = append(l.waits, w)
	}
	q.serve()
	waited = slices.Contains(l.waits, w)
	q.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
		q.giveUp(l, w)
		return waited, ctx.Err()
	}
	if w.closed {
		return waited, ErrClosed
	}
	return waited, nil
}

// Return returns a place.
func (q *Queue[Tenant]) Return(t Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.places.Return(t, 1)
	q.serve()
}

// Close closes the queue: nobody gets a place from then on. Taken places can still be returned.
func (q *Queue[Tenant]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, l := range q.busy {
		for _, w := range l.waits {
			w.closed = true
			close(w.ready)
		}
		l.waits = nil
	}
	q.busy = nil
}

// Waiting returns the number of waiters.
func (q *Queue[Tenant]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, l := range q.busy {
		n += len(l.waits)
	}
	return n
}

// giveUp removes a waiter from its queue, or returns the place that it just got.
func (q *Queue[Tenant]) giveUp(l *tenantQueue[Tenant], w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(l.waits, w)
	switch {
	case at >= 0:
		l.waits = slices.Delete(l.waits, at, at+1)
		q.leaveBusy(l)
	case !w.closed:
		q.places.Return(l.tenant, 1)
	}
	q.serve() // others may have waited behind it
}

// queuesMin is how many queues may exist before unneeded ones are dropped.
const queuesMin = 64

// queueOf returns a tenant's queue. One without waiters is needed only while its virtual time is ahead of the clock:
// the tenant already had its place in this round. mu is held.
func (q *Queue[Tenant]) queueOf(t Tenant) *tenantQueue[Tenant] {
	if l := q.queues[t]; l != nil {
		return l
	}
	if len(q.queues) >= queuesMin+2*len(q.busy) {
		maps.DeleteFunc(q.queues, func(_ Tenant, l *tenantQueue[Tenant]) bool {
			return len(l.waits) == 0 && l.virtualTime <= q.clock
		})
	}
	l := &tenantQueue[Tenant]{tenant: t}
	q.queues[t] = l
	return l
}

// serve gives free places to the next waiters. mu is held.
func (q *Queue[Tenant]) serve() {
	for l := q.next(); l != nil; l = q.next() {
		w := l.waits[0]
		l.waits = l.waits[1:]
		if l.tenant != q.first {
			q.clock = l.virtualTime
			l.virtualTime++
		}
		q.leaveBusy(l)
		close(w.ready)
	}
}

// next takes a place for the queue whose turn it is; nil when none can have one. mu is held.
func (q *Queue[Tenant]) next() *tenantQueue[Tenant] {
	var own, best *tenantQueue[Tenant]
	for _, l := range q.busy {
		switch {
		case l.tenant == q.first:
			own = l
		case q.places.Fits(l.tenant, q.weight, 1) && (best == nil || l.before(best)):
			best = l
		}
	}
	if own != nil && (best == nil || q.inRow < firstInRow) {
		if !q.places.Take(q.first, int(q.places.Size())+1, 1) {
			return nil
		}
		if best != nil {
			q.inRow++
		}
		return own
	}
	if best != nil {
		q.places.Take(best.tenant, q.weight, 1)
		q.inRow = 0
	}
	return best
}

// before reports whether l's turn comes before o's; of equal turns the longer wait comes first.
func (l *tenantQueue[Tenant]) before(o *tenantQueue[Tenant]) bool {
	return l.virtualTime < o.virtualTime || l.virtualTime == o.virtualTime && l.waits[0].number < o.waits[0].number
}

// leaveBusy removes a queue without waiters from busy. mu is held.
func (q *Queue[Tenant]) leaveBusy(l *tenantQueue[Tenant]) {
	if len(l.waits) > 0 {
		return
	}
	l.waits = nil
	if at := slices.Index(q.busy, l); at >= 0 {
		q.busy = slices.Delete(q.busy, at, at+1)
	}
}
