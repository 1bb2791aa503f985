package status

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
)

const (
	// historyMinutes is how far back a history reaches.
	historyMinutes = 6 * 60

	// historiesMax bounds the receivers with a history on a node. Histories without an actor are dropped first, beginning
	// with the least recently used. A history of six hours without a gap takes 17 KB; all of them take 17 MB.
	historiesMax = 1_000
)

// Histories are a node's records of the last hours, even of receivers whose actors have ended. Safe for concurrent use;
// the zero value is ready.
type Histories struct {
	mu      sync.Mutex
	of      map[string]*History // guarded by mu; by receiver key
	dropped int                 // guarded by mu; receivers without room
}

// History is the record of one receiver. Safe for concurrent use.
type History struct {
	all     *Histories
	key     string
	writers int       // guarded by all.mu; actors that write to it
	used    time.Time // guarded by all.mu; when an actor last began or ended to use it

	mu      sync.Mutex
	domain  string                // guarded by mu; one of the receiver's mail domains
	minutes []minuteRow           // guarded by mu; oldest first, with gaps where nothing happened
	held    [Causes]time.Duration // guarded by mu; how long each cause held in the newest minute
}

// minuteRow is an inspect.Minute in 44 bytes.
type minuteRow struct {
	at                                 int32 // minutes since 1970
	asked, accepted, refused, deferred int32
	opened, sessions, queued           int32
	allowed, last                      float32
	cause                              uint8
}

// Open returns the history of a receiver to an actor; nil: there is no room. first: this actor asks for the first time.
func (r *Histories) Open(key string, now time.Time, first bool) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[key]
	if one == nil {
		if len(r.of) >= historiesMax && !r.evict() {
			if first {
				r.dropped++
			}
			return nil
		}
		if r.of == nil {
			r.of = map[string]*History{}
		}
		one = &History{all: r, key: key}
		r.of[key] = one
	}
	one.writers++
	one.used = now
	return one
}

// evict makes room for a history. Under mu.
func (r *Histories) evict() bool {
	var oldest *History
	for _, one := range r.of {
		if one.writers == 0 && (oldest == nil || one.used.Before(oldest.used)) {
			oldest = one
		}
	}
	if oldest == nil {
		return false
	}
	delete(r.of, oldest.key)
	return true
}

// Close notes that an actor no longer uses its history.
func (r *History) Close(now time.Time) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.writers--
	r.used = now
}

// Asked counts RCPTs that were sent. domain is that of one of them, if known.
func (r *History) Asked(now time.Time, n int32, domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute(now).asked += n
	r.domain = cmp.Or(r.domain, domain)
}

// Opened counts a session that is dialled.
func (r *History) Opened(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute(now).opened++
}

// Answered counts one reply to RCPT.
func (r *History) Answered(now time.Time, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.minute(now)
	switch code / 100 {
	case 2:
		m.accepted++
	case 5:
		m.refused++
	default:
		m.deferred++
	}
}

// Moment is the state of a receiver at one time.
type Moment struct {
	Sessions, Queued int
	Permitted        float64 // RCPTs a second
	Cause            wire.Cause
}

// Observe adds a moment to its minute. before is the cause that held since the last moment; since is zero if there was
// no last moment.
func (r *History) Observe(now time.Time, is Moment, before wire.Cause, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.minute(now)
	m.sessions = max(m.sessions, int32(is.Sessions))
	m.queued = int32(is.Queued)
	m.last = float32(is.Permitted)
	if m.allowed < 0 || m.last < m.allowed {
		m.allowed = m.last
	}
	if !since.IsZero() {
		if began := now.Truncate(time.Minute); since.Before(began) {
			since = began
		}
		r.held[before] += now.Sub(since)
	}
	longest := is.Cause
	for c, long := range r.held {
		if long > r.held[longest] {
			longest = wire.Cause(c)
		}
	}
	m.cause = uint8(longest)
}

// minute returns the row of now, and drops rows that are too old. Under mu.
func (r *History) minute(now time.Time) *minuteRow {
	at := int32(now.Unix() / 60)
	if n := len(r.minutes); n > 0 && r.minutes[n-1].at >= at { // the clock may have been set back
		return &r.minutes[n-1]
	}
	clear(r.held[:])
	r.expire(at)
	r.minutes = append(r.minutes, minuteRow{at: at, allowed: -1})
	return &r.minutes[len(r.minutes)-1]
}

func (r *History) expire(at int32) {
	r.minutes = slices.DeleteFunc(r.minutes, func(m minuteRow) bool { return m.at <= at-historyMinutes })
}

// Last returns the minutes of a time before now, oldest first.
func (r *History) Last(now time.Time, minutes int32) []inspect.Minute {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last(now, minutes)
}

func (r *History) last(now time.Time, minutes int32) []inspect.Minute {
	var out []inspect.Minute
	for i := range r.minutes {
		if m := &r.minutes[i]; m.at > int32(now.Unix()/60)-minutes {
			out = append(out, m.shown())
		}
	}
	return out
}

func (m *minuteRow) shown() inspect.Minute {
	return inspect.Minute{At: time.Unix(int64(m.at)*60, 0).UTC(), Asked: int(m.asked), Accepted: int(m.accepted),
		Refused: int(m.refused), Deferred: int(m.deferred), Opened: int(m.opened), Sessions: int(m.sessions),
		Queued: int(m.queued), Allowed: max(0, float64(m.allowed)),
		AllowedLast: float64(m.last), Cause: inspect.Causes[m.cause]}
}

// Record returns the histories of receivers in the order of their keys, beginning after a given key. Record stops at
// about most bytes of JSON, and reports whether these are all.
func (r *Histories) Record(now time.Time, after string, most int) (out inspect.Record, whole bool) {
	r.mu.Lock()
	all := maps.Clone(r.of)
	out.Dropped = r.dropped
	r.mu.Unlock()
	out.Receivers = []inspect.ReceiverRecord{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key <= after {
			continue
		}
		if most <= 0 {
			return out, false
		}
		one := all[key].shown(now)
		if len(one.Minutes) == 0 {
			continue
		}
		most -= len(one.Key) + len(one.Domain) + 190*len(one.Minutes) // about its size in JSON
		if from := one.Minutes[0].At.Unix(); out.From == 0 || from < out.From {
			out.From = from
		}
		out.Receivers = append(out.Receivers, one)
	}
	return out, true
}

// shown returns the history of a receiver in its public form.
func (r *History) shown(now time.Time) inspect.ReceiverRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(int32(now.Unix() / 60))
	return inspect.ReceiverRecord{Key: r.key, Domain: r.domain, Minutes: r.last(now, historyMinutes)}
}
