package facts

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"rollcall/actors/process"
	"rollcall/ledger"
)

const (
	// writeEvery is how often facts are written, at most. If the node dies before, what was learned in that time is
	// learned again.
	writeEvery = 2 * time.Second

	// soon is how long a write or a query waits to be batched with others: far below a round trip to most receivers.
	soon = 20 * time.Millisecond

	// waitingMax bounds the facts that wait to be written, 4 KiB each at most and mostly some hundred bytes, and the
	// questions that wait for an answer. Beyond it new facts are lost, and learned again; new questions get no answer.
	waitingMax = 20_000

	// within bounds one write or question. Actors that hand a receiver over wait for it.
	within = 2 * time.Second

	// KnowWithin is how long a question is asked again while the ledger fails.
	KnowWithin = 5 * time.Second
)

// Options is what a Writer needs.
type Options struct {
	Store Store
	Of    string // subject of the facts, for the log: "receivers"
	Log   *slog.Logger
	Guard *process.PanicGuard // of goroutines; nil: none
}

// Writer writes and reads facts in batches: a write every two seconds, or soon when somebody waits for it, and one
// question at a time. Safe for concurrent use.
type Writer struct {
	options Options

	mu      sync.Mutex
	pending map[string]Fact      // guarded by mu; to be written, newest by key
	waiting map[string][]func()  // guarded by mu; called when the fact of a key was tried
	timer   *time.Timer          // guarded by mu; of the next write; nil: none is planned
	due     time.Time            // guarded by mu; of the timer
	writing bool                 // guarded by mu
	written time.Time            // guarded by mu; when the last write began
	wanted  map[string]*question // guarded by mu; by key
	reading bool                 // guarded by mu; a question is planned or out
	failed  int                  // guarded by mu; writes in a row
}

type question struct {
	since time.Time
	tell  []func(f Fact)
}

// NewWriter makes a writer, which has nothing to stop.
func NewWriter(o Options) *Writer {
	return &Writer{options: o, pending: map[string]Fact{}, waiting: map[string][]func(){}, wanted: map[string]*question{}}
}

// Keep writes a fact with the next batch. With done it is written soon, and done is called after the try.
func (w *Writer) Keep(f Fact, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.pending[f.Key]; !there && len(w.pending) >= waitingMax {
		if done != nil {
			w.options.Guard.Go("facts", done, nil)
		}
		return
	}
	w.pending[f.Key] = f
	wait := max(soon, writeEvery-time.Since(w.written))
	if done != nil {
		w.waiting[f.Key] = append(w.waiting[f.Key], done)
		wait = soon
	}
	w.planWrite(wait)
}

// planWrite schedules a write, or makes it sooner. Under mu.
func (w *Writer) planWrite(wait time.Duration) {
	due := time.Now().Add(wait)
	if w.writing || w.timer != nil && !due.Before(w.due) {
		return // the running one plans the next
	}
	if w.timer != nil && !w.timer.Stop() {
		return // it has just begun
	}
	w.timer, w.due = w.options.Guard.After(wait, "facts", w.writeNext, nil), due
}

// writeNext writes the next facts, first those that an actor waits for.
func (w *Writer) writeNext() {
	w.mu.Lock()
	w.timer, w.writing, w.written = nil, true, time.Now()
	keys := slices.Concat(slices.Collect(maps.Keys(w.waiting)), slices.Collect(maps.Keys(w.pending)))
	batch := make(map[string]Fact, min(len(keys), ledger.FactsMax))
	for _, key := range keys {
		if len(batch) == ledger.FactsMax {
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
		fault := w.options.Guard.Run("facts", func() {
			err = w.options.Store.Learn(ctx, slices.Collect(maps.Values(batch)))
		})
		err = cmp.Or(fault, err)
		cancel()
	}
	w.endWrite(batch, err)
}

// endWrite schedules the next write and tells those who waited for this one.
func (w *Writer) endWrite(batch map[string]Fact, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.failed = 0
	} else if w.failed++; w.failed&(w.failed-1) == 0 { // fewer lines the longer it lasts
		w.options.Log.Warn("learned facts not saved", w.options.Of, len(batch), "attempt", w.failed, "err", err)
	}
	for key, list := range w.waiting {
		if _, newer := w.pending[key]; newer {
			continue
		}
		for _, done := range list {
			w.options.Guard.Go("facts", done, nil)
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
		w.planWrite(soon)
	case len(w.pending) > 0:
		w.planWrite(writeEvery)
	}
}

// Know asks for the fact of a key and passes it to tell, without data if there is none. If the ledger fails it asks
// again, for KnowWithin, and then doesn't call tell.
func (w *Writer) Know(key string, tell func(f Fact)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.wanted[key]
	if q == nil {
		if len(w.wanted) >= waitingMax {
			return
		}
		q = &question{since: time.Now()}
		w.wanted[key] = q
	}
	q.tell = append(q.tell, tell)
	if !w.reading {
		w.reading = true
		w.options.Guard.After(soon, "facts", w.readNext, nil)
	}
}

func (w *Writer) readNext() {
	w.mu.Lock()
	batch := make(map[string]*question, min(len(w.wanted), ledger.FactsMax))
	for key, q := range w.wanted {
		if len(batch) == ledger.FactsMax {
			break
		}
		batch[key] = q
		delete(w.wanted, key)
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	var facts []Fact
	var err error
	fault := w.options.Guard.Run("facts", func() {
		facts, err = w.options.Store.Known(ctx, slices.Collect(maps.Keys(batch)))
	})
	err = cmp.Or(fault, err)
	cancel()
	if err != nil {
		w.options.Log.Warn("learned facts not read", w.options.Of, len(batch), "err", err)
		w.askAgain(batch)
		return
	}
	found := make(map[string]Fact, len(facts))
	for _, f := range facts {
		found[f.Key] = f
	}
	for key, q := range batch {
		for _, tell := range q.tell {
			_ = w.options.Guard.Run("facts", func() { tell(found[key]) })
		}
	}
	w.planRead(soon)
}

// askAgain puts back the questions that an actor still waits for.
func (w *Writer) askAgain(batch map[string]*question) {
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
	w.planRead(within / 4)
}

func (w *Writer) planRead(wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading = len(w.wanted) > 0; w.reading {
		w.options.Guard.After(wait, "facts", w.readNext, nil)
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
		w.planWrite(soon)
		w.mu.Unlock()
		select {
		case <-tried:
		case <-ctx.Done():
			return fmt.Errorf("not all learned facts about %s were saved: %w", w.options.Of, ctx.Err())
		}
	}
}

// Fact is stored knowledge, in bytes that only the package that wrote them understands.
type Fact = ledger.Fact

// Store keeps facts beyond the life of an actor and of a node. Safe for concurrent use.
type Store = ledger.Facts
