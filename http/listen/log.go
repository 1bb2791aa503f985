package listen

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// warnEvery is how often one kind of warning about the ledger is logged:
// customers ask some thousand times a second, also while it is away. Guess.
const warnEvery = 5 * time.Second

// Warning is one line of the log that many requests have cause for. Safe for concurrent use.
type Warning struct {
	Log     *slog.Logger
	Message string

	mu   sync.Mutex
	next time.Time // when it may be logged again; guarded by mu
	held int       // not logged since the last one; guarded by mu
}

// Write logs the warning, unless it was logged a moment ago; "more" says how often
// that was so.
func (c *Warning) Write(now time.Time, args ...any) {
	c.mu.Lock()
	if now.Before(c.next) {
		c.held++
		c.mu.Unlock()
		return
	}
	held := c.held
	c.next, c.held = now.Add(warnEvery), 0
	c.mu.Unlock()
	c.Log.Log(context.Background(), slog.LevelWarn, c.Message, append(args, "more", held)...)
}

// Quiet takes fasthttp's own lines. Their text may hold what a client
// sent, so only the fact is kept, at debug level.
type Quiet struct{ Log *slog.Logger }

// Printf drops the arguments: they may hold raw request bytes.
func (l Quiet) Printf(format string, _ ...any) {
	l.Log.Debug("http library line", "format", strings.TrimSpace(format))
}
