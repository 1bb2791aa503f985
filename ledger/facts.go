package ledger

import (
	"context"
	"fmt"
	"time"
)

const (
	// FactsMax bounds the facts of one Learn and the keys of one Known, so that one
	// transaction takes some ten milliseconds. Guess.
	FactsMax = 1000
	// FactBytesMax bounds the data of one fact. Guess: what is known about a receiver
	// takes some hundred bytes.
	FactBytesMax = 4 << 10
	// FactKeyBytesMax bounds the key of a fact: a domain name of 253 bytes (RFC 1035
	// §2.3.4) and a prefix.
	FactKeyBytesMax = 300
)

// Fact is what was learned about a receiver, as bytes that its writer understands.
type Fact struct {
	Key     string    // of the receiver; at most FactKeyBytesMax, not empty
	Data    []byte    // at most FactBytesMax
	Expires time.Time // by the database's clock, in milliseconds; not zero
}

// Facts is the part about what was learned about receivers. It is a memory, not
// work: a fact that is lost is learned again.
type Facts interface {
	// Learn keeps facts, at most FactsMax, in one transaction. One with the key of
	// another takes its place; of two with one key the last counts. ErrIllegal for
	// more or longer ones, and for one without a key or an end.
	Learn(ctx context.Context, facts []Fact) error
	// Known gives the facts of some keys, at most FactsMax, that have not expired, in
	// no order; their data is not nil. ErrIllegal for more keys.
	Known(ctx context.Context, keys []string) ([]Fact, error)
}

// CheckFacts reports whether facts can be kept. ErrIllegal.
func CheckFacts(facts []Fact) error {
	if len(facts) > FactsMax {
		return fmt.Errorf("%d facts at once, %d are allowed: %w", len(facts), FactsMax, ErrIllegal)
	}
	for _, f := range facts {
		switch {
		case f.Key == "" || len(f.Key) > FactKeyBytesMax:
			return fmt.Errorf("a fact's key of %d bytes, 1 to %d are allowed: %w",
				len(f.Key), FactKeyBytesMax, ErrIllegal)
		case len(f.Data) > FactBytesMax:
			return fmt.Errorf("a fact of %d bytes, %d are allowed: %w", len(f.Data), FactBytesMax, ErrIllegal)
		case f.Expires.UnixMilli() <= 0:
			return fmt.Errorf("a fact without an end: %w", ErrIllegal)
		}
		if err := CheckText(f.Key); err != nil {
			return err
		}
	}
	return nil
}
