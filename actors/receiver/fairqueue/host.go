package fairqueue

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

const (
	// localEvery: one item in this many goes to the flow that this host queue served least. So a flow that gets much
	// elsewhere still gets a part here.
	localEvery = 4

	// comparedMax bounds how many waiters of a host queue are compared. Only the waiters that the host queue served least
	// are compared. So a choice costs 16 comparisons, however many wait.
	comparedMax = 16
)

// HostQueue holds the items that wait for one set of hosts.
type HostQueue[T any] struct {
	queue      *Queue[T]
	key        string
	workspaces map[*tenant[T]]*workspaceQueue[T] // workspaces with something queued now or lately
	order      waiters[*workspaceQueue[T]]
	queued     int
	pops       uint
	sessions   int
	unserved   bool // something is queued and there is no session; queue.unserved counts it
	aside      bool // no session is opened for this host queue for now
}

// workspaceQueue holds the items of one tenant in a host queue.
type workspaceQueue[T any] struct {
	entry         entry[*workspaceQueue[T]]
	tenant        *tenant[T]
	queued        int
	verifications map[*Flow[T]]*verificationQueue[T]
	order         waiters[*verificationQueue[T]]
}

// verificationQueue holds the items of one flow in a host queue.
type verificationQueue[T any] struct {
	mixed[T]
	entry     entry[*verificationQueue[T]]
	workspace *workspaceQueue[T]
	flow      *Flow[T]
	host      *HostQueue[T]
	listed    bool // listed in flow.waiting
}

// NewHostQueue makes an empty host queue. The caller may use key as it likes.
func (q *Queue[T]) NewHostQueue(key string) *HostQueue[T] {
	return &HostQueue[T]{queue: q, key: key, workspaces: map[*tenant[T]]*workspaceQueue[T]{}}
}

// Key returns the key that NewHostQueue got.
func (h *HostQueue[T]) Key() string { return h.key }

// Queued returns how many items wait.
func (h *HostQueue[T]) Queued() int { return h.queued }

// Sessions returns how many sessions the host queue has.
func (h *HostQueue[T]) Sessions() int { return h.sessions }

// Aside reports whether the host queue is set aside.
func (h *HostQueue[T]) Aside() bool { return h.aside }

// Waiting returns, for each workspace with items in the host queue, one of its flows.
func (h *HostQueue[T]) Waiting() iter.Seq[*Flow[T]] {
	return func(yield func(*Flow[T]) bool) {
		for _, e := range h.order.heap {
			if !yield(e.of.leastServed().flow) {
				return
			}
		}
	}
}

// Push queues an item behind the others of its flow.
func (h *HostQueue[T]) Push(f *Flow[T], item T, class Class) {
	w := h.workspaces[f.tenant]
	if w == nil {
		w = &workspaceQueue[T]{tenant: f.tenant, verifications: map[*Flow[T]]*verificationQueue[T]{}}
		w.entry.of = w
		h.workspaces[f.tenant] = w
	}
	v := w.verifications[f]
	if v == nil {
		v = &verificationQueue[T]{workspace: w, flow: f, host: h}
		v.entry.of = v
		w.verifications[f] = v
	}
	v.push(item, class)
	w.queued++
	h.queued++
	w.order.enter(&v.entry)
	h.order.enter(&w.entry)
	h.queue.count(f, 1)
	if h.sessions == 0 && !h.aside {
		h.queue.want(v)
	}
	h.noteUnserved()
}

// Pop removes and returns the item to ask next, and its flow. There must be an item. The flow is the one that the whole
// receiver served least or, one time in localEvery, the one that this host queue served least.
func (h *HostQueue[T]) Pop() (T, *Flow[T]) {
	h.pops++
	w := h.order.first().of
	v := w.order.first().of
	if h.pops%localEvery != 0 {
		w = h.leastServed()
		v = w.leastServed()
	}
	item := v.pop()
	w.queued--
	h.queued--
	w.order.charge(&v.entry, 1)
	h.order.charge(&w.entry, 1/float64(w.tenant.weight))
	h.leaveIfEmpty(v)
	h.queue.count(v.flow, -1)
	h.noteUnserved()
	return item, v.flow
}

// ChargeScarce books that an item of a flow, asked in this host queue, used something scarce, such as a refusal that
// the receiver tolerates. The use is worth a number of turns. Flows that used less of it come first. A single flow
// isn't slowed. A new flow starts level with the first flow. No flow falls back by more than most turns.
func (h *HostQueue[T]) ChargeScarce(now time.Time, f *Flow[T], turns, most float64) {
	t, weight := f.tenant, float64(f.tenant.weight)
	f.scarceAt, t.scarceAt = now, now
	t.asked.chargeAhead(&f.asking, turns, most)
	h.queue.asked.chargeAhead(&t.asking, turns/weight, most/weight)
	w := h.workspaces[t]
	if w == nil {
		return
	}
	h.order.chargeAhead(&w.entry, turns/weight, most/weight)
	if v := w.verifications[f]; v != nil {
		w.order.chargeAhead(&v.entry, turns, most)
	}
}

