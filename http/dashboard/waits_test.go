package dashboard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	waiting "rollcall/actors/inspect"
	"rollcall/http/dashboard"
)

// nodes count how often they are asked, and answer one line when they are let.
type nodes struct {
	asked atomic.Int64
	let   chan struct{} // closed: they answer at once
	err   error
}

func (n *nodes) waits(context.Context, string) (waiting.Verification, error) {
	n.asked.Add(1)
	<-n.let
	return waiting.Verification{Waits: []waiting.Wait{{Addresses: 1, For: waiting.ForRoute}}}, n.err
}

// In a bubble time passes when everybody waits.
func TestNodesAreAskedOnceForAllPagesOfAVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{let: make(chan struct{})}
		now := time.Now()
		get := dashboard.NewWaits(n.waits, func() time.Time { return now })
		id := uuid.New()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if lines := get(t.Context(), id); lines != 1 {
					t.Errorf("%d lines, want 1", lines)
				}
			})
		}
		synctest.Wait()
		close(n.let)
		all.Wait()
		if got := n.asked.Load(); got != 1 {
			t.Errorf("8 pages have asked the nodes %d times", got)
		}
		for _, c := range []struct {
			after time.Duration
			want  int64
		}{{0, 1}, {1999 * time.Millisecond, 1}, {time.Millisecond, 2}, {time.Second, 2}} {
			now = now.Add(c.after)
			if lines := get(t.Context(), id); lines != 1 || n.asked.Load() != c.want {
				t.Errorf("%v later: %d lines, asked %d times, want %d", c.after, lines, n.asked.Load(), c.want)
			}
		}
		if get(t.Context(), uuid.New()); n.asked.Load() != 3 {
			t.Errorf("another verification: asked %d times", n.asked.Load())
		}
		n.err = errors.New("nobody answers")
		for range 2 { // no answer is believed as long as one
			if lines := get(t.Context(), uuid.UUID{1}); lines != 0 || n.asked.Load() != 4 {
				t.Errorf("%d lines of nobody, asked %d times", lines, n.asked.Load())
			}
		}
	})
}

func TestASlowNodeHoldsNoPageLongerThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{let: make(chan struct{})}
		get := dashboard.NewWaits(n.waits, time.Now)
		at := time.Now()
		for i := range 2 {
			if lines := get(t.Context(), uuid.UUID{1}); lines != 0 || time.Since(at) != time.Duration(i+1)*time.Second {
				t.Errorf("page %d had %d lines after %v", i+1, lines, time.Since(at))
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if get(gone, uuid.UUID{1}); time.Since(at) != 2*time.Second {
			t.Error("a page waits whose browser is gone")
		}
		if n.asked.Load() != 1 {
			t.Errorf("asked %d times at once", n.asked.Load())
		}
		close(n.let)
	})
}

func TestAnswersOfTheNodesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{let: make(chan struct{})}
		now := time.Now()
		get := dashboard.NewWaits(n.waits, func() time.Time { return now })
		gone, leave := context.WithCancel(t.Context())
		leave()
		for range dashboard.WaitsMax + 5 {
			get(gone, uuid.New())
		}
		synctest.Wait()
		if got := n.asked.Load(); got != dashboard.WaitsMax {
			t.Errorf("%d questions at once, want %d", got, dashboard.WaitsMax)
		}
		close(n.let)
		synctest.Wait()
		if lines := get(t.Context(), uuid.New()); lines != 0 {
			t.Error("more answers are kept than the bound")
		}
		now = now.Add(2 * time.Second)
		if lines := get(t.Context(), uuid.New()); lines != 1 {
			t.Error("answers that are not believed any more take the room of others")
		}
	})
}
