package fairqueue

import (
	"time"

	"github.com/google/uuid"
)

const (
	// forgetFor is how long the service of a flow without waiting items is remembered, so that its next items don't
	// overtake the items of other flows. A verification sends its next chunk within seconds. After a minute without one it
	// has paused.
	forgetFor = time.Minute

	// scarceFor is the same for a flow that used something scarce. Refusals count by the hour: otherwise a flow that comes
	// back each minute with a bad address would use all refusals.
	scarceFor = time.Hour

	// openCost is which part of a session's full turn it costs to open one: 100 ms of 5 s. At 25 ms a round trip this is
	// connecting, greeting, EHLO and QUIT.
	openCost = 0.02
)

// tenant is a workspace with items here, now or lately.
type tenant[T any] struct {
	id     uuid.UUID
	weight int
	queued int // items that wait
	flows  map[uuid.UUID]*Flow[T]

	asking   entry[*tenant[T]] // place in the order for items
	opening  entry[*tenant[T]] // place in the order for sessions; waits while a host queue of the tenant has none
	asked    waiters[*Flow[T]]
	opened   waiters[*Flow[T]]
	scarceAt time.Time // when something scarce was last used; zero: never
}

// Flow is one verification of a tenant.
type Flow[T any] struct {
	id     uuid.UUID
	tenant *tenant[T]
	queued int

	asking  entry[*Flow[T]]
	opening entry[*Flow[T]]
	waiting FIFO[*verificationQueue[T]] // host queues without a session, and some that have got one

	chargedAt time.Time // when the flow was last charged; zero: never
	held      []float64 // for each of its sessions, the cost booked to its tenant
	scarceAt  time.Time // when something scarce was last used; zero: never
}

// Queued returns how many items of the flow wait.
func (f *Flow[T]) Queued() int { return f.queued }

// Workspace returns the workspace of the flow.
func (f *Flow[T]) Workspace() uuid.UUID { return f.tenant.id }

// Weight returns the weight of the flow's tenant.
func (f *Flow[T]) Weight() int { return f.tenant.weight }

// Queue decides whom a receiver serves next, over all its host queues.
type Queue[T any] struct {
	weight   func(workspace uuid.UUID) int // nil: all weigh the same
	tenants  map[uuid.UUID]*tenant[T]
	asked    waiters[*tenant[T]]
	opened   waiters[*tenant[T]]
	queued   int // items that wait
	unserved int // host queues with items and no session
}

// New makes a queue. weight returns the weight of a workspace; nil: all weigh the same.
func New[T any](weight func(workspace uuid.UUID) int) *Queue[T] {
	return &Queue[T]{weight: weight, tenants: map[uuid.UUID]*tenant[T]{}}
}

// Queued returns how many items wait.
func (q *Queue[T]) Queued() int { return q.queued }

// Unserved returns how many host queues have items and no session.
func (q *Queue[T]) Unserved() int { return q.unserved }

// Tenants returns how many workspaces are remembered.
func (q *Queue[T]) Tenants() int { return len(q.tenants) }

// Flow returns the flow of a verification, or makes a new flow.
func (q *Queue[T]) Flow(workspace, verification uuid.UUID) *Flow[T] {
	t := q.tenants[workspace]
	if t == nil {
		t = &tenant[T]{id: workspace, weight: q.weigh(workspace), flows: map[uuid.UUID]*Flow[T]{}}
		t.asking.of, t.opening.of = t, t
		q.tenants[workspace] = t
	}
	f := t.flows[verification]
	if f == nil {
		f = &Flow[T]{id: verification, tenant: t}
		f.asking.of, f.opening.of = f, f
		t.flows[verification] = f
	}
	return f
}

func (q *Queue[T]) weigh(workspace uuid.UUID) int {
	if q.weight == nil {
		return 1
	}
	return max(1, q.weight(workspace))
}

// count notes that n more items wait; n may be negative.
func (q *Queue[T]) count(f *Flow[T], n int) {
	t := f.tenant
	q.queued += n
	f.queued += n
	t.queued += n
	if f.queued > 0 {
		t.asked.enter(&f.asking)
	} else {
		t.asked.leave(&f.asking)
	}
	if t.queued > 0 {
		q.asked.enter(&t.asking)
	} else {
		q.asked.leave(&t.asking)
	}
}

