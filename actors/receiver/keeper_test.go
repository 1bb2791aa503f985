package receiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/actors/receiver/state"
)

// shelf keeps facts in memory.
type shelf struct {
	mu     sync.Mutex
	facts  map[string]state.Fact
	learns []int // facts of each Learn
	knowns []int // keys of each Known
	at     []time.Time
	fails  int           // so many calls fail
	takes  time.Duration // each call
}

func newShelf() *shelf { return &shelf{facts: map[string]state.Fact{}} }

func (s *shelf) call(ctx context.Context) error {
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return errors.New("ledger is gone")
	}
	return nil
}

// Learn implements state.Facts.
func (s *shelf) Learn(ctx context.Context, facts []state.Fact) error {
	if err := s.call(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learns, s.at = append(s.learns, len(facts)), append(s.at, time.Now())
	for _, f := range facts {
		s.facts[f.Key] = f
	}
	return nil
}

// Known implements state.Facts.
func (s *shelf) Known(ctx context.Context, keys []string) ([]state.Fact, error) {
	if err := s.call(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knowns = append(s.knowns, len(keys))
	var out []state.Fact
	for _, key := range keys {
		if f, ok := s.facts[key]; ok {
			out = append(out, f)
		}
	}
	return out, nil
}

func keeperOf(s *shelf) *keeper {
	o := testOptions(openedWide())
	o.Facts = s
	return newKeeper(o)
}

func aFact(key, data string) state.Fact {
	return state.Fact{Key: key, Data: []byte(data), Expires: begin}
}

// TestKeeperWritesInCompany: all that changed, every two seconds at most, newest only.
func TestKeeperWritesInCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		k := keeperOf(s)
		for n := range 100 { // for ten seconds
			k.keep(aFact(fmt.Sprint(n%20), fmt.Sprint(n)), nil)
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(keepEvery + time.Second)
		synctest.Wait()
		if n := len(s.learns); n < 5 || n > 7 {
			t.Errorf("%d writes in ten seconds", n)
		}
		if len(s.facts) != 20 || string(s.facts["3"].Data) != "83" {
			t.Errorf("%d facts, the newest of 3 is %s", len(s.facts), s.facts["3"].Data)
		}
	})
}

// TestKeeperWritesSoonForWhoLeaves, a thousand at a time, and tells each when it was tried.
func TestKeeperWritesSoonForWhoLeaves(t *testing.T) {
	for _, fails := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf()
			s.fails, s.takes = fails, 10*time.Millisecond
			k, told := keeperOf(s), sync.WaitGroup{}
			k.keep(aFact("first", ""), nil)
			<-time.After(time.Second)
			begun := time.Now()
			told.Add(2500)
			for n := range 2500 {
				k.keep(aFact(fmt.Sprint(n), ""), told.Done)
			}
			told.Wait()
			if took := time.Since(begun); took > 200*time.Millisecond {
				t.Errorf("told after %s", took)
			}
			if err := k.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.facts) != 2501 || slices.Max(s.learns) > keepMost {
				t.Errorf("%d facts, writes of %v", len(s.facts), s.learns)
			}
		})
	}
}

// TestKeeperFlushEnds with its context when the ledger does not answer.
func TestKeeperFlushEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.takes = time.Hour
		k := keeperOf(s)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := k.flush(ctx); err != nil {
			t.Errorf("nothing to write: %v", err)
		}
		k.keep(aFact("a", ""), nil)
		if err := k.flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		s.mu.Lock()
		s.takes = 0
		s.mu.Unlock()
		if err := k.flush(t.Context()); err != nil || len(s.facts) != 1 {
			t.Errorf("%v, %d facts", err, len(s.facts))
		}
	})
}

// TestKeeperAsksInCompany, and again when the ledger fails, but not for ever.
func TestKeeperAsksInCompany(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails int
		told  int
	}{{"at once", 0, 1500}, {"a failure", 2, 1500}, {"no ledger", 1000, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf()
			s.fails, s.facts = tc.fails, map[string]state.Fact{"7": aFact("7", "seven")}
			k := keeperOf(s)
			var mu sync.Mutex
			told := map[int]string{}
			for n := range 1500 {
				k.know(fmt.Sprint(n), func(data []byte) {
					mu.Lock()
					defer mu.Unlock()
					told[n] = string(data)
				})
			}
			<-time.After(knowWithin + 5*time.Second)
			synctest.Wait()
			if len(told) != tc.told || tc.told > 0 && (told[7] != "seven" || told[8] != "") {
				t.Errorf("%s: %d told, of 7: %q", tc.name, len(told), told[7])
			}
			if tc.told > 0 && (len(s.knowns) != 2 || slices.Max(s.knowns) != keepMost) {
				t.Errorf("%s: questions of %v keys", tc.name, s.knowns)
			}
			if k.reading || len(k.wanted) > 0 {
				t.Errorf("%s: %d questions left", tc.name, len(k.wanted))
			}
		})
	}
}

// TestKeeperIsBounded: a ledger that is gone costs no memory without end.
func TestKeeperIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.fails = 1 << 30
		k := keeperOf(s)
		for n := range keepQueue + 500 {
			k.keep(aFact(fmt.Sprint(n), ""), nil)
		}
		<-time.After(time.Minute)
		k.mu.Lock()
		if n := len(k.pending); n != keepQueue {
			t.Errorf("%d wait", n)
		}
		k.pending = map[string]state.Fact{}
		k.mu.Unlock()
		<-time.After(time.Minute)
		synctest.Wait()
		if len(slices.Collect(maps.Keys(k.pending))) != 0 {
			t.Error("it goes on")
		}
	})
}
