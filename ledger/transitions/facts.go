package transitions

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"rollcall/ledger"
)

// Learn keeps facts about receivers.
func (e Engine) Learn(ctx context.Context, facts []ledger.Fact) error {
	if err := ledger.CheckFacts(facts); err != nil {
		return fmt.Errorf("learn: %w", err)
	}
	if len(facts) == 0 {
		return nil
	}
	facts = lastByKey(facts)
	err := e.db.Update(ctx, Scope{}, func(t Tables) error { return t.Learn(facts) })
	if err != nil {
		return fmt.Errorf("learn %d facts: %w", len(facts), err)
	}
	return nil
}

// lastByKey returns the last fact of each key, by key, so that two nodes that learn
// the same wait for each other in one order.
func lastByKey(facts []ledger.Fact) []ledger.Fact {
	sorted := slices.Clone(facts)
	slices.Reverse(sorted)
	slices.SortStableFunc(sorted, func(a, b ledger.Fact) int { return cmp.Compare(a.Key, b.Key) })
	return slices.CompactFunc(sorted, func(a, b ledger.Fact) bool { return a.Key == b.Key })
}

// Known returns the facts of some keys that have not expired.
func (e Engine) Known(ctx context.Context, keys []string) (facts []ledger.Fact, err error) {
	if len(keys) > ledger.FactsMax {
		return nil, fmt.Errorf("read facts of %d keys, %d are allowed: %w", len(keys), ledger.FactsMax,
			ledger.ErrIllegal)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	// Skip the lookup for keys that cannot exist.
	keys = slices.DeleteFunc(keys, func(key string) bool { return ledger.CheckText(key) != nil })
	err = e.db.View(ctx, func(t Tables) (err error) {
		facts, err = t.Known(keys)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read facts of %d keys: %w", len(keys), err)
	}
	return facts, nil
}
