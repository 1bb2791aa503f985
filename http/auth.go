package http

import (
	"context"
	"crypto/subtle"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"rollcall/http/api"
	"rollcall/http/apikey"
	"rollcall/ledger"
)

const headerAPIKey = "X-API-Key"

// admit makes the checks of address, key, origin and rate; it answers and
// gives false when one refuses.
func (s *Server) admit(ctx context.Context, r *request) bool {
	address := addressOf(r.RemoteIP())
	if wait := s.badKeys.wait(address); wait > 0 {
		s.limited(r, "bad_keys", wait)
		return false
	}
	values := r.Request.Header.PeekAll(headerAPIKey)
	if len(values) == 0 || len(values) == 1 && len(values[0]) == 0 {
		writeIssue(r.RequestCtx, api.MissingAPIKey, 0)
		return false
	}
	key, err := ledger.Key{}, errBadKey
	if len(values) == 1 { // the library would take the first of several
		key, err = s.keys.check(ctx, values[0])
	}
	if errors.Is(err, errBadKey) {
		s.badKeys.take(address)
		writeIssue(r.RequestCtx, api.InvalidAPIKey, 0)
		return false
	}
	if err != nil { // never 401: nobody knows whether the key is good
		s.unavailable(r, "read key", err)
		return false
	}
	r.key = key
	if s.foreignOrigin(r) && r.route != routeCredits {
		writeIssue(r.RequestCtx, api.OriginNotAllowed, 0)
		return false
	}
	take, name := s.limits.Read, "reads"
	if r.route == routeVerifications && !r.read {
		take, name = s.limits.Create, "creates"
	}
	if wait := take(key.ID); wait > 0 {
		s.limited(r, name, wait)
		return false
	}
	return true
}

// limited answers 429 with the time to the next token.
func (s *Server) limited(r *request, limit string, wait time.Duration) {
	s.metrics.limited.WithLabelValues(limit).Inc()
	writeIssue(r.RequestCtx, api.RateLimited, seconds(wait, 1, 60))
}

// unavailable answers 503 for a ledger that did not answer. The error is logged,
// not more than one in complaintEvery; it holds no address and no secret by the
// rules of the ledger.
func (s *Server) unavailable(r *request, step string, err error) {
	s.noAnswer.warn(time.Now(), "stage", step, "route", routeNames[r.route],
		"request", requestID(r.RequestCtx), "err", err)
	writeIssue(r.RequestCtx, api.ServiceUnavailable, jitter(5, 5))
}

// errBadKey is a key that is malformed, unknown or revoked; nobody is told which.
var errBadKey = errors.New("http: the key is not good")

// How long an answer about a key is believed. A revoked key must stop within 5
// seconds, counted from before the ledger was asked; the second left over is for
// a request on its way. A bad one is forgotten sooner, for keys just made.
const (
	goodKeyLife = 4 * time.Second
	badKeyLife  = time.Second
)

// keyCacheMax bounds both kinds of answers together: 65,536 entries of about
// 200 bytes are 13 MB. At the bound old answers go first, then any.
const keyCacheMax = 65536

// keyCache remembers for a moment what the ledger said about keys.
type keyCache struct {
	book Book
	now  func() time.Time
	ask  singleflight.Group

	mu      sync.RWMutex
	answers map[string]keyAnswer // guarded by mu; by key id
}

// keyAnswer is what the ledger said about one key id.
type keyAnswer struct {
	key   ledger.Key
	good  bool
	until time.Time
}

func newKeyCache(book Book, now func() time.Time) *keyCache {
	return &keyCache{book: book, now: now, answers: make(map[string]keyAnswer)}
}

// check says whose key the text is. errBadKey, or the ledger's error.
func (c *keyCache) check(ctx context.Context, text []byte) (ledger.Key, error) {
	presented, ok := apikey.Parse(text)
	if !ok {
		return ledger.Key{}, errBadKey
	}
	answer, err := c.answer(ctx, presented.ID)
	if err != nil {
		return ledger.Key{}, err
	}
	// Compared also for an unknown id, against zeros, so that both take as long.
	same := subtle.ConstantTimeCompare(answer.key.SecretSHA256[:], presented.SHA256[:]) == 1
	if !answer.good || !same {
		return ledger.Key{}, errBadKey
	}
	return answer.key, nil
}

// answer gives what is known of a key id, asking the ledger when it is too old.
// Requests that ask at the same time share one question.
func (c *keyCache) answer(ctx context.Context, id string) (keyAnswer, error) {
	c.mu.RLock()
	a, found := c.answers[id]
	c.mu.RUnlock()
	if found && c.now().Before(a.until) {
		return a, nil
	}
	v, err, _ := c.ask.Do(id, func() (any, error) {
		asked := c.now()
		key, err := c.book.KeyByID(ctx, id)
		switch {
		case errors.Is(err, ledger.ErrNoSuchKey), err == nil && !key.Revoked.IsZero():
			return c.keep(id, keyAnswer{until: asked.Add(badKeyLife)}), nil
		case err != nil:
			return nil, err
		}
		return c.keep(id, keyAnswer{key: key, good: true, until: asked.Add(goodKeyLife)}), nil
	})
	if err != nil {
		return keyAnswer{}, err
	}
	return v.(keyAnswer), nil
}

// keep stores an answer and makes room for it.
func (c *keyCache) keep(id string, a keyAnswer) keyAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.answers[id]; !known && len(c.answers) >= keyCacheMax {
		c.makeRoom()
	}
	c.answers[id] = a
	return a
}

// makeRoom drops what is too old, or else a part of all: the map is in random
// order, so nobody can choose who is forgotten.
func (c *keyCache) makeRoom() {
	now := c.now()
	for id, a := range c.answers {
		if !now.Before(a.until) {
			delete(c.answers, id)
		}
	}
	for id := range c.answers {
		if len(c.answers) < keyCacheMax/8*7 {
			break
		}
		delete(c.answers, id)
	}
}
