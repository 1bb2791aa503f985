package state

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/process"
)

const (
	// writeEvery is how often a node writes what its receivers learned, at most.
	writeEvery = 2 * time.Second

	// soon is how long a write or a question waits for others to go along: far below a turn to most receivers.
	soon = 20 * time.Millisecond

	// factsMax is how many facts one write or question may have, as Facts says.
	factsMax = 1_000

	// waitingMax bounds the facts that wait; beyond it new ones are lost, and learned
	// again: 4 KiB each at most, some hundred bytes mostly.
	waitingMax = 20_000

	// within bounds one write or question. Actors that hand a receiver over wait for it.
	within = 2 * time.Second

	// KnowWithin is how long an actor waits for what is known about its receiver. Then it
	// begins as after a loss: a ledger that takes longer has failed.
	KnowWithin = 5 * time.Second
)

// Writer writes and reads Facts for all receivers of a node, in batches: a write every two
// seconds, or soon when a receiver is about to leave, and one question at a time. Safe for
// concurrent use.
type Writer struct {
	facts  Facts
	log    *slog.Logger
	counts Counters
	guard  *process.PanicGuard

	mu      sync.Mutex
	pending map[string]Fact      // guarded by mu; to be written, newest by key
	waiting map[string][]func()  // guarded by mu; called when the fact of a key was tried
	timer   *time.Timer          // guarded by mu; of the next write; nil: none is planned
	due     time.Time            // guarded by mu; of the timer
	writing bool                 // guarded by mu
	written time.Time            // guarded by mu; when the last write began
	wanted  map[string]*question // guarded by mu; by key
	reading bool                 // guarded by mu; a question is planned or out
}

// question is about one key.
type question struct {
	since time.Time
	tell  []func(data []byte)
}

// Counters count the facts of a Writer.
type Counters struct{ Kept, Lost, Read prometheus.Counter }

// NewWriter makes a writer, which has nothing to stop. A nil guard guards nothing.
func NewWriter(facts Facts, log *slog.Logger, counts Counters, g *process.PanicGuard) *Writer {
	return &Writer{facts: facts, log: log, counts: counts, guard: g, pending: map[string]Fact{},
		waiting: map[string][]func(){}, wanted: map[string]*question{}}
}

// Keep writes a fact with the next batch. With done it is written soon, and done is called after the try.
func (w *Writer) Keep(f Fact, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.pending[f.Key]; !there && len(w.pending) >= waitingMax {
		w.counts.Lost.Inc()
		if done != nil {
			w.guard.Go("facts", done, nil)
		}
		return
	}
	w.pending[f.Key] = f
	wait := max(soon, writeEvery-time.Since(w.written))
	if done != nil {
		w.waiting[f.Key] = append(w.waiting[f.Key], done)
		wait = soon
	}
	w.plan(wait)
}

// plan schedules a write, or makes it sooner. Under mu.
func (w *Writer) plan(wait time.Duration) {
	due := time.Now().Add(wait)
	if w.writing || w.timer != nil && !due.Before(w.due) {
		return // one that runs plans the next
	}
	if w.timer != nil && !w.timer.Stop() {
		return // it has just begun
	}
	w.timer, w.due = w.guard.After(wait, "facts", w.write, nil), due
}

// write writes the next facts, first those that an actor waits for.
func (w *Writer) write() {
	w.mu.Lock()
	w.timer, w.writing, w.written = nil, true, time.Now()
	keys := slices.Concat(slices.Collect(maps.Keys(w.waiting)), slices.Collect(maps.Keys(w.pending)))
	batch := make(map[string]Fact, min(len(keys), factsMax))
	for _, key := range keys {
		if len(batch) == factsMax {
			break
		}
		if f, there := w.pending[key]; there {
			batch[key] = f
			delete(w.pending, key)
		}
	}
	w.mu.Unlock()
	var err error
	if len(batch) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		fault := w.guard.Run("facts", func() { err = w.facts.Learn(ctx, slices.Collect(maps.Values(batch))) })
		err = cmp.Or(fault, err)
		cancel()
	}
	w.tried(batch, err)
}

// tried schedules the next write and tells those who waited for this one.
func (w *Writer) tried(batch map[string]Fact, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.log.Warn("learned limits not saved", "receivers", len(batch), "err", err)
	} else {
		w.counts.Kept.Add(float64(len(batch)))
	}
	for key, list := range w.waiting {
		if _, newer := w.pending[key]; newer {
			continue
		}
		for _, done := range list {
			w.guard.Go("facts", done, nil)
		}
		delete(w.waiting, key)
	}
	for key, f := range batch {
		if _, newer := w.pending[key]; err != nil && !newer && len(w.pending) < waitingMax {
			w.pending[key] = f
		}
	}
	w.writing = false
	switch {
	case len(w.waiting) > 0:
		w.plan(soon)
	case len(w.pending) > 0:
		w.plan(writeEvery)
	}
}

// Know asks for the fact of a key and passes its data to tell, nil if there is none. If the ledger fails it asks again,
// as long as an actor waits, and then doesn't call tell.
func (w *Writer) Know(key string, tell func(data []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.wanted[key]
	if q == nil {
		q = &question{since: time.Now()}
		w.wanted[key] = q
	}
	q.tell = append(q.tell, tell)
	if !w.reading {
		w.reading = true
		w.guard.After(soon, "facts", w.read, nil)
	}
}

// read asks for the next keys.
func (w *Writer) read() {
	w.mu.Lock()
	batch := make(map[string]*question, min(len(w.wanted), factsMax))
	for key, q := range w.wanted {
		if len(batch) == factsMax {
			break
		}
		batch[key] = q
		delete(w.wanted, key)
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	var facts []Fact
	var err error
	fault := w.guard.Run("facts", func() { facts, err = w.facts.Known(ctx, slices.Collect(maps.Keys(batch))) })
	err = cmp.Or(fault, err)
	cancel()
	if err != nil {
		w.log.Warn("what is known of receivers was not read", "receivers", len(batch), "err", err)
		w.again(batch)
		return
	}
	w.counts.Read.Add(float64(len(facts)))
	data := make(map[string][]byte, len(facts))
	for _, f := range facts {
		data[f.Key] = f.Data
	}
	for key, q := range batch {
		for _, tell := range q.tell {
			_ = w.guard.Run("facts", func() { tell(data[key]) })
		}
	}
	w.next(soon)
}

// again puts back the questions that an actor still waits for.
func (w *Writer) again(batch map[string]*question) {
	w.mu.Lock()
	for key, q := range batch {
		if time.Since(q.since) >= KnowWithin {
			continue
		}
		if newer := w.wanted[key]; newer != nil {
			q.tell = append(q.tell, newer.tell...)
		}
		w.wanted[key] = q
	}
	w.mu.Unlock()
	w.next(within / 4)
}

// next plans the next question, if there is one.
func (w *Writer) next(wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading = len(w.wanted) > 0; w.reading {
		w.guard.After(wait, "facts", w.read, nil)
	}
}

// Flush writes what waits, until all is written or ctx is done.
func (w *Writer) Flush(ctx context.Context) error {
	for {
		tried := make(chan struct{})
		w.mu.Lock()
		key := ""
		for key = range w.pending {
			break
		}
		if key == "" && !w.writing {
			w.mu.Unlock()
			return nil
		}
		w.waiting[key] = append(w.waiting[key], func() { close(tried) })
		w.plan(soon)
		w.mu.Unlock()
		select {
		case <-tried:
		case <-ctx.Done():
			return fmt.Errorf("what receivers taught was not all kept: %w", ctx.Err())
		}
	}
}
