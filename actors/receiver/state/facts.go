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
	// Learn stores facts, at most 1,000; one replaces another with the same key.
	Learn(ctx context.Context, facts []Fact) error
	// Known returns the facts of some keys, at most 1,000, that haven't expired, in no order.
	Known(ctx context.Context, keys []string) ([]Fact, error)
}
