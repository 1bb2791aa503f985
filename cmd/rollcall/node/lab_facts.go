package node

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rollcall/ledger"
)

// labHour is how long an hour lasts with simulated receivers, for them and for the node: who tries Rollcall does not
// wait for an hour until a receiver's allowance of refusals is fresh again.
const labHour = time.Minute

// LabOptions are those of a node whose receivers are simulated and begin with it: what others taught is not true of
// them.
func LabOptions(log *slog.Logger) Options {
	return Options{Lab: true, Hour: labHour, Forgets: true, Log: log}
}

// factsOf gives what a ledger knows of receivers, or what was learned since now only.
func factsOf(book ledger.Facts, forgets bool) ledger.Facts {
	if !forgets {
		return book
	}
	return &freshFacts{Facts: book, learned: map[string]bool{}}
}

// freshFacts knows what was learned since it was made. Safe for concurrent use.
type freshFacts struct {
	ledger.Facts
	mu      sync.Mutex
	learned map[string]bool // keys; guarded by mu
}

// Learn implements ledger.Facts.
func (f *freshFacts) Learn(ctx context.Context, facts []ledger.Fact) error {
	f.mu.Lock()
	for _, fact := range facts {
		f.learned[fact.Key] = true
	}
	f.mu.Unlock()
	return f.Facts.Learn(ctx, facts)
}

// Known implements ledger.Facts.
func (f *freshFacts) Known(ctx context.Context, keys []string) ([]ledger.Fact, error) {
	f.mu.Lock()
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !f.learned[key] })
	f.mu.Unlock()
	if len(keys) == 0 {
		return nil, nil
	}
	return f.Facts.Known(ctx, keys)
}
