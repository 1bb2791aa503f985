package sqlstore

import "context"

// crowd lets several transactions in at once, or one alone: one that met others
// again and again gets through, however many there are in this process.
type crowd struct {
	places chan struct{} // one for each that may be in
	alone  chan struct{} // the right to take all places
}

func newCrowd(size int) crowd {
	c := crowd{places: make(chan struct{}, size), alone: make(chan struct{}, 1)}
	for range size {
		c.places <- struct{}{}
	}
	c.alone <- struct{}{}
	return c
}

// enter waits for a place, or for all of them, until ctx ends. leave gives back
// what it took.
func (c crowd) enter(ctx context.Context, alone bool) (leave func(), err error) {
	want, taken := 1, 0
	leave = func() {
		for range taken {
			c.places <- struct{}{}
		}
		if alone {
			c.alone <- struct{}{}
		}
	}
	if alone {
		want = cap(c.places)
		select {
		case <-c.alone:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for ; taken < want; taken++ {
		select {
		case <-c.places:
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
