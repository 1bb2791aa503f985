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

// New makes a pool of size, all free.
func New[Tenant comparable](size int64) *Pool[Tenant] {
	return &Pool[Tenant]{size: max(size, 0), has: map[Tenant]int64{}}
}

// Take gives a tenant n more, or nothing, and reports which. Weight is at least 1: with 2 a tenant may have twice
// the free amount.
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

// Used returns what all tenants have together.
func (p *Pool[Tenant]) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Size returns the whole amount, taken or free.
func (p *Pool[Tenant]) Size() int64 { return p.size }

// Full lists the tenants that may not take another although one is free.
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

// Slots is a Pool of single places with waiting. Tenants take turns, the flows of a tenant (such as its files) take
// turns within those, and a flow is first come, first served. Safe for concurrent use.
type Slots[Tenant comparable] struct {
	pool   *Pool[Tenant]
	weight func(Tenant) int

	mu      sync.Mutex
	queues  map[Tenant]*queue[Tenant] // of waiting slots; none is empty
	ring    []Tenant                  // of waiting tenants, the next first
	waiting int
}

// queue has the waiting slots of one tenant.
type queue[Tenant comparable] struct {
	flows map[any]*list.List // of *Turn; none is empty
	ring  []any              // flows, the next first, and some that are empty
}

// push adds a slot at the end of its flow.
func (q *queue[Tenant]) push(t *Slot[Tenant]) {
	flow := q.flows[t.flow]
	if flow == nil {
		flow = list.New()
		q.flows[t.flow] = flow
		q.ring = append(q.ring, t.flow)
	}
	t.place = flow.PushBack(t)
}

func (q *queue[Tenant]) remove(t *Slot[Tenant]) {
	flow := q.flows[t.flow]
	flow.Remove(t.place)
	t.place = nil
	if flow.Len() == 0 {
		delete(q.flows, t.flow)
		q.ring = slices.DeleteFunc(q.ring, func(f any) bool { return f == t.flow })
	}
}

// next returns the next slot. The flows alternate: the slot after it is of another flow, if one waits.
func (q *queue[Tenant]) next() *Slot[Tenant] {
	first := q.ring[0]
	q.ring = append(q.ring[1:], first)
	return q.flows[first].Front().Value.(*Slot[Tenant])
}

// Slot is a place that a tenant has or waits for.
type Slot[Tenant comparable] struct {
	slots   *Slots[Tenant]
	tenant  Tenant
	flow    any
	granted func()
	place   *list.Element // nil: not waiting
	over    bool
}

// NewSlots makes size slots, all free. Weight is called each time; nil: all weights are equal.
func NewSlots[Tenant comparable](size int64, weight func(Tenant) int) *Slots[Tenant] {
	if weight == nil {
		weight = func(Tenant) int { return 1 }
	}
	return &Slots[Tenant]{pool: New[Tenant](size), weight: weight, queues: map[Tenant]*queue[Tenant]{}}
}

// Ask takes a place for a tenant, or waits for it in a flow of that tenant; nil is also a flow. After a wait,
// granted is called, from any goroutine, and must not block. Done returns the slot, or ends the wait.
func (q *Slots[Tenant]) Ask(t Tenant, flow any, granted func()) (slot *Slot[Tenant], now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	slot = &Slot[Tenant]{slots: q, tenant: t, flow: flow, granted: granted}
	waiting := q.queues[t]
	if waiting == nil && q.pool.Take(t, q.weight(t), 1) {
		return slot, true
	}
	if waiting == nil {
		waiting = &queue[Tenant]{flows: map[any]*list.List{}}
		q.queues[t] = waiting
		q.ring = append(q.ring, t)
	}
	waiting.push(slot)
	q.waiting++
	return slot, false
}

// Take takes a place for a tenant without waiting, and reports whether it got one. It does not overtake waiting
// slots of the same tenant.
func (q *Slots[Tenant]) Take(t Tenant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[t] == nil && q.pool.Take(t, q.weight(t), 1)
}

// Give returns a place from Take.
func (q *Slots[Tenant]) Give(t Tenant) {
	q.mu.Lock()
	q.pool.Return(t, 1)
	next := q.serve()
	q.mu.Unlock()
	for _, slot := range next {
		slot.granted()
	}
}

// Done returns the place, or ends the wait for it. It may be called twice.
func (t *Slot[Tenant]) Done() {
	q := t.slots
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
	for _, slot := range next {
		slot.granted()
	}
}

// leave removes a slot from its queue. Under mu.
func (q *Slots[Tenant]) leave(t *Slot[Tenant]) {
	waiting := q.queues[t.tenant]
	waiting.remove(t)
	q.waiting--
	if len(waiting.flows) == 0 {
		delete(q.queues, t.tenant)
	}
}

// serve grants free places to the next slots. Under mu.
func (q *Slots[Tenant]) serve() (granted []*Slot[Tenant]) {
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
		slot := waiting.next()
		q.leave(slot)
		granted, refused = append(granted, slot), 0
		if q.queues[t] != nil {
			q.ring = append(q.ring, t)
		}
	}
	return granted
}

// Enter takes a place for a tenant and waits for it until ctx ends; leave returns it.
func (q *Slots[Tenant]) Enter(ctx context.Context, t Tenant) (leave func(), err error) {
	there := make(chan struct{})
	slot, now := q.Ask(t, nil, func() { close(there) })
	if now {
		return slot.Done, nil
	}
	select {
	case <-there:
		return slot.Done, nil
	case <-ctx.Done():
		slot.Done()
		return nil, context.Cause(ctx)
	}
}

// Waiting returns the number of waiting slots of all tenants.
func (q *Slots[Tenant]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Waits reports whether a slot of a tenant waits.
func (q *Slots[Tenant]) Waits(t Tenant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[t] != nil
}

// Used returns the number of taken places.
func (q *Slots[Tenant]) Used() int64 { return q.pool.Used() }
