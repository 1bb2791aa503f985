package fairqueue

import (
	"container/heap"
	"math/rand/v2"
)

// entry is the place of one waiter in a heap.
type entry[T any] struct {
	of     T
	served float64 // what the waiter was given, divided by its weight
	held   float64 // what the waiter holds now; booked as served when given back
	order  uint64  // decides among equals: order of arrival, then a random number after each turn
	at     int     // place in entries, from 1; 0: not waiting
}

// entries implements heap.Interface: least served for its weight first.
type entries[T any] []*entry[T]

func (e entries[T]) Len() int { return len(e) }

func (e entries[T]) Less(i, j int) bool {
	a, b := e[i].served+e[i].held, e[j].served+e[j].held
	return a < b || a == b && e[i].order > e[j].order
}

func (e entries[T]) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].at, e[j].at = i+1, j+1
}

func (e *entries[T]) Push(x any) {
	one := x.(*entry[T])
	*e = append(*e, one)
	one.at = len(*e)
}

func (e *entries[T]) Pop() any {
	last := len(*e) - 1
	one := (*e)[last]
	(*e)[last] = nil
	*e, one.at = (*e)[:last], 0
	return one
}

// waiters holds the waiting entries in the order in which they are served. The zero value is ready.
type waiters[T any] struct {
	heap        entries[T]
	virtualTime float64 // what the first in the order was served; never falls
	arrivals    uint64
	draw        rand.PCG
}

// enter lets e wait. The entry starts level with the first in the order. A second call does nothing.
func (w *waiters[T]) enter(e *entry[T]) {
	if e.at > 0 {
		return
	}
	w.arrivals++
	e.served, e.order = max(e.served, w.virtualTime), w.arrivals
	heap.Push(&w.heap, e)
}

// leave takes e out. A second call does nothing.
func (w *waiters[T]) leave(e *entry[T]) {
	if e.at == 0 {
		return
	}
	heap.Remove(&w.heap, e.at-1)
	w.advance()
}

// first returns the entry that is served next; nil: none waits.
func (w *waiters[T]) first() *entry[T] {
	if len(w.heap) == 0 {
		return nil
	}
	return w.heap[0]
}

// charge books that e was served, whether or not it waits.
func (w *waiters[T]) charge(e *entry[T], cost float64) {
	e.served = max(e.served, w.virtualTime) + cost
	e.order = w.draw.Uint64() % (w.arrivals + 1)
	w.moved(e)
}

// chargeAhead books that e used something scarcer than service. chargeAhead puts e no further than most behind the
// first in the order.
func (w *waiters[T]) chargeAhead(e *entry[T], cost, most float64) {
	from := max(e.served, w.virtualTime)
	e.served = max(from, min(from+cost, w.virtualTime+most))
	w.moved(e)
}

// hold notes that e holds something. A cost below 0 notes that e gave it back.
func (w *waiters[T]) hold(e *entry[T], cost float64) {
	e.held += cost
	w.moved(e)
}

// moved restores the order after e has changed.
func (w *waiters[T]) moved(e *entry[T]) {
	if e.at > 0 {
		heap.Fix(&w.heap, e.at-1)
		w.advance()
	}
}

// forgettable reports whether e can be forgotten: as a new arrival it would be served no sooner.
func (w *waiters[T]) forgettable(e *entry[T]) bool {
	return e.at == 0 && (len(w.heap) == 0 || e.served <= w.virtualTime)
}

func (w *waiters[T]) advance() {
	if len(w.heap) > 0 {
		w.virtualTime = max(w.virtualTime, w.heap[0].served)
	}
}
