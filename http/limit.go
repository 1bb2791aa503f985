package http

import (
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// keyLimits are the limits per API key, and per user of pages: this node's equal share of the limits of all nodes
// together.
type keyLimits struct {
	reads, creates, pages *rateLimiter
	downloads             *slots
}

func newKeyLimits(l Limits, nodes func() int, now func() time.Time) *keyLimits {
	return &keyLimits{reads: newRateLimiter(l.Reads, nodes, now), creates: newRateLimiter(l.Creates, nodes, now),
		pages:     newRateLimiter(l.Pages, nodes, now),
		downloads: &slots{max: l.DownloadMax, nodes: nodes, used: make(map[string]int)}}
}

// floorRate is the least that a node allows, unless the limit itself is less: with any number of nodes a program may
// poll its file once a second, and its first few requests pass. Guess.
var floorRate = Rate{PerSecond: 1, Burst: 5}

// dividedBy is the share of one of n nodes. Bursts are rounded up.
func (r Rate) dividedBy(n int) Rate {
	n = max(n, 1)
	return Rate{PerSecond: max(r.PerSecond/float64(n), min(r.PerSecond, floorRate.PerSecond)),
		Burst: max((r.Burst+n-1)/n, min(r.Burst, floorRate.Burst))}
}

// oneNode is the number of nodes for limits that each node applies by itself.
func oneNode() int { return 1 }

// bucketsMax bounds the names that one limiter remembers, each of some 250 bytes. At the bound the least recently used
// is dropped: its bucket is full by then, unless somebody uses that many network addresses.
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
	if b.Limit() != limit || b.Burst() != part.Burst { // a node joined or left
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

// slots counts the uses in progress per name. Safe for concurrent use.
type slots struct {
	max   int        // of all nodes together
	nodes func() int // number of nodes that share it; each has its share, rounded up

	mu   sync.Mutex
	used map[string]int // guarded by mu; no entry for none
}

// takeSlot takes a slot, and returns nil when all are used. The function that it returns gives the slot back and must
// be called once.
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

// seconds rounds a wait up to whole seconds, between least and most.
func seconds(wait time.Duration, least, most int) int {
	n := (wait + time.Second - 1) / time.Second
	return int(min(max(n, time.Duration(least)), time.Duration(most)))
}
