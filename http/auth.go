package http

import (
	"context"
	"crypto/subtle"
	"errors"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/quota"
)

const (
	headerAPIKey    = "X-API-Key"
	headerForwarded = "X-Forwarded-For"
)

// admit checks key, origin and rate. If a check fails, it answers and returns false.
func (s *Server) admit(ctx context.Context, r *request) bool {
	key, ok := s.identify(ctx, r)
	if !ok {
		return false
	}
	r.key = key
	if s.origins.Foreign(r.RequestCtx) && r.route != routeCredits {
		s.refuse(r, api.OriginNotAllowed, 0)
		return false
	}
	return takeRate(s, r, r.route == routeVerifications && !r.read)
}

// takeRate counts a request against the rate of its key. Above the rate it answers and returns false.
func takeRate(s *Server, r *request, create bool) bool {
	bucket, name := s.limits.reads, "reads"
	if create {
		bucket, name = s.limits.creates, "creates"
	}
	if wait := bucket.takeToken(r.key.ID); wait > 0 {
		s.limited(r, name, wait)
		return false
	}
	return true
}

// identify finds the workspace of a request's key. Without a good key it answers and returns false. Only requests
// with rejected keys count against their network address, and only such requests are refused for it, because others
// may share the address.
func (s *Server) identify(ctx context.Context, r *request) (key ledger.Key, ok bool) {
	address := listen.NetworkOf(s.client(r))
	values := r.Request.Header.PeekAll(headerAPIKey)
	if len(values) == 0 || len(values) == 1 && len(values[0]) == 0 {
		s.refuse(r, api.MissingAPIKey, 0) // no guess
		return ledger.Key{}, false
	}
	badKeys, known := s.limits.badKeys, keyRejected
	var presented api.Key
	if len(values) == 1 { // of several keys the library would use the first
		presented, ok = api.ParseKey(values[0])
		if ok {
			key, known = s.keys.recall(presented)
		}
	}
	switch known {
	case keyAccepted:
		return key, true
	case keyRejected:
		s.reject(r, badKeys.takeToken(address))
		return ledger.Key{}, false
	case keyStale: // the key was good and has the right secret, so this is no try
		return s.lookUp(ctx, r, presented, func() time.Duration { return badKeys.takeToken(address) }, func() {})
	}
	if badKeys.takeToken(address) == 0 { // returned if the ledger says that the key is good
		return s.lookUp(ctx, r, presented, func() time.Duration { return 0 }, func() { badKeys.returnToken(address) })
	}
	if wait := s.limits.lookups.takeToken(address); wait > 0 {
		s.limited(r, "key_lookups", wait)
		return ledger.Key{}, false
	}
	return s.lookUp(ctx, r, presented, func() time.Duration { return badKeys.takeToken(address) }, func() {})
}

// client returns the address that a request comes from, as trusted proxies report it.
func (s *Server) client(r *request) netip.Addr {
	return s.options.Trusted.Client(listen.IPOf(r.RemoteAddr()), r.Request.Header.PeekAll(headerForwarded))
}

// lookUp asks the ledger about a key. rejected returns the wait for a bad key. notBad is called for a good key, and
// if the ledger did not answer.
func (s *Server) lookUp(ctx context.Context, r *request, presented api.Key, rejected func() time.Duration,
	notBad func()) (ledger.Key, bool) {
	key, err := s.keys.askLedger(ctx, presented)
	if errors.Is(err, errBadKey) {
		s.reject(r, rejected())
		return ledger.Key{}, false
	}
	notBad()
	if err != nil { // not 401: the key may be good
		s.unavailable(r, "read key", err)
		return ledger.Key{}, false
	}
	return key, true
}

// reject answers a request with a bad key: 401, or 429 if its address has to wait.
func (s *Server) reject(r *request, wait time.Duration) {
	if wait > 0 {
		s.limited(r, "bad_keys", wait)
		return
	}
	s.refuse(r, api.InvalidAPIKey, 0)
}

// limited answers 429 with the time to the next token.
func (s *Server) limited(r *request, limit string, wait time.Duration) {
	s.metrics.limited.WithLabelValues(limit).Inc()
	s.refuse(r, api.RateLimited, seconds(wait, 60))
}

// unavailable answers 503 because the ledger did not answer. It logs the error, but not too often. Errors of the
// ledger hold no address and no secret.
func (s *Server) unavailable(r *request, step string, err error) {
	s.noAnswer.Write(time.Now(), "stage", step, "route", routeNames[r.route],
		"request", listen.RequestID(r.RequestCtx), "err", err)
	s.refuse(r, api.ServiceUnavailable, listen.Jitter(5, 5))
}

