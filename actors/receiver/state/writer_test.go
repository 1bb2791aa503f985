package state_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rollcall/actors/receiver/state"
)

const (
	writeEvery = 2 * time.Second // at most
	factsMax   = 1_000           // of one write or question
	waitingMax = 20_000          // facts
)

// shelf keeps facts in memory.
type shelf struct {
	mu     sync.Mutex
	facts  map[string]state.Fact
	learns []int // facts of each Learn
	knowns []int // keys of each Known
	calls  int
	fails  int           // so many calls fail
	takes  time.Duration // each call
}

func newShelf() *shelf { return &shelf{facts: map[string]state.Fact{}} }

func (s *shelf) call(ctx context.Context) error {
	s.mu.Lock()
	s.calls++
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
	s.learns = append(s.learns, len(facts))
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

// writerOf makes a writer and the counter of the facts that it lost.
func writerOf(s *shelf) (*state.Writer, prometheus.Counter) {
	counter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name})
	}
	counts := state.Counters{Kept: counter("kept"), Lost: counter("lost"), Read: counter("read")}
	return state.NewWriter(s, slog.New(slog.DiscardHandler), counts, nil), counts.Lost
}

func aFact(key, data string) state.Fact {
	return state.Fact{Key: key, Data: []byte(data), Expires: time.Now().Add(time.Hour)}
}

// TestWritesInBatches: all that changed, every two seconds at most, newest only.
func TestWritesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		w, _ := writerOf(s)
		for n := range 100 { // for ten seconds
			w.Keep(aFact(fmt.Sprint(n%20), fmt.Sprint(n)), nil)
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(writeEvery + time.Second)
		synctest.Wait()
		if n := len(s.learns); n < 5 || n > 7 {
			t.Errorf("%d writes in ten seconds", n)
		}
		if len(s.facts) != 20 || string(s.facts["3"].Data) != "83" {
			t.Errorf("%d facts, the newest of 3 is %s", len(s.facts), s.facts["3"].Data)
		}
	})
}

// TestWritesSoonForWhoLeaves, a thousand at a time, and tells each when it was tried.
func TestWritesSoonForWhoLeaves(t *testing.T) {
	for _, fails := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf()
			s.fails, s.takes = fails, 10*time.Millisecond
			w, _ := writerOf(s)
			var told sync.WaitGroup
			w.Keep(aFact("first", ""), nil)
			<-time.After(time.Second)
			begun := time.Now()
			told.Add(2500)
			for n := range 2500 {
				w.Keep(aFact(fmt.Sprint(n), ""), told.Done)
			}
			told.Wait()
			if took := time.Since(begun); took > 200*time.Millisecond {
				t.Errorf("told after %s", took)
			}
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.facts) != 2501 || slices.Max(s.learns) > factsMax {
				t.Errorf("%d facts, writes of %v", len(s.facts), s.learns)
			}
		})
	}
}

// TestFlushEnds with its context when the ledger does not answer.
func TestFlushEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.takes = time.Hour
		w, _ := writerOf(s)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.Flush(ctx); err != nil {
			t.Errorf("nothing to write: %v", err)
		}
		w.Keep(aFact("a", ""), nil)
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		s.mu.Lock()
		s.takes = 0
		s.mu.Unlock()
		if err := w.Flush(t.Context()); err != nil || len(s.facts) != 1 {
			t.Errorf("%v, %d facts", err, len(s.facts))
		}
	})
}

// TestAsksInBatches, and again when the ledger fails, but not for ever.
func TestAsksInBatches(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails int
		told  int
	}{{"at once", 0, 1500}, {"a failure", 2, 1500}, {"no ledger", 1000, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf()
			s.fails, s.facts = tc.fails, map[string]state.Fact{"7": aFact("7", "seven")}
			w, _ := writerOf(s)
			var mu sync.Mutex
			told := map[int]string{}
			for n := range 1500 {
				w.Know(fmt.Sprint(n), func(data []byte) {
					mu.Lock()
					defer mu.Unlock()
					told[n] = string(data)
				})
			}
			<-time.After(state.KnowWithin + 5*time.Second)
			synctest.Wait()
			if len(told) != tc.told || tc.told > 0 && (told[7] != "seven" || told[8] != "") {
				t.Errorf("%s: %d told, of 7: %q", tc.name, len(told), told[7])
			}
			if tc.told > 0 && (len(s.knowns) != 2 || slices.Max(s.knowns) != factsMax) {
				t.Errorf("%s: questions of %v keys", tc.name, s.knowns)
			}
			s.mu.Lock()
			calls := s.calls
			s.mu.Unlock()
			<-time.After(time.Minute)
			if s.mu.Lock(); s.calls > calls {
				t.Errorf("%s: asks for ever", tc.name)
			}
			s.mu.Unlock()
		})
	}
}

// TestWriterIsBounded: a ledger that is gone costs no memory without end. What was not lost is
// written when it is back.
func TestWriterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.fails = 1 << 30
		w, lost := writerOf(s)
		for n := range waitingMax + 500 {
			w.Keep(aFact(fmt.Sprint(n), ""), nil)
		}
		<-time.After(time.Minute)
		var m dto.Metric
		if err := lost.Write(&m); err != nil || m.GetCounter().GetValue() != 500 {
			t.Errorf("%v facts are counted as lost: %v", m.GetCounter().GetValue(), err)
		}
		s.mu.Lock()
		s.fails = 0
		s.mu.Unlock()
		if err := w.Flush(t.Context()); err != nil || len(s.facts) != waitingMax {
			t.Errorf("%d facts are written: %v", len(s.facts), err)
		}
		calls := s.calls
		<-time.After(time.Minute)
		if synctest.Wait(); s.calls > calls {
			t.Error("it goes on")
		}
	})
}
