package receiver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/smtp/throttle"
)

// seated makes a registry with one actor for a key that allows so many connections.
func seated(connections int) (*Living, *seat) {
	l := NewLiving()
	l.Alone()
	return l, l.enter("x", func(string) throttle.Limits {
		a := openedWide()
		a.Connections = connections
		return a
	})
}

// dialled takes n sockets and begins work with each.
func dialled(t *testing.T, s *seat, n int, cancel func()) []*socket {
	t.Helper()
	slots := NewSlots(n)
	var out []*socket
	for range n {
		if !slots.Take() {
			t.Fatal("no slot")
		}
		one := s.dial(s.now.Load().turn, n, slots)
		if one == nil || !one.start(s.now.Load().turn, cancel) {
			t.Fatal("no socket")
		}
		out = append(out, one)
	}
	return out
}

// TestNothingBeforeTheFirstComply: a node that knows no share uses none.
func TestNothingBeforeTheFirstComply(t *testing.T) {
	l := NewLiving()
	s := l.enter("x", func(string) throttle.Limits { return openedWide() })
	if !s.now.Load().none() {
		t.Errorf("share %v", s.now.Load().part)
	}
	told := 0
	s.listen(func(any) { told++ })
	if err := l.Comply(t.Context(), of(1, 3)); err != nil {
		t.Fatal(err)
	}
	if err := l.Comply(t.Context(), of(2, 6)); err != nil {
		t.Fatal(err)
	}
	if now := s.now.Load(); now.k*3 != now.n || now.turn != 0 || told != 1 {
		t.Errorf("share %v at turn %d, told %d times of one change", now.part, now.turn, told)
	}
	if l.Count() != 1 {
		t.Errorf("%d actors", l.Count())
	}
	s.leave()
	s.leave()
	if l.Count() != 0 || len(l.places) != 0 {
		t.Errorf("%d actors and %d places when it is gone", l.Count(), len(l.places))
	}
}

// TestComplyWaits: for what is under way under a larger share, and for sockets
// above the new one, those of an actor that is gone included.
func TestComplyWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		k, n int
		ends func(sockets []*socket)
	}{
		{"nothing left: all closed", 0, 1, func(s []*socket) {
			for _, one := range s {
				one.close()
			}
		}},
		{"half: two closed, two at rest", 1, 2, func(s []*socket) {
			s[0].close()
			s[1].rest()
			s[2].rest()
			s[3].close()
			s[3].close()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, seat := seated(4)
				sockets := dialled(t, seat, 4, func() {})
				seat.leave()
				done := make(chan error, 1)
				go func() { done <- l.Comply(t.Context(), of(tc.k, tc.n)) }()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("complied with four sockets at work: %v", err)
				default:
				}
				tc.ends(sockets)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestComplyIsHardAfterAWhile: what does not end is ended, and Comply waits for that too.
func TestComplyIsHardAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, seat := seated(2)
		var cut sync.WaitGroup
		cut.Add(2)
		sockets := dialled(t, seat, 2, cut.Done)
		begun := time.Now()
		done := make(chan error, 1)
		go func() { done <- l.Comply(t.Context(), of(0, 1)) }()
		cut.Wait()
		if took := time.Since(begun); took != hardAfter {
			t.Errorf("ended after %s", took)
		}
		sockets[0].close()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("complied with one socket left")
		}
		sockets[1].close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestComplyEndsWithItsContext: the share holds nevertheless, also for the next call.
func TestComplyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, seat := seated(1)
		one := dialled(t, seat, 1, func() {})[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Comply(ctx, of(0, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if one.may(0) || seat.dial(1, 1, NewSlots(1)) != nil {
			t.Error("the old share holds on")
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Comply(ctx, of(0, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error of the second call %v", err)
		}
	})
}

// TestWhatWasPermittedBefore is not begun under a smaller share; under a larger one it is.
func TestWhatWasPermittedBefore(t *testing.T) {
	for _, tc := range []struct {
		name string
		k    int
		may  bool
	}{{"smaller", 1, false}, {"the same", 2, true}, {"larger", 3, true}} {
		l, seat := seated(9)
		l.adopt(of(2, 3))
		turn := seat.now.Load().turn
		one := seat.dial(turn, 9, NewSlots(9))
		l.adopt(of(tc.k, 3))
		if got := one.start(turn, func() {}); got != tc.may || one.may(turn) != tc.may {
			t.Errorf("%s: begun %v, may go on %v", tc.name, got, one.may(turn))
		}
		if next := seat.dial(turn, 9, NewSlots(9)); (next != nil) != tc.may {
			t.Errorf("%s: dialled %v", tc.name, next != nil)
		}
	}
}

// TestSocketsAreCountedOverActors: a second actor for a key has only what the first left.
func TestSocketsAreCountedOverActors(t *testing.T) {
	l, first := seated(3)
	sockets := dialled(t, first, 3, func() {})
	first.leave()
	second := l.enter("x", first.allow)
	if second.dial(0, 3, NewSlots(3)) != nil {
		t.Error("a fourth socket of three")
	}
	sockets[0].close()
	if second.dial(0, 3, NewSlots(3)) == nil {
		t.Error("no socket though one is free")
	}
}

// TestComplyWithManyAtOnce: actors come, dial, work and go while shares change.
func TestComplyWithManyAtOnce(t *testing.T) {
	l := NewLiving()
	l.Alone()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for ctx.Err() == nil {
				s := l.enter("x", func(string) throttle.Limits { return openedWide() })
				s.listen(func(any) {})
				now, slots := s.now.Load(), NewSlots(1)
				if one := s.dial(now.turn, now.of(openedWide()).Connections, slots); one != nil && slots.Take() {
					if one.start(now.turn, func() {}) {
						one.rest()
					}
					one.close()
				}
				s.leave()
			}
		})
	}
	for n := range 200 {
		if err := l.Comply(t.Context(), of(n%5, 4)); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		if p := l.places["x"]; p != nil && len(p.surplus()) > 0 {
			t.Error("above the share after Comply")
		}
		l.mu.Unlock()
	}
	cancel()
	running.Wait()
	if len(l.places) != 0 || l.Count() != 0 {
		t.Errorf("%d places, %d actors left", len(l.places), l.Count())
	}
}