// errBadKey: a key is malformed, unknown or revoked. The answer does not say which.
var errBadKey = errors.New("http: the key is invalid")

// How long an answer about a key is cached. A revoked key must stop within 5 seconds, counted from before the ledger
// was asked; the second that remains is for requests in progress. Answers about bad keys are cached for less time,
// because such a key may just have been made.
const (
	goodKeyLife = 4 * time.Second
	badKeyLife  = time.Second
)

// goodKeysMax and badKeysMax bound the two kinds of answers, of about 200 bytes each: 13 MB and 3 MB. At the bound the
// least recently used are dropped. They are separate, so that wrong keys can't displace good ones.
const (
	goodKeysMax = 65536
	badKeysMax  = 16384
)

// keyState is what the cache knows about a request's key.
type keyState int

const (
	keyUnknown  keyState = iota // not cached: the ledger must be asked
	keyStale                    // the key was good: the ledger must be asked again
	keyAccepted                 // it is good
	keyRejected                 // it is not
)

// keyCache caches the ledger's answers about keys. A good key stays in the cache after goodKeyLife. Then the ledger
// is asked again, but the request does not count as a guess.
type keyCache struct {
	book ledger.Book
	now  func() time.Time
	ask  singleflight.Group
	used *ledger.Uses[string]

	good *lru.Cache[string, goodKey]   // by key id
	bad  *lru.Cache[string, time.Time] // how long each is cached, by key id
}

// goodKey is a good key and the time until which that answer is cached.
type goodKey struct {
	key   ledger.Key
	until time.Time
}

func newKeyCache(book ledger.Book, now func() time.Time) *keyCache {
	return &keyCache{book: book, now: now, good: newLRU[goodKey](goodKeysMax), bad: newLRU[time.Time](badKeysMax),
		used: ledger.NewUses(func(ctx context.Context, ids []string) error { return book.UseKeys(ctx, ids) })}
}

// recall returns what is known about a key without the ledger. The secret of an id never changes, so a wrong secret
// is bad at once.
func (c *keyCache) recall(presented api.Key) (ledger.Key, keyState) {
	g, isGood := c.good.Get(presented.ID)
	until, isBad := c.bad.Get(presented.ID)
	now := c.now()
	same := sameSecret(g.key, presented)
	switch {
	case isGood && !same, isBad && now.Before(until):
		return ledger.Key{}, keyRejected
	case isGood && now.Before(g.until):
		return g.key, keyAccepted
	case isGood:
		return ledger.Key{}, keyStale
	}
	return ledger.Key{}, keyUnknown
}

// sameSecret compares secrets in constant time. It compares an unknown id with zeros, so that both cases take equally
// long.
func sameSecret(key ledger.Key, presented api.Key) bool {
	return subtle.ConstantTimeCompare(key.SecretSHA256[:], presented.SHA256[:]) == 1
}

// askLedger asks the ledger for the workspace of a key. Errors: errBadKey, or the ledger's. Simultaneous requests share
// one question.
func (c *keyCache) askLedger(ctx context.Context, presented api.Key) (ledger.Key, error) {
	id := presented.ID
	v, err, _ := c.ask.Do(id, func() (any, error) {
		asked := c.now()
		key, err := c.book.KeyByID(ctx, id)
		switch {
		case errors.Is(err, ledger.ErrNoSuchKey), err == nil && !key.Works():
			c.good.Remove(id)
			c.bad.Add(id, asked.Add(badKeyLife))
			return ledger.Key{}, errBadKey
		case err != nil:
			return nil, err
		}
		c.bad.Remove(id)
		c.good.Add(id, goodKey{key: key, until: asked.Add(goodKeyLife)})
		return key, nil
	})
	if err != nil {
		return ledger.Key{}, err
	}
	key := v.(ledger.Key)
	if !sameSecret(key, presented) {
		return ledger.Key{}, errBadKey
	}
	if c.now().Sub(key.LastUsed) >= ledger.UseEvery {
		c.used.Note(id)
	}
	return key, nil
}

func newLRU[V any](most int) *lru.Cache[string, V] {
	c, err := lru.New[string, V](most)
	if err != nil {
		panic(err) // most is a constant above 0
	}
	return c
}

