package quota

import (
	"container/list"
	"context"
	"sync"
)

// Turns is a Pool of things that are taken one at a time, whose tenants wait for what they may not
// take yet. Of one tenant, who came first goes first; of the tenants, each has its turn. Safe for
// concurrent use.
type Turns[Tenant comparable] struct {
	pool   *Pool[Tenant]
	weight func(Tenant) int

	mu      sync.Mutex
	queues  map[Tenant]*list.List // of *Turn, those that wait; none is empty
	ring    []Tenant              // that wait, whose turn is next first
	waiting int
}

// Turn is what one of a tenant has, or waits for.
type Turn[Tenant comparable] struct {
	turns   *Turns[Tenant]
	tenant  Tenant
	granted func()
	place   *list.Element // nil: it does not wait
	over    bool
}

// NewTurns makes turns for size things, of which nobody has any. Weight is asked for again each time;
// nil: all tenants have the same.
func NewTurns[Tenant comparable](size int64, weight func(Tenant) int) *Turns[Tenant] {
	if weight == nil {
		weight = func(Tenant) int { return 1 }
	}
	return &Turns[Tenant]{pool: New[Tenant](size), weight: weight, queues: map[Tenant]*list.List{}}
}

// Ask takes one for a tenant, or waits for it: then granted is called when it is there, from any
// goroutine. It must not block. Whatever comes of it, Done ends it.
func (q *Turns[Tenant]) Ask(t Tenant, granted func()) (turn *Turn[Tenant], now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	turn = &Turn[Tenant]{turns: q, tenant: t, granted: granted}
	queue := q.queues[t]
	if queue == nil && q.pool.Take(t, q.weight(t), 1) {
		return turn, true
	}
	if queue == nil {
		queue = list.New()
		q.queues[t] = queue
		q.ring = append(q.ring, t)
	}
	turn.place = queue.PushBack(turn)
	q.waiting++
	return turn, false
}

// Take takes one for a tenant, or nothing and says false: nobody waits. It is not taken from those
// of the same tenant who do.
func (q *Turns[Tenant]) Take(t Tenant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[t] == nil && q.pool.Take(t, q.weight(t), 1)
}

// Give gives back what Take took.
func (q *Turns[Tenant]) Give(t Tenant) {
	q.mu.Lock()
	q.pool.Return(t, 1)
	next := q.serve()
	q.mu.Unlock()
	for _, turn := range next {
		turn.granted()
	}
}

// Done gives back what was taken, or ends the wait for it. Twice is fine.
func (t *Turn[Tenant]) Done() {
	q := t.turns
	q.mu.Lock()
	if t.over {
		q.mu.Unlock()
		return
	}
	t.over = true
	if t.place != nil {
		q.leave(t)
	} else {
		q.pool.Return(t.tenant, 1)
	}
	next := q.serve()
	q.mu.Unlock()
	for _, turn := range next {
		turn.granted()
	}
}

// leave takes a turn out of its queue. Under mu.
func (q *Turns[Tenant]) leave(t *Turn[Tenant]) {
	queue := q.queues[t.tenant]
	queue.Remove(t.place)
	t.place = nil
	q.waiting--
	if queue.Len() == 0 {
		delete(q.queues, t.tenant)
	}
}

// serve gives what there is to those whose turn it is. Under mu.
func (q *Turns[Tenant]) serve() (granted []*Turn[Tenant]) {
	for refused := 0; refused < len(q.ring); {
		t := q.ring[0]
		q.ring = q.ring[1:]
		queue := q.queues[t]
		if queue == nil {
			continue
		}
		if !q.pool.Take(t, q.weight(t), 1) {
			refused++
			q.ring = append(q.ring, t)
			continue
		}
		turn := queue.Front().Value.(*Turn[Tenant])
		q.leave(turn)
		granted, refused = append(granted, turn), 0
		if q.queues[t] != nil {
			q.ring = append(q.ring, t)
		}
	}
	return granted
}

// Enter takes one for a tenant, waits for it as long as ctx allows, and gives it back with leave.
func (q *Turns[Tenant]) Enter(ctx context.Context, t Tenant) (leave func(), err error) {
	there := make(chan struct{})
	turn, now := q.Ask(t, func() { close(there) })
	if now {
		return turn.Done, nil
	}
	select {
	case <-there:
		return turn.Done, nil
	case <-ctx.Done():
		turn.Done()
		return nil, context.Cause(ctx)
	}
}

// Waiting is how many wait, of all tenants.
func (q *Turns[Tenant]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Waits says whether one of a tenant waits.
func (q *Turns[Tenant]) Waits(t Tenant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[t] != nil
}

// Used is what all tenants have together.
func (q *Turns[Tenant]) Used() int64 { return q.pool.Used() }
