package domain

import (
	"context"
	"fmt"
	"time"

	"rollcall/actors/facts"
)

const (
	// recallWithin is how long an acceptance waits for the cluster's answer; after that a control probe costs less than
	// waiting.
	recallWithin = 2 * time.Second

	// flushWithin bounds the last write of a process.
	flushWithin = 2 * time.Second

	// factPrefix tells the keys of domains from those of receivers.
	factPrefix = "domain/"
)

// Recall asks the cluster about keys (behaviourKey) that Behaviour doesn't know. It returns when Behaviour has the
// answer, or when ctx ends.
func (f *Facts) Recall(ctx context.Context, keys ...string) {
	if f.writer == nil {
		return
	}
	answered := make(chan struct{}, len(keys)) // nobody blocks
	for _, key := range keys {
		f.writer.Know(factPrefix+key, func(found facts.Fact) {
			f.takeRecalled(key, found, time.Now())
			answered <- struct{}{}
		})
	}
	for range keys {
		select {
		case <-answered:
		case <-ctx.Done():
			return
		}
	}
}

// takeRecalled takes over a stored fact, unless a newer one is known here.
func (f *Facts) takeRecalled(key string, found facts.Fact, now time.Time) {
	k, ok := readFact(found, now)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if here := f.knownOf(key, now); here.isDecided() || here.accepted >= k.accepted && !k.isDecided() {
		return // the fact learned here is newer
	}
	f.domains.Add(key, k)
}

// Flush writes what was learned and is not written yet. Call it at the end of the process.
func (f *Facts) Flush(ctx context.Context) error {
	if f.writer == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	return f.writer.Flush(within)
}

// factLine is a fact as it is stored; times are Unix milliseconds. A line of a newer program is ignored.
const factLine = "habit1 accepted=%d refused=%d first=%d last=%d"

// countMax bounds a count that is read: a larger one isn't ours.
const countMax = 1_000_000

func (k fact) stored(key string) facts.Fact {
	line := fmt.Sprintf(factLine, k.accepted, k.refused, k.first.UnixMilli(), k.last.UnixMilli())
	return facts.Fact{Key: key, Data: []byte(line), Expires: k.until}
}

// readFact reads a stored fact. It is believed no longer than a fact of our own, since its end is by another node's
// clock.
func readFact(l facts.Fact, now time.Time) (fact, bool) {
	var k fact
	var first, last int64
	line := string(l.Data)
	n, err := fmt.Sscanf(line, factLine, &k.accepted, &k.refused, &first, &last)
	if err != nil || n != 4 || fmt.Sprintf(factLine, k.accepted, k.refused, first, last) != line ||
		min(k.accepted, k.refused) < 0 || k.accepted+k.refused < 1 ||
		max(k.accepted, k.refused) > countMax || last < first {
		return fact{}, false
	}
	k.first, k.last = time.UnixMilli(first), time.UnixMilli(last)
	life := partLife
	if k.isDecided() {
		life = factLife
	}
	k.until = now.Add(life)
	if l.Expires.Before(k.until) {
		k.until = l.Expires
	}
	return k, !now.After(k.until)
}