// requestLimits are the limits of requests. The limits per API key, and per user of pages, are shared equally by all
// nodes; this node has its share.
type requestLimits struct {
	reads, creates, pages *rateLimiter
	downloads             *slots
	badKeys               *rateLimiter           // by network address, always of this node alone
	lookups               *rateLimiter           // by network address, for suspicious keys that are looked up
	places                *quota.Pool[uuid.UUID] // of requests with a good key, by workspace
}

func newRequestLimits(l Limits, nodes func() int, now func() time.Time) *requestLimits {
	return &requestLimits{reads: newRateLimiter(l.Reads, nodes, now), creates: newRateLimiter(l.Creates, nodes, now),
		pages:     newRateLimiter(l.Pages, nodes, now),
		downloads: &slots{max: l.DownloadMax, nodes: nodes, used: make(map[string]int)},
		badKeys:   newRateLimiter(l.BadKeys, oneNode, now), lookups: newRateLimiter(l.KeyLookups, oneNode, now),
		places: quota.New[uuid.UUID](int64(l.InFlightMax))}
}

// floorRate is the least that a node allows, unless the limit itself is less. So with any number of nodes a program
// may poll its file once a second, and its first few requests pass. Guess.
var floorRate = Rate{PerSecond: 1, Burst: 5}

// dividedBy returns the share of one of n nodes. Bursts are rounded up.
func (r Rate) dividedBy(n int) Rate {
	n = max(n, 1)
	return Rate{PerSecond: max(r.PerSecond/float64(n), min(r.PerSecond, floorRate.PerSecond)),
		Burst: max((r.Burst+n-1)/n, min(r.Burst, floorRate.Burst))}
}

// oneNode is the number of nodes for limits that each node applies by itself.
func oneNode() int { return 1 }

// bucketsMax bounds the names that one limiter remembers, each some 250 bytes. At the bound the least recently used
// name is dropped. Its bucket is full by then, unless somebody uses that many network addresses.
const bucketsMax = 65536

// rateLimiter is a token bucket per name. Safe for concurrent use.
type rateLimiter struct {
	all     Rate       // of all nodes together
	nodes   func() int // that share it
	now     func() time.Time
	buckets *lru.Cache[string, *rate.Limiter]
}

func newRateLimiter(all Rate, nodes func() int, now func() time.Time) *rateLimiter {
	return &rateLimiter{all: all, nodes: nodes, now: now, buckets: newLRU[*rate.Limiter](bucketsMax)}
}

// takeToken takes a token and returns 0, or the time until there is one.
func (l *rateLimiter) takeToken(name string) time.Duration {
	now, part := l.now(), l.all.dividedBy(l.nodes())
	limit := rate.Limit(part.PerSecond)
	b, ok := l.buckets.Get(name)
	if !ok {
		b = rate.NewLimiter(limit, part.Burst)
		if first, ok, _ := l.buckets.PeekOrAdd(name, b); ok {
			b = first
		}
	}
	if b.Limit() != limit || b.Burst() != part.Burst { // changed because a node joined or left
		b.SetLimitAt(now, limit)
		b.SetBurstAt(now, part.Burst)
	}
	if b.AllowN(now, 1) {
		return 0
	}
	missing := 1 - b.TokensAt(now)
	return max(time.Duration(math.Ceil(missing/part.PerSecond*float64(time.Second))), 1)
}

// returnToken puts back a token of takeToken.
func (l *rateLimiter) returnToken(name string) {
	if b, ok := l.buckets.Peek(name); ok {
		b.AllowN(l.now(), -1)
	}
}

// slots counts, by name, the uses in progress. Safe for concurrent use.
type slots struct {
	max   int        // of all nodes together
	nodes func() int // number of nodes that share it; each has its share, rounded up

	mu   sync.Mutex
	used map[string]int // guarded by mu; without entries of zero
}

// takeSlot takes a slot, or returns nil if all are used. The returned function gives the slot back and must be called
// once.
func (s *slots) takeSlot(name string) (release func()) {
	nodes := max(s.nodes(), 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[name] >= (s.max+nodes-1)/nodes {
		return nil
	}
	s.used[name]++
	return func() { s.releaseSlot(name) }
}

func (s *slots) releaseSlot(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[name]--; s.used[name] <= 0 {
		delete(s.used, name)
	}
}

// seconds rounds a wait up to whole seconds, from 1 to most.
func seconds(wait time.Duration, most int) int {
	return min(max(int((wait+time.Second-1)/time.Second), 1), most)
}
