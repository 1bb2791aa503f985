package mx

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache is an LRU of lookup results, by name, until they expire. Only one lookup of a name runs at a time; other
// callers wait for its result. Safe for concurrent use.
type cache[V any] struct {
	base context.Context // ends all flights
	turn Turn            // nil: flights begin at once

	mu      sync.Mutex // guards all below
	closed  bool
	entries *simplelru.LRU[string, remembered[V]]
	flights map[string]*flight[V]
	running sync.WaitGroup
}

type remembered[V any] struct {
	value   V
	err     error
	expires time.Time
}

// flight is a lookup under way.
type flight[V any] struct {
	waiting int // guarded by cache.mu; at 0 the flight is cancelled
	ctx     context.Context
	cancel  context.CancelFunc
	queued  context.Context // until it begins
	begin   context.CancelFunc
	begun   bool            // guarded by cache.mu
	tenants map[string]bool // guarded by cache.mu; in whose turns it waits
	done    chan struct{}   // closed when value and err are set
	value   V
	err     error
}

func newCache[V any](base context.Context, max int) *cache[V] {
	entries, err := simplelru.NewLRU[string, remembered[V]](max, nil)
	if err != nil {
		panic(err) // Options.CacheMax is checked
	}
	return &cache[V]{base: base, entries: entries, flights: make(map[string]*flight[V])}
}

// finder looks up a name. The cache keeps its value or error until expires.
type finder[V any] func(ctx context.Context, name string) (value V, expires time.Time, err error)

type tenantKey struct{}

// For sets the tenant of a lookup: tenants share the lookups that may run at once (Options.Turn). Lookups without
// a tenant count as those of one more tenant.
func For(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// get returns the cached result for a name, or looks it up. It waits until ctx ends; the lookup goes on as long as
// anybody waits.
func (m *cache[V]) get(ctx context.Context, name string, find finder[V]) (V, error) {
	m.mu.Lock()
	if r, found := m.recall(name, time.Now()); found {
		m.mu.Unlock()
		return r.value, r.err
	}
	tenant, _ := ctx.Value(tenantKey{}).(string)
	f := m.join(name, tenant, find)
	m.mu.Unlock()

	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		m.leave(name, f)
		var none V
		return none, context.Cause(ctx)
	}
}

// close ends all flights, waits for them and empties the cache. Then get returns ErrClosed.
func (m *cache[V]) close() {
	m.mu.Lock()
	m.closed = true
	for _, f := range m.flights {
		f.cancel()
	}
	m.entries.Purge()
	m.mu.Unlock()
	m.running.Wait()
}

func (m *cache[V]) recall(name string, now time.Time) (remembered[V], bool) {
	r, found := m.entries.Get(name)
	if found && !now.Before(r.expires) {
		m.entries.Remove(name)
		return r, false
	}
	return r, found
}

// join returns the flight for a name, and starts it if there is none. A waiting flight also waits in this tenant's
// turn, and begins at the earlier one. Under mu.
func (m *cache[V]) join(name, tenant string, find finder[V]) *flight[V] {
	if f, found := m.flights[name]; found {
		f.waiting++
		if m.turn != nil && !f.begun && !f.tenants[tenant] && !m.closed {
			f.tenants[tenant] = true
			m.running.Go(func() { m.fly(name, tenant, f, find) })
		}
		return f
	}
	f := &flight[V]{waiting: 1, done: make(chan struct{}), cancel: func() {}, tenants: map[string]bool{tenant: true}}
	if m.closed {
		f.err = ErrClosed
		close(f.done)
		return f
	}
	f.ctx, f.cancel = context.WithCancel(m.base)
	f.queued, f.begin = context.WithCancel(f.ctx)
	m.flights[name] = f
	m.running.Go(func() { m.fly(name, tenant, f, find) })
	return f
}

// fly runs the lookup in a tenant's turn, unless another tenant's turn came first.
func (m *cache[V]) fly(name, tenant string, f *flight[V], find finder[V]) {
	if m.turn != nil {
		leave, err := m.turn(f.queued, tenant)
		if err != nil {
			if m.takeOff(f) { // it will not begin: no caller waits, or the cache is closed
				m.land(name, f, remembered[V]{err: ErrClosed})
			}
			return
		}
		defer leave()
	}
	if !m.takeOff(f) {
		return
	}
	defer f.cancel()
	ctx, cancel := context.WithTimeout(f.ctx, nameBudget)
	defer cancel()
	value, expires, err := find(ctx, name)
	m.land(name, f, remembered[V]{value: value, err: err, expires: expires})
}

// takeOff begins a flight; it returns false if the flight has begun already.
func (m *cache[V]) takeOff(f *flight[V]) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.begun {
		return false
	}
	f.begun = true
	f.begin()
	return true
}

// land ends a flight. If nobody waited, its result comes from the cancellation and is not cached.
func (m *cache[V]) land(name string, f *flight[V], r remembered[V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.value, f.err = r.value, r.err
	if m.flights[name] == f {
		delete(m.flights, name)
		if !m.closed {
			m.entries.Add(name, r)
		}
	}
	close(f.done)
}

func (m *cache[V]) leave(name string, f *flight[V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		if m.flights[name] == f {
			delete(m.flights, name)
		}
	}
}
