package fairqueue

// FIFO is a queue: first in, first out. The zero value is ready.
type FIFO[T any] struct {
	items []T
	head  int
}

// Len returns how many items wait.
func (f *FIFO[T]) Len() int { return len(f.items) - f.head }

// Push adds an item behind all others.
func (f *FIFO[T]) Push(v T) { f.items = append(f.items, v) }

// Peek returns the next item. The queue must not be empty.
func (f *FIFO[T]) Peek() T { return f.items[f.head] }

// Pop removes and returns the next item. The queue must not be empty.
func (f *FIFO[T]) Pop() T {
	var none T
	v := f.items[f.head]
	f.items[f.head] = none
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	} else if f.head >= 1024 && f.head*2 >= len(f.items) { // so each item is moved at most once
		kept := copy(f.items, f.items[f.head:])
		clear(f.items[kept:])
		f.items, f.head = f.items[:kept], 0
	}
	return v
}
