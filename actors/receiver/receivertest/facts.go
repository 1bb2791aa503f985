package receivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"rollcall/actors/facts"
)

// ErrGone is the error of a Shelf while it fails.
var ErrGone = errors.New("ledger is gone")

// Shelf keeps facts in memory and notes how it is called. The zero value is ready.
type Shelf struct {
	mu     sync.Mutex
	facts  map[string]facts.Fact
	learns []int // how many facts each successful Learn had
	knowns []int // how many keys each successful Known had
	calls  int
	fails  int           // how many more calls fail
	takes  time.Duration // how long each call takes
}

// Holding makes a shelf with some facts.
func Holding(list ...facts.Fact) *Shelf {
	s := &Shelf{}
	s.putAll(list)
	return s
}

func (s *Shelf) putAll(list []facts.Fact) {
	if s.facts == nil {
		s.facts = map[string]facts.Fact{}
	}
	for _, f := range list {
		s.facts[f.Key] = f
	}
}

// Fail makes a number of the next calls fail.
func (s *Shelf) Fail(calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = calls
}

// Take sets how long each call takes.
func (s *Shelf) Take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = d
}

// Fact returns the fact that is kept under a key.
func (s *Shelf) Fact(key string) facts.Fact {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts[key]
}

// Len returns how many facts are kept.
func (s *Shelf) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.facts)
}

// Calls returns how many calls there were, and how many facts or keys each successful one had.
func (s *Shelf) Calls() (all int, learns, knowns []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, slices.Clone(s.learns), slices.Clone(s.knowns)
}

// beginCall lets a call take its time, and lets it fail.
func (s *Shelf) beginCall(ctx context.Context) error {
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
		return ErrGone
	}
	return nil
}

// Learn implements facts.Store.
func (s *Shelf) Learn(ctx context.Context, list []facts.Fact) error {
	if err := s.beginCall(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learns = append(s.learns, len(list))
	s.putAll(list)
	return nil
}

// Known implements facts.Store.
func (s *Shelf) Known(ctx context.Context, keys []string) (out []facts.Fact, err error) {
	if err := s.beginCall(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knowns = append(s.knowns, len(keys))
	for _, key := range keys {
		if f, there := s.facts[key]; there {
			out = append(out, f)
		}
	}
	return out, nil
}
