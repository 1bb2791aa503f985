package http

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const debugLevel = slog.LevelDebug

// complaintEvery is how often one kind of complaint about the ledger is logged:
// customers ask some thousand times a second, also while it is away. Guess.
const complaintEvery = 5 * time.Second

// complaint is one warning that many requests have cause for. Safe for concurrent use.
type complaint struct {
	log     *slog.Logger
	message string

	mu   sync.Mutex
	next time.Time // when it may be logged again; guarded by mu
	held int       // not logged since the last one; guarded by mu
}

// warn logs the complaint, unless it was logged a moment ago; "more" says how often
// that was so.
func (c *complaint) warn(now time.Time, args ...any) {
	c.mu.Lock()
	if now.Before(c.next) {
		c.held++
		c.mu.Unlock()
		return
	}
	held := c.held
	c.next, c.held = now.Add(complaintEvery), 0
	c.mu.Unlock()
	c.log.Log(context.Background(), slog.LevelWarn, c.message, append(args, "more", held)...)
}

// methodName gives a method for logs; a method we do not know is a stranger's text.
func methodName(method []byte) string {
	switch m := string(method); m {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT":
		return m
	}
	return "other"
}
