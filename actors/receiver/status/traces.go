package status

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/actors/inspect"
)

const (
	// tracesMax bounds the receivers that are traced at once on a node.
	tracesMax = 4

	// traceLines bounds the kept lines of each receiver: some 300 KB. A reader that asks each second misses no line below
	// 1,000 lines a second.
	traceLines = 1_000

	// traceFor is how long a receiver is traced after somebody last read its lines.
	traceFor = 10 * time.Second
)

// ErrTraces says that tracesMax receivers are traced already.
var ErrTraces = fmt.Errorf("receiver: %d receivers are traced already: end one of these first, it takes %s",
	tracesMax, traceFor)

// Traces are the watched receivers of a node. Safe for concurrent use; the zero value is ready.
type Traces struct {
	on atomic.Int32 // number of traces; while it is 0, sessions check only this

	mu     sync.Mutex
	of     map[string]*trace // guarded by mu; by the key that was asked for
	number uint64            // guarded by mu; number of the newest line
}

// trace holds the session lines of the receivers that a key, or a rule's name, stands for.
type trace struct {
	stands func(key string) bool
	until  time.Time           // guarded by Traces.mu
	lines  []inspect.TraceLine // guarded by Traces.mu; oldest first
}

// Read returns the newest lines of the receivers that a key stands for: from one source or all ("*"), with numbers
// above after. The first call begins the trace. The trace ends ten seconds after the last call. Errors: ErrTraces.
func (t *Traces) Read(
	now time.Time, key string, stands func(key string) bool, source string, after uint64,
) ([]inspect.TraceLine, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	one := t.of[key]
	if one == nil {
		if len(t.of) >= tracesMax {
			return nil, ErrTraces
		}
		if t.of == nil {
			t.of = map[string]*trace{}
		}
		one = &trace{stands: stands}
		t.of[key] = one
		t.on.Store(int32(len(t.of)))
	}
	one.until = now.Add(traceFor)
	out := []inspect.TraceLine{}
	for _, line := range one.lines {
		if line.Number > after && (source == inspect.AnySource || line.Source == source) {
			out = append(out, line)
		}
	}
	return out, nil
}

// expire ends the traces that nobody reads. Under mu.
func (t *Traces) expire(now time.Time) {
	maps.DeleteFunc(t.of, func(_ string, one *trace) bool { return !now.Before(one.until) })
	t.on.Store(int32(len(t.of)))
}

// On reports whether any trace is open on this node.
func (t *Traces) On() bool { return t.on.Load() > 0 }

// Add puts a line into the traces of a receiver.
func (t *Traces) Add(now time.Time, key string, line inspect.TraceLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if t.number == 0 { // so that numbers grow even after a restart of the process
		t.number = uint64(max(0, now.UnixMicro()))
	}
	t.number++
	line.Number = t.number
	for _, one := range t.of {
		if one.stands(key) {
			one.lines = append(one.lines, line)
			one.lines = one.lines[max(0, len(one.lines)-traceLines):]
		}
	}
}
