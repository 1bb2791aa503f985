package quota

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"
)

// firstInRow is how many places in a row go to the first tenant while others wait. Its work is small. Without the
// bound a fault in that work could stop all others. Guess.
const firstInRow = 16

// Slots is a Pool of single places with waiting. Each tenant has a queue, and the queues take turns: one place each,
// whatever their length (start-time fair queueing with a cost of 1: P. Goyal, H. M. Vin and H. Cheng, IEEE/ACM
// Transactions on Networking 5(5), 1997). A new tenant waits for at most one place of each other tenant. The flows of a
// tenant (such as its files) take turns within those, and a flow is first come, first served.
//
// One tenant may go first and may then have all places, because all others depend on its work. Safe for concurrent use.
type Slots[Tenant comparable] struct {
	pool   *Pool[Tenant]
	weight func(Tenant) int
	first  *Tenant // nil: none goes first

	mu      sync.Mutex
	queues  map[Tenant]*queue[Tenant] // with waiting slots, or with a virtual time ahead of the clock
	busy    []*queue[Tenant]          // with waiting slots, the one that waits longest first
	clock   int64                     // the virtual time now
	inRow   int                       // places in a row for the first tenant while others waited
	waiting int
}

// queue has the waiting slots of one tenant.
type queue[Tenant comparable] struct {
	tenant      Tenant
	virtualTime int64              // of its next place
	flows       map[any]*list.List // of *Slot; none is empty
	ring        []any              // flows, the next first
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
	queue   *queue[Tenant]
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

// NewSlotsFirst makes size slots of which one tenant may have all, and before others.
func NewSlotsFirst[Tenant comparable](size int64, weight func(Tenant) int, first Tenant) *Slots[Tenant] {
	q := NewSlots(size, func(t Tenant) int {
		if t == first {
			return int(size) + 1
		}
		return weight(t)
	})
	q.first = &first
	return q
}

// Ask takes a place for a tenant, or waits for it in a flow of that tenant; nil is also a flow. After a wait,
// granted is called, from any goroutine, and must not block. Done returns the slot, or ends the wait.
func (q *Slots[Tenant]) Ask(t Tenant, flow any, granted func()) (slot *Slot[Tenant], now bool) {
	return q.ask(t, flow, granted, (*list.List).PushBack)
}

// AskAgain is Ask for a caller that had a place and needs another for the same work. It precedes others of its flow.
func (q *Slots[Tenant]) AskAgain(t Tenant, flow any, granted func()) (slot *Slot[Tenant], now bool) {
	return q.ask(t, flow, granted, (*list.List).PushFront)
}

func (q *Slots[Tenant]) ask(t Tenant, flow any, granted func(), push func(*list.List, any) *list.Element) (
	slot *Slot[Tenant], now bool) {
	q.mu.Lock()
	own := q.queueOf(t)
	if len(own.flows) == 0 {
		own.virtualTime = max(own.virtualTime, q.clock)
		q.busy = append(q.busy, own)
	}
	if own.flows[flow] == nil {
		own.flows[flow] = list.New()
		own.ring = append(own.ring, flow)
	}
	slot = &Slot[Tenant]{slots: q, queue: own, flow: flow, granted: granted}
	slot.place = push(own.flows[flow], slot)
	q.waiting++
	next := q.serve()
	q.mu.Unlock()
	for _, s := range next {
		if now = now || s == slot; s != slot {
			s.granted()
		}
	}
	return slot, now
}

// queuesMin is how many queues may exist before unneeded ones are dropped.
const queuesMin = 64

// queueOf returns a tenant's queue. One without waiting slots is needed only while its virtual time is ahead of the
// clock: the tenant already had its place in this round. Under mu.
func (q *Slots[Tenant]) queueOf(t Tenant) *queue[Tenant] {
	if own := q.queues[t]; own != nil {
		return own
	}
	if len(q.queues) >= queuesMin+2*len(q.busy) {
		maps.DeleteFunc(q.queues, func(_ Tenant, o *queue[Tenant]) bool {
			return len(o.flows) == 0 && o.virtualTime <= q.clock
		})
	}
	own := &queue[Tenant]{tenant: t, flows: map[any]*list.List{}}
	q.queues[t] = own
	return own
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
		q.pool.Return(t.queue.tenant, 1)
	}
	next := q.serve() // others may have waited behind it
	q.mu.Unlock()
	for _, slot := range next {
		slot.granted()
	}
}

// leave removes a slot from its queue. Under mu.
func (q *Slots[Tenant]) leave(t *Slot[Tenant]) {
	own := t.queue
	flow := own.flows[t.flow]
	flow.Remove(t.place)
	t.place = nil
	q.waiting--
	if flow.Len() == 0 {
		delete(own.flows, t.flow)
		own.ring = slices.DeleteFunc(own.ring, func(f any) bool { return f == t.flow })
	}
	if len(own.flows) == 0 {
		q.busy = slices.DeleteFunc(q.busy, func(o *queue[Tenant]) bool { return o == own })
	}
}

// serve grants free places to the next slots. Under mu.
func (q *Slots[Tenant]) serve() (granted []*Slot[Tenant]) {
	for own := q.next(); own != nil; own = q.next() {
		if !q.isFirst(own) {
			q.clock = own.virtualTime
			own.virtualTime++
		}
		slot := own.next()
		q.leave(slot)
		granted = append(granted, slot)
	}
	return granted
}

func (q *Slots[Tenant]) isFirst(own *queue[Tenant]) bool {
	return q.first != nil && own.tenant == *q.first
}

// next takes a place for the queue whose turn it is; nil when none can have one. Under mu.
func (q *Slots[Tenant]) next() *queue[Tenant] {
	var first, best *queue[Tenant]
	for _, own := range q.busy {
		switch {
		case q.isFirst(own):
			first = own
		case (best == nil || own.virtualTime < best.virtualTime) && q.pool.Fits(own.tenant, q.weight(own.tenant), 1):
			best = own
		}
	}
	own := best
	switch {
	case first != nil && best == nil:
		own = first
	case first != nil && q.inRow < firstInRow:
		own = first
		q.inRow++
	case best != nil:
		q.inRow = 0
	}
	if own == nil || !q.pool.Take(own.tenant, q.weight(own.tenant), 1) {
		return nil
	}
	return own
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
	own := q.queues[t]
	return own != nil && len(own.flows) > 0
}

// Used returns the number of taken places.
func (q *Slots[Tenant]) Used() int64 { return q.pool.Used() }
