package effort

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long something that must happen may take on a slow machine.
const Patience = 3 * time.Minute

// Within waits for a condition.
func Within(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	tick := time.Tick(5 * time.Millisecond)
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited too long for %s", what)
		case <-tick:
		}
	}
}

// Log keeps what is written to it; it can be read while others write. Safe for concurrent use.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Has reports whether a text was written.
func (l *Log) Has(text string) bool { return strings.Contains(l.String(), text) }
