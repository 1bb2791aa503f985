package state

import (
	"context"
	"time"
)

// Fact is what was learned about a receiver or one of our sources, as bytes that only the
// package that wrote them understands.
type Fact struct {
	Key     string // of the receiver, or of a source
	Data    []byte // at most 4 KiB
	Expires time.Time
}

// Facts keeps facts beyond the life of an actor and of a node. Safe for concurrent use.
type Facts interface {
	// Learn keeps facts, at most 1,000; one with the key of another takes its place.
	Learn(ctx context.Context, facts []Fact) error
	// Known gives the facts of some keys, at most 1,000, that have not expired, in no order.
	Known(ctx context.Context, keys []string) ([]Fact, error)
}
