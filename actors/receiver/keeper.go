package receiver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/state"
)

const (
	// keepEvery is how often a node writes what its receivers learned, at most.
	keepEvery = 2 * time.Second

	// keepSoon is how long a write or a question waits for company. Guess: far below
	// a turn to most receivers.
	keepSoon = 20 * time.Millisecond

	// keepMost is how many facts one write or question may have, as Facts says.
	keepMost = 1_000

	// keepQueue bounds the facts that wait; beyond it new ones are lost, and learned
	// again. Guess: 4 KiB each at most, some hundred bytes mostly.
	keepQueue = 20_000

	// keepWithin bounds one write or question. Those who give way wait for it.
	keepWithin = 2 * time.Second
)

// keeper reads and writes Facts for all receivers of a node, in company: one
// question at a time, and a write every two seconds, or soon when a receiver is
// about to leave. Safe for concurrent use.
type keeper struct {
	facts   state.Facts
	log     *slog.Logger
	metrics *Metrics
	sources *egress.Pool

	mu      sync.Mutex
	pending map[string]state.Fact // guarded by mu; to be written, newest by key
	waiting map[string][]func()   // guarded by mu; to be told when the fact of a key was tried
	timer   *time.Timer           // guarded by mu; of the next write; nil: none is planned
	due     time.Time             // guarded by mu; of the timer
	writing bool                  // guarded by mu
	written time.Time             // guarded by mu; when the last write began
	wanted  map[string]*question  // guarded by mu; by key
	reading bool                  // guarded by mu; a question is planned or out
}

// question is about one key.
type question struct {
	since time.Time
	tell  []func(data []byte)
}

func newKeeper(o Options) *keeper {
	return &keeper{facts: o.Facts, log: o.Log, metrics: o.Metrics, sources: o.Sources, pending: map[string]state.Fact{},
		waiting: map[string][]func(){}, wanted: map[string]*question{}}
}

// keep writes a fact with the next others. With done it is written soon, and done
// is called when that was tried.
func (k *keeper) keep(f state.Fact, done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.pending[f.Key]; !there && len(k.pending) >= keepQueue {
		k.metrics.factsLost.Inc()
		if done != nil {
			go done()
		}
		return
	}
	k.pending[f.Key] = f
	wait := max(keepSoon, keepEvery-time.Since(k.written))
	if done != nil {
		k.waiting[f.Key] = append(k.waiting[f.Key], done)
		wait = keepSoon
	}
	k.plan(wait)
}

// plan sees to it that a write begins in a while, or sooner. Under mu.
func (k *keeper) plan(wait time.Duration) {
	due := time.Now().Add(wait)
	if k.writing || k.timer != nil && !due.Before(k.due) {
		return // one that runs plans the next
	}
	if k.timer != nil && !k.timer.Stop() {
		return // it has just begun
	}
	k.timer, k.due = time.AfterFunc(wait, k.write), due
}

// write writes the next facts, those first that somebody waits for.
func (k *keeper) write() {
	k.mu.Lock()
	k.timer, k.writing, k.written = nil, true, time.Now()
	keys := slices.Concat(slices.Collect(maps.Keys(k.waiting)), slices.Collect(maps.Keys(k.pending)))
	batch := make(map[string]state.Fact, min(len(keys), keepMost))
	for _, key := range keys {
		if len(batch) == keepMost {
			break
		}
		if f, there := k.pending[key]; there {
			batch[key] = f
			delete(k.pending, key)
		}
	}
	k.mu.Unlock()
	var err error
	if len(batch) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), keepWithin)
		err = k.facts.Learn(ctx, slices.Collect(maps.Values(batch)))
		cancel()
	}
	k.tried(batch, err)
}

// tried plans the next write, and tells who waited for this one.
func (k *keeper) tried(batch map[string]state.Fact, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.log.Warn("what receivers taught was not kept", "receivers", len(batch), "err", err)
	} else {
		k.metrics.factsKept.Add(float64(len(batch)))
	}
	for key, list := range k.waiting {
		if _, newer := k.pending[key]; newer {
			continue
		}
		for _, done := range list {
			go done()
		}
		delete(k.waiting, key)
	}
	for key, f := range batch {
		if _, newer := k.pending[key]; err != nil && !newer && len(k.pending) < keepQueue {
			k.pending[key] = f
		}
	}
	k.writing = false
	switch {
	case len(k.waiting) > 0:
		k.plan(keepSoon)
	case len(k.pending) > 0:
		k.plan(keepEvery)
	}
}

// know asks for the fact of a key and tells its data, or nil when there is none.
// When the ledger fails it asks again, as long as an actor waits for that, and
// then tells nothing.
func (k *keeper) know(key string, tell func(data []byte)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.wanted[key]
	if q == nil {
		q = &question{since: time.Now()}
		k.wanted[key] = q
	}
	q.tell = append(q.tell, tell)
	if !k.reading {
		k.reading = true
		time.AfterFunc(keepSoon, k.read)
	}
}

// read asks for the next keys.
func (k *keeper) read() {
	k.mu.Lock()
	batch := make(map[string]*question, min(len(k.wanted), keepMost))
	for key, q := range k.wanted {
		if len(batch) == keepMost {
			break
		}
		batch[key] = q
		delete(k.wanted, key)
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), keepWithin)
	facts, err := k.facts.Known(ctx, slices.Collect(maps.Keys(batch)))
	cancel()
	if err != nil {
		k.log.Warn("what is known of receivers was not read", "receivers", len(batch), "err", err)
		k.again(batch)
		return
	}
	k.metrics.factsRead.Add(float64(len(facts)))
	data := make(map[string][]byte, len(facts))
	for _, f := range facts {
		data[f.Key] = f.Data
	}
	for key, q := range batch {
		for _, tell := range q.tell {
			tell(data[key])
		}
	}
	k.next(keepSoon)
}

// again puts back the questions that somebody still waits for.
func (k *keeper) again(batch map[string]*question) {
	k.mu.Lock()
	for key, q := range batch {
		if time.Since(q.since) >= knowWithin {
			continue
		}
		if newer := k.wanted[key]; newer != nil {
			q.tell = append(q.tell, newer.tell...)
		}
		k.wanted[key] = q
	}
	k.mu.Unlock()
	k.next(keepWithin / 4)
}

// next plans the next question, if there is one.
func (k *keeper) next(wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reading = len(k.wanted) > 0; k.reading {
		time.AfterFunc(wait, k.read)
	}
}

// flush writes what waits, until all is written or ctx is done.
func (k *keeper) flush(ctx context.Context) error {
	for {
		tried := make(chan struct{})
		k.mu.Lock()
		key := ""
		for key = range k.pending {
			break
		}
		if key == "" && !k.writing {
			k.mu.Unlock()
			return nil
		}
		k.waiting[key] = append(k.waiting[key], func() { close(tried) })
		k.plan(keepSoon)
		k.mu.Unlock()
		select {
		case <-tried:
		case <-ctx.Done():
			return fmt.Errorf("what receivers taught was not all kept: %w", ctx.Err())
		}
	}
}
