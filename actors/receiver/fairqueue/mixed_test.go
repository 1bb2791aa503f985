package fairqueue_test

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/config/effort"
)

// numbered is an item of a test.
type numbered struct {
	number int
	class  fairqueue.Class
}

// TestClasses: nothing is lost, those of a class keep their order, first ones come first, and of those that are due
// again two for each other.
func TestClasses(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		q := fairqueue.New[numbered](nil)
		h := q.NewHostQueue("mx")
		f := q.Flow(uuid.UUID{1}, uuid.UUID{2})
		waiting, last, retries := map[fairqueue.Class]int{}, map[fairqueue.Class]int{}, 0
		pop := func() {
			one, _ := h.Pop()
			if waiting[fairqueue.First] > 0 && one.class != fairqueue.First {
				rt.Fatalf("%d came while %d first ones wait", one.number, waiting[fairqueue.First])
			}
			isRetry := one.class == fairqueue.Retry
			if one.class != fairqueue.First && waiting[fairqueue.Normal] > 0 && waiting[fairqueue.Retry] > 0 &&
				isRetry != (retries < fairqueue.RetriesInRow) {
				rt.Fatalf("%d came after %d retries in a row while %v wait", one.number, retries, waiting)
			}
			waiting[one.class]--
			switch one.class {
			case fairqueue.Normal:
				retries = 0
			case fairqueue.Retry:
				retries++
			}
			if one.number <= last[one.class] {
				rt.Fatalf("%d came after %d", one.number, last[one.class])
			}
			last[one.class] = one.number
		}
		for n := range rapid.IntRange(1, 100).Draw(rt, "items") {
			class := rapid.SampledFrom([]fairqueue.Class{fairqueue.Normal, fairqueue.First, fairqueue.Retry}).
				Draw(rt, "class")
			h.Push(f, numbered{n + 1, class}, class)
			waiting[class]++
			for h.Queued() > 0 && rapid.Bool().Draw(rt, "pop") {
				pop()
			}
		}
		for h.Queued() > 0 {
			pop()
		}
		if waiting[fairqueue.Normal]+waiting[fairqueue.First]+waiting[fairqueue.Retry] != 0 {
			rt.Fatalf("lost: %v", waiting)
		}
	})
}