// leastServed returns the tenant that the whole receiver served least.
func (h *HostQueue[T]) leastServed() *workspaceQueue[T] {
	return leastOf(h.order.heap, func(w *workspaceQueue[T]) float64 { return w.tenant.asking.served })
}

// leastServed returns the flow that the whole receiver served least.
func (w *workspaceQueue[T]) leastServed() *verificationQueue[T] {
	return leastOf(w.order.heap, func(v *verificationQueue[T]) float64 { return v.flow.asking.served })
}

// leastOf returns the entry with the smallest value, among comparedMax of a heap. The heap isn't empty.
func leastOf[W any](heap entries[W], served func(W) float64) W {
	return slices.MinFunc(heap[:min(len(heap), comparedMax)], func(a, b *entry[W]) int {
		return cmp.Compare(served(a.of), served(b.of))
	}).of
}

// leaveIfEmpty takes a flow or tenant without items out of the orders of the host queue.
func (h *HostQueue[T]) leaveIfEmpty(v *verificationQueue[T]) {
	if v.len() == 0 {
		v.workspace.order.leave(&v.entry)
	}
	if v.workspace.queued == 0 {
		h.order.leave(&v.workspace.entry)
	}
}

// Remove removes the items for which gone returns true.
func (h *HostQueue[T]) Remove(gone func(item T) bool) {
	for _, w := range h.workspaces {
		for f, v := range w.verifications {
			n := v.remove(gone)
			w.queued -= n
			h.queued -= n
			h.leaveIfEmpty(v)
			if n > 0 {
				h.queue.count(f, -n)
			}
		}
	}
	h.noteUnserved()
}

// Opened notes that the host queue has one more session, opened in the name of a flow.
func (h *HostQueue[T]) Opened(f *Flow[T]) {
	h.queue.open(f)
	h.sessions++
	h.noteUnserved()
}

// Closed notes that a session opened in the name of a flow has ended, and how many full turns it took.
func (h *HostQueue[T]) Closed(f *Flow[T], turns float64) {
	h.queue.close(f, turns)
	h.sessions--
	h.want()
	h.noteUnserved()
}

// SetAside opens no more sessions for the host queue until Readmit.
func (h *HostQueue[T]) SetAside() { h.aside = true }

// Readmit ends SetAside.
func (h *HostQueue[T]) Readmit() {
	h.aside = false
	h.want()
}

// want puts a host queue without a session into the session order of every flow that waits in it.
func (h *HostQueue[T]) want() {
	if h.aside || h.sessions > 0 {
		return
	}
	for _, w := range h.order.heap {
		for _, v := range w.of.order.heap {
			h.queue.want(v.of)
		}
	}
}

// noteUnserved keeps count of the host queues that have items and no session.
func (h *HostQueue[T]) noteUnserved() {
	unserved := h.queued > 0 && h.sessions == 0
	if unserved == h.unserved {
		return
	}
	if h.unserved = unserved; unserved {
		h.queue.unserved++
	} else {
		h.queue.unserved--
	}
}

// Forget drops flows and tenants that have nothing queued and would gain nothing by a new start.
func (h *HostQueue[T]) Forget() {
	for t, w := range h.workspaces {
		maps.DeleteFunc(w.verifications, func(_ *Flow[T], v *verificationQueue[T]) bool {
			return w.order.forgettable(&v.entry) && !v.listed
		})
		if len(w.verifications) == 0 && h.order.forgettable(&w.entry) {
			delete(h.workspaces, t)
		}
	}
}

// First returns the flow that this host queue served least; nil: nothing is queued.
func (h *HostQueue[T]) First() *Flow[T] {
	w := h.order.first()
	if w == nil {
		return nil
	}
	return w.of.order.first().of.flow
}

// Rank is the place of a host queue in the order for items. Rank is the place of the flow that Pop serves next.
type Rank struct{ tenant, flow float64 }

// Rank returns the place of the host queue. Something must be queued in it.
func (h *HostQueue[T]) Rank() Rank {
	w := h.leastServed()
	return Rank{w.tenant.asking.served, w.leastServed().flow.asking.served}
}

// Compare returns below 0 if r comes before o, and above 0 if it comes after.
func (r Rank) Compare(o Rank) int {
	return cmp.Or(cmp.Compare(r.tenant, o.tenant), cmp.Compare(r.flow, o.flow))
}

// Ahead reports whether r was served more than o, by more than a number of turns.
func (r Rank) Ahead(o Rank, turns float64) bool {
	return r.tenant > o.tenant+turns || r.tenant == o.tenant && r.flow > o.flow+turns
}
