package quota

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

// Pool is a bounded amount that tenants share, such as places, bytes or connections. Safe for concurrent use.
type Pool[Tenant comparable] struct {
	mu   sync.Mutex
	size int64
	used int64
	has  map[Tenant]int64
}

// New makes a pool of size. Nobody has any of it yet.
func New[Tenant comparable](size int64) *Pool[Tenant] {
	return &Pool[Tenant]{size: max(size, 0), has: map[Tenant]int64{}}
}

// Take gives a tenant n more and reports whether it could; otherwise it gives nothing. Weight is at least 1: with 2 a
// tenant may have twice as much as is left.
func (p *Pool[Tenant]) Take(t Tenant, weight int, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(t, weight, n) {
		return false
	}
	p.used += n
	p.has[t] += n
	return true
}

// Fits reports whether Take would give it.
func (p *Pool[Tenant]) Fits(t Tenant, weight int, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fits(t, weight, n)
}

func (p *Pool[Tenant]) fits(t Tenant, weight int, n int64) bool {
	free := p.size - p.used
	return n >= 0 && n <= free && p.has[t]+n <= int64(max(weight, 1))*free
}

// Return takes back n of what a tenant has, at most all.
func (p *Pool[Tenant]) Return(t Tenant, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = max(0, min(n, p.has[t]))
	p.used -= n
	if p.has[t] -= n; p.has[t] == 0 {
		delete(p.has, t)
	}
}

// Has returns what a tenant has.
func (p *Pool[Tenant]) Has(t Tenant) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has[t]
}

// Used is what all tenants have together, and Size how much there is.
func (p *Pool[Tenant]) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Size is how much there is, taken or not.
func (p *Pool[Tenant]) Size() int64 { return p.size }

// Full lists the tenants that may not take one more although one is free.
func (p *Pool[Tenant]) Full(weight func(Tenant) int) []Tenant {
	p.mu.Lock()
	defer p.mu.Unlock()
	var full []Tenant
	for t := range p.has {
		if p.used < p.size && !p.fits(t, weight(t), 1) {
			full = append(full, t)
		}
	}
	return full
}

// Turns is a Pool of things that are taken one at a time; tenants wait for what they may not take yet. Tenants take
// turns, the flows of a tenant (such as its files) take turns within those, and within a flow the first comes first.
// Safe for concurrent use.
type Turns[Tenant comparable] struct {
	pool   *Pool[Tenant]
	weight func(Tenant) int

	mu      sync.Mutex
	queues  map[Tenant]*queue[Tenant] // of those that wait; none is empty
	ring    []Tenant                  // that wait, whose turn is next first
	waiting int
}

// queue are those of one tenant that wait.
type queue[Tenant comparable] struct {
	flows map[any]*list.List // of *Turn; none is empty
	ring  []any              // flows, whose turn is next first, and some that are gone
}

// push puts a turn behind the others of its flow.
func (q *queue[Tenant]) push(t *Turn[Tenant]) {
	flow := q.flows[t.flow]
	if flow == nil {
		flow = list.New()
		q.flows[t.flow] = flow
		q.ring = append(q.ring, t.flow)
	}
	t.place = flow.PushBack(t)
}

// remove takes a turn out.
func (q *queue[Tenant]) remove(t *Turn[Tenant]) {
	flow := q.flows[t.flow]
	flow.Remove(t.place)
	t.place = nil
	if flow.Len() == 0 {
		delete(q.flows, t.flow)
		q.ring = slices.DeleteFunc(q.ring, func(f any) bool { return f == t.flow })
	}
}

// next returns the turn that is next. The flows take turns: the one after it is of another flow, if another waits.
func (q *queue[Tenant]) next() *Turn[Tenant] {
	first := q.ring[0]
	q.ring = append(q.ring[1:], first)
	return q.flows[first].Front().Value.(*Turn[Tenant])
}

// Turn is one thing that a tenant has, or waits for.
type Turn[Tenant comparable] struct {
	turns   *Turns[Tenant]
	tenant  Tenant
	flow    any
	granted func()
	place   *list.Element // nil: it does not wait
	over    bool
}

// NewTurns makes turns for size things. Nobody has any yet. Weight is asked again each time; nil: all tenants have
// the same.
func NewTurns[Tenant comparable](size int64, weight func(Tenant) int) *Turns[Tenant] {
	if weight == nil {
		weight = func(Tenant) int { return 1 }
	}
	return &Turns[Tenant]{pool: New[Tenant](size), weight: weight, queues: map[Tenant]*queue[Tenant]{}}
}

// Ask takes one for a tenant, or waits for it in a flow of that tenant; nil is a flow too. If it waits, granted is called
// when its turn has come, from any goroutine, and must not block. Done ends the turn, whether it has waited or not.
func (q *Turns[Tenant]) Ask(t Tenant, flow any, granted func()) (turn *Turn[Tenant], now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	turn = &Turn[Tenant]{turns: q, tenant: t, flow: flow, granted: granted}
	waiting := q.queues[t]
	if waiting == nil && q.pool.Take(t, q.weight(t), 1) {
		return turn, true
	}
	if waiting == nil {
		waiting = &queue[Tenant]{flows: map[any]*list.List{}}
		q.queues[t] = waiting
		q.ring = append(q.ring, t)
	}
	waiting.push(turn)
	q.waiting++
	return turn, false
}

// Take takes one for a tenant without waiting, and reports whether there was one. It goes before nobody of the same
// tenant who waits.
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
	waiting := q.queues[t.tenant]
	waiting.remove(t)
	q.waiting--
	if len(waiting.flows) == 0 {
		delete(q.queues, t.tenant)
	}
}

// serve gives what there is to those whose turn it is. Under mu.
func (q *Turns[Tenant]) serve() (granted []*Turn[Tenant]) {
	for refused := 0; refused < len(q.ring); {
		t := q.ring[0]
		q.ring = q.ring[1:]
		waiting := q.queues[t]
		if waiting == nil {
			continue
		}
		if !q.pool.Take(t, q.weight(t), 1) {
			refused++
			q.ring = append(q.ring, t)
			continue
		}
		turn := waiting.next()
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
	turn, now := q.Ask(t, nil, func() { close(there) })
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

// Waiting counts those who wait, of all tenants.
func (q *Turns[Tenant]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Waits reports whether one of a tenant waits.
func (q *Turns[Tenant]) Waits(t Tenant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[t] != nil
}

// Used is what all tenants have together.
func (q *Turns[Tenant]) Used() int64 { return q.pool.Used() }
