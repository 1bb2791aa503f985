package http

import (
	"net/netip"
	"sync"
	"time"
)

// Limiter keeps the limits per API key: Reads, Creates and DownloadMax of Limits.
// A server alone counts by itself; a node of a cluster is given one that counts for
// all nodes together. Keys are named by their id. Safe for concurrent use; a method
// blocks a quarter of a second at most.
type Limiter interface {
	// Read takes one token for anything but a create: 0, or the time to wait for one.
	Read(key string) (wait time.Duration)
	// Create takes one token for a create: 0, or the time to wait for one.
	Create(key string) (wait time.Duration)
	// Download takes a slot for one results download; false when all are used. The
	// function gives the slot back, must be called once, and does not block.
	Download(key string) (release func(), ok bool)
}

// local is the Limiter of one server alone.
type local struct {
	reads, creates *buckets
	downloads      *slots
}

func newLocal(l Limits, now func() time.Time) *local {
	return &local{reads: newBuckets(l.Reads, now), creates: newBuckets(l.Creates, now),
		downloads: newSlots(l.DownloadMax)}
}

// Read implements Limiter.
func (l *local) Read(key string) time.Duration { return l.reads.take(key) }

// Create implements Limiter.
func (l *local) Create(key string) time.Duration { return l.creates.take(key) }

// Download implements Limiter.
func (l *local) Download(key string) (release func(), ok bool) {
	if !l.downloads.take(key) {
		return nil, false
	}
	return func() { l.downloads.give(key) }, true
}

// bucketsMax bounds the names that one limiter remembers; 65,536 of about 100
// bytes. At the bound full buckets are forgotten, which changes nothing, and
// then, if somebody commands that many network addresses, any.
const bucketsMax = 65536

// buckets is a token bucket per name, in the form of the generic cell rate
// algorithm: the one thing kept per name is the time at which it is full again.
type buckets struct {
	step time.Duration // time for one token
	room time.Duration // burst, as time
	now  func() time.Time

	mu   sync.Mutex
	full map[string]time.Time // guarded by mu
}

func newBuckets(r Rate, now func() time.Time) *buckets {
	step := time.Duration(float64(time.Second) / r.PerSecond)
	return &buckets{step: step, room: step * time.Duration(r.Burst), now: now, full: make(map[string]time.Time)}
}

// give gives a token back that take gave.
func (b *buckets) give(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if full, known := b.full[name]; known {
		b.full[name] = full.Add(-b.step)
	}
}

// take takes a token, or gives the time until there is one.
func (b *buckets) take(name string) time.Duration {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	full, known := b.full[name]
	if !known || full.Before(now) {
		full = now
	}
	after := full.Add(b.step)
	if over := after.Sub(now) - b.room; over > 0 {
		return over
	}
	if !known && len(b.full) >= bucketsMax {
		b.makeRoom(now)
	}
	b.full[name] = after
	return 0
}

// makeRoom forgets full buckets, and when that is not enough an eighth of all.
func (b *buckets) makeRoom(now time.Time) {
	for name, full := range b.full {
		if !full.After(now) {
			delete(b.full, name)
		}
	}
	for name := range b.full {
		if len(b.full) < bucketsMax/8*7 {
			break
		}
		delete(b.full, name)
	}
}

// slots counts what runs at once per name.
type slots struct {
	max int

	mu   sync.Mutex
	used map[string]int // guarded by mu; no entry for none
}

func newSlots(most int) *slots { return &slots{max: most, used: make(map[string]int)} }

// take takes a slot; false when all are used.
func (s *slots) take(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[name] >= s.max {
		return false
	}
	s.used[name]++
	return true
}

// give gives a slot back.
func (s *slots) give(name string) {
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

// addressOf names the network address that limits count: one IPv4 address, or
// one IPv6 /64, which is what one customer line gets (RFC 6177).
func addressOf(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return string(a.AsSlice())
	}
	p, err := a.Prefix(64)
	if err != nil {
		return ""
	}
	return string(p.Addr().AsSlice())
}
