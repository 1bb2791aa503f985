package fairqueue

// RetriesInRow is how many items that are due again are given out in a row while others of the same flow wait: if they
// fail each time, others still have their turn.
const RetriesInRow = 2

// Class says how an item is treated among the others of its flow.
type Class uint8

const (
	// Normal items come out in the order in which they came in.
	Normal Class = iota
	// First items come out before all others of their flow.
	First
	// Retry items come next, before those that were never given out, RetriesInRow of them.
	Retry
)

// mixed is a queue of items by class. The zero value is ready.
type mixed[T any] struct {
	first, retry, normal FIFO[T]
	retries              int // how many of Retry came out last
}

func (m *mixed[T]) len() int { return m.first.Len() + m.retry.Len() + m.normal.Len() }

func (m *mixed[T]) push(item T, class Class) {
	switch class {
	case First:
		m.first.Push(item)
	case Retry:
		m.retry.Push(item)
	default:
		m.normal.Push(item)
	}
}

// pop takes the next item, which there must be.
func (m *mixed[T]) pop() T {
	if m.first.Len() > 0 {
		return m.first.Pop()
	}
	if m.retry.Len() > 0 && (m.normal.Len() == 0 || m.retries < RetriesInRow) {
		m.retries++
		return m.retry.Pop()
	}
	m.retries = 0
	return m.normal.Pop()
}

// remove takes out the items that are to go and returns how many these were.
func (m *mixed[T]) remove(gone func(item T) bool) (removed int) {
	for _, part := range [...]*FIFO[T]{&m.first, &m.retry, &m.normal} {
		for range part.Len() {
			if one := part.Pop(); gone(one) {
				removed++
			} else {
				part.Push(one)
			}
		}
	}
	return removed
}
