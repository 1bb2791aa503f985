package domain

import (
	"context"
	"strings"
	"sync"
	"time"

	"rollcall/ledger"
)

// Store keeps facts for all nodes, as ledger.Facts does.
type Store interface {
	Learn(ctx context.Context, facts []ledger.Fact) error
	Known(ctx context.Context, keys []string) ([]ledger.Fact, error)
}

const (
	// recallWithin is how long an acceptance waits for the cluster's answer; after that a control probe costs less than
	// waiting.
	recallWithin = 2 * time.Second

	// gatherFor is how long questions are gathered for one call of the store: far less than the control probe takes
	// that the answer may save.
	gatherFor = 10 * time.Millisecond

	// saveEvery is how long facts are gathered for one write. If the node dies before it, each unwritten fact costs the
	// next owner a control probe.
	saveEvery = 2 * time.Second

	// storeWithin bounds one call of the store.
	storeWithin = 5 * time.Second

	// unsavedMax and askedMax bound the facts and the questions that wait for the store; further ones aren't shared, or
	// aren't asked. That is some megabytes, and many calls' worth.
	unsavedMax = 20_000
	askedMax   = 20_000

	// factPrefix tells the keys of domains from those of receivers.
	factPrefix = "domain/"
)

// Run writes to the store and asks it until ctx ends; then it writes what is left,
// for at most saveEvery. Without a store there is nothing to do.
func (f *Facts) Run(ctx context.Context) {
	if f.store == nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { f.answerAsked(ctx) })
	both.Go(func() { f.writeFacts(ctx) })
	both.Wait()
}

// writeFacts saves what was learned, every now and then.
func (f *Facts) writeFacts(ctx context.Context) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for failures := 0; ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveEvery)
			defer cancel()
			if err := f.saveFacts(last); err != nil {
				f.log.Warn("facts about domains not kept", "err", err)
			}
			return
		}
		err := f.saveFacts(ctx)
		if err == nil {
			failures = 0
		} else if failures++; failures&(failures-1) == 0 { // fewer lines the longer it lasts
			f.log.Warn("facts about domains not kept yet", "attempt", failures, "err", err)
		}
	}
}

// saveFacts writes all unsaved facts; those that fail stay unsaved.
func (f *Facts) saveFacts(ctx context.Context) error {
	for {
		names, facts := f.nextBatch()
		if len(facts) == 0 {
			return nil
		}
		within, cancel := context.WithTimeout(ctx, storeWithin)
		err := f.store.Learn(within, facts)
		cancel()
		if err != nil {
			return err
		}
		f.mu.Lock()
		for name, k := range names {
			if f.unsaved[name] == k { // it may have changed meanwhile
				delete(f.unsaved, name)
			}
		}
		f.mu.Unlock()
	}
}

// nextBatch returns the next facts to write; they stay unsaved until the write succeeds.
func (f *Facts) nextBatch() (map[string]fact, []ledger.Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[string]fact{}
	var facts []ledger.Fact
	for name, k := range f.unsaved {
		if len(facts) == ledger.FactsMax {
			break
		}
		names[name] = k
		facts = append(facts, k.stored(factPrefix+name))
	}
	return names, facts
}

// answerAsked asks the store for all that Recall waits for, one call at a time.
func (f *Facts) answerAsked(ctx context.Context) {
	gather := time.NewTimer(gatherFor)
	defer gather.Stop()
	for {
		select {
		case <-f.kick:
		case <-ctx.Done():
			return
		}
		gather.Reset(gatherFor)
		select {
		case <-gather.C:
		case <-ctx.Done():
			return
		}
		for f.askStore(ctx) {
		}
	}
}

// askStore makes one call for those that wait, and reports whether there were any.
func (f *Facts) askStore(ctx context.Context) bool {
	f.mu.Lock()
	waiting := map[string]chan struct{}{}
	var keys []string
	for name, answered := range f.asked {
		if len(keys) == ledger.FactsMax {
			break
		}
		waiting[name] = answered
		keys = append(keys, factPrefix+name)
	}
	f.mu.Unlock()
	if len(keys) == 0 || ctx.Err() != nil {
		return false
	}
	within, cancel := context.WithTimeout(ctx, recallWithin) // nobody waits for longer
	found, err := f.store.Known(within, keys)
	cancel()
	if err != nil {
		f.log.Debug("facts about domains not read", "err", err)
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range found {
		f.recalled(k, now)
	}
	for name, answered := range waiting {
		delete(f.asked, name)
		close(answered)
	}
	return true
}

// recalled takes over a fact of the store, unless a newer one is known here. The caller has the lock.
func (f *Facts) recalled(l ledger.Fact, now time.Time) {
	name, ours := strings.CutPrefix(l.Key, factPrefix)
	k, ok := readFact(l, now)
	if !ours || !ok {
		return
	}
	if here := f.knownOf(name, now); here.isDecided() || here.accepted >= k.accepted && !k.isDecided() {
		return // the fact learned here is newer
	}
	f.rememberFact(name, k, now)
}
