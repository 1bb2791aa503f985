package fairqueue_test

import (
	"testing"

	"pgregory.net/rapid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/config/effort"
)

// TestFIFO: items come out in the order in which they went in, also after the queue has moved them in its memory.
func TestFIFO(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		var q fairqueue.FIFO[int]
		in, out := 0, 0
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			for range rapid.SampledFrom([]int{1, 10, 3000}).Draw(rt, "push") {
				q.Push(in)
				in++
			}
			for range rapid.IntRange(0, q.Len()).Draw(rt, "pop") {
				next := q.Peek()
				effort.FatalIf(rt, next != out, "%d is next, want %d", next, out)
				got := q.Pop()
				effort.FatalIf(rt, got != out, "%d came out, want %d", got, out)
				out++
			}
			effort.FatalIf(rt, q.Len() != in-out, "%d wait, want %d", q.Len(), in-out)
		}
	})
}