// Charge books that an item of a flow was given to a session. A popped item that is dropped costs nothing.
func (q *Queue[T]) Charge(now time.Time, f *Flow[T]) {
	f.chargedAt = now
	f.tenant.asked.charge(&f.asking, 1)
	q.asked.charge(&f.tenant.asking, 1/float64(f.tenant.weight))
}

// Room returns how many more items of a flow may wait; most is the bound for all flows together. A tenant may use as
// much as it leaves free: half if it is alone, a third beside another tenant. Within a tenant's part the same holds for
// its flows.
func (q *Queue[T]) Room(f *Flow[T], most int) int {
	return (most-(q.queued-f.tenant.queued))/2 - f.tenant.queued - f.queued
}

// want puts a flow's items in a host queue into the order for sessions.
func (q *Queue[T]) want(v *verificationQueue[T]) {
	if v.listed {
		return
	}
	v.listed = true
	f := v.flow
	f.waiting.Push(v)
	f.tenant.opened.enter(&f.opening)
	q.opened.enter(&f.tenant.opening)
}

// Next returns the host queue that gets the next session, and the flow in whose name the session is opened; nil: no
// host queue waits for a session.
func (q *Queue[T]) Next() (*HostQueue[T], *Flow[T]) {
	for {
		t := q.opened.first()
		if t == nil {
			return nil, nil
		}
		f := t.of.opened.first().of
		if v := f.waiting.Peek(); v.len() > 0 && v.host.sessions == 0 && !v.host.aside {
			return v.host, f
		}
		q.unlist(f)
	}
}

// unlist takes a flow's next host queue out of the order for sessions.
func (q *Queue[T]) unlist(f *Flow[T]) {
	f.waiting.Pop().listed = false
	if f.waiting.Len() == 0 {
		f.tenant.opened.leave(&f.opening)
		if len(f.tenant.opened.heap) == 0 {
			q.opened.leave(&f.tenant.opening)
		}
	}
}

// open notes that a flow has one more session.
func (q *Queue[T]) open(f *Flow[T]) {
	cost := 1 / float64(f.tenant.weight)
	f.tenant.opened.hold(&f.opening, 1)
	q.opened.hold(&f.tenant.opening, cost)
	f.held = append(f.held, cost)
}

// close notes that a session of a flow has ended, and how many full turns it took.
func (q *Queue[T]) close(f *Flow[T], turns float64) {
	last := len(f.held) - 1
	f.tenant.opened.hold(&f.opening, -1)
	q.opened.hold(&f.tenant.opening, -f.held[last])
	f.held = f.held[:last]
	turns = max(openCost, turns)
	f.tenant.opened.charge(&f.opening, turns)
	q.opened.charge(&f.tenant.opening, turns/float64(f.tenant.weight))
}

// Contended reports whether items of more than one flow wait.
func (q *Queue[T]) Contended() bool {
	tenants := q.asked.heap
	return len(tenants) > 1 || len(tenants) == 1 && len(tenants[0].of.asked.heap) > 1
}

// Sweep forgets flows that have had no waiting items for forgetFor, or for scarceFor if they used something scarce.
// Sweep reads the weights again.
func (q *Queue[T]) Sweep(now time.Time) {
	for id, t := range q.tenants {
		t.weight = q.weigh(id)
		for id, f := range t.flows {
			if f.queued == 0 && f.waiting.Len() == 0 && len(f.held) == 0 && now.Sub(f.chargedAt) >= forgetFor &&
				(t.asked.forgettable(&f.asking) || now.Sub(f.scarceAt) >= scarceFor) {
				delete(t.flows, id)
			}
		}
		if len(t.flows) == 0 && (q.asked.forgettable(&t.asking) || now.Sub(t.scarceAt) >= scarceFor) {
			delete(q.tenants, id)
		}
	}
}

// Fraction returns the fraction of all service that a flow can expect, by the weights of all that have waiting items.
// The flow itself is counted too.
func (q *Queue[T]) Fraction(f *Flow[T]) float64 {
	weights, flows := 0, len(f.tenant.asked.heap)
	for _, e := range q.asked.heap {
		weights += e.of.weight
	}
	if f.tenant.asking.at == 0 {
		weights += f.tenant.weight
	}
	if f.asking.at == 0 {
		flows++
	}
	return float64(f.tenant.weight) / float64(weights) / float64(flows)
}
