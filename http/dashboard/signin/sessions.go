package signin

import (
	"context"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"rollcall/ledger"
)

const (
	// believed is how long an answer about a session holds, from before the book was asked.
	believed = 4 * time.Second

	// sessionsMax bounds the answers that are kept. At the bound the one that was used least lately is forgotten.
	sessionsMax = 16384

	// endedFor is how long it matters at least that a session was ended here while the book was asked.
	endedFor = believed + 5*time.Second
)

// sessionCache remembers what the book said about sessions.
type sessionCache struct {
	book Book
	idle time.Duration
	now  func() time.Time
	ask  singleflight.Group
	used *ledger.Uses[ledger.Hash]

	kept *lru.Cache[ledger.Hash, keptSession]

	mu    sync.Mutex
	ended map[ledger.Hash]time.Time // guarded by mu: ended here while the book was asked; until when that matters
}

// keptSession is an answer and until when it holds.
type keptSession struct {
	in    ledger.SignedIn
	until time.Time
}

func newSessionCache(book Book, idle time.Duration, now func() time.Time) *sessionCache {
	c := &sessionCache{book: book, idle: idle, now: now, ended: map[ledger.Hash]time.Time{},
		used: ledger.NewUses(book.UseSessions)}
	c.kept, _ = lru.New[ledger.Hash, keptSession](sessionsMax)
	return c
}

// get gives a session. ledger.ErrNoSuchSession; another error: nobody knows.
func (c *sessionCache) get(ctx context.Context, id ledger.Hash) (ledger.SignedIn, error) {
	kept, known := c.kept.Get(id)
	if known && c.now().Before(kept.until) {
		return kept.in, nil
	}
	return c.getSince(ctx, id, c.now().Add(-believed))
}

// getSince gives a session as the book said it then or later.
func (c *sessionCache) getSince(ctx context.Context, id ledger.Hash, since time.Time) (ledger.SignedIn, error) {
	for {
		answer, err := c.question(ctx, id)
		if err != nil || !answer.asked.Before(since) { // else another request has asked before, and waited
			return answer.in, err
		}
	}
}

// answered is what the book said to a question that was asked then.
type answered struct {
	in    ledger.SignedIn
	asked time.Time
}

// question asks the book about a session, or waits for the answer to who is asking already.
func (c *sessionCache) question(ctx context.Context, id ledger.Hash) (answered, error) {
	v, err, _ := c.ask.Do(string(id[:]), func() (any, error) {
		asked := c.now()
		in, err := c.book.SessionByID(ctx, id, c.idle)
		switch {
		case errors.Is(err, ledger.ErrNoSuchSession):
			c.drop(id)
		case err == nil:
			c.keep(id, in, asked)
		}
		return answered{in, asked}, err
	})
	return v.(answered), err
}

// drop forgets a session of which the book knows nothing.
func (c *sessionCache) drop(id ledger.Hash) {
	c.kept.Remove(id)
	c.used.Forget(id)
}

// keep stores what the book answered to a question that was asked then.
func (c *sessionCache) keep(id ledger.Hash, in ledger.SignedIn, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, over := c.ended[id]; over && !asked.After(at) {
		return
	}
	c.kept.Add(id, keptSession{in: in, until: asked.Add(believed)})
	if asked.Sub(in.Session.Seen) >= ledger.UseEvery {
		c.used.Note(id)
	}
}

// forget makes the next request with a session ask the book.
func (c *sessionCache) forget(id ledger.Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Remove(id)
	c.used.Forget(id)
	now := c.now()
	for old, at := range c.ended {
		if now.Sub(at) > endedFor {
			delete(c.ended, old)
		}
	}
	if len(c.ended) < sessionsMax {
		c.ended[id] = now
	}
}

// forgetUser does so for all sessions of a user.
func (c *sessionCache) forgetUser(user ledger.User) {
	for _, id := range c.kept.Keys() {
		if kept, _ := c.kept.Peek(id); kept.in.User.ID == user.ID {
			c.forget(id)
		}
	}
}

// stop writes what is left to note.
func (c *sessionCache) stop() { c.used.Stop() }
