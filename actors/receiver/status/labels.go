package status

import (
	"sync"
	"time"

	"rollcall/actors/inspect"
)

const (
	// labelsNew bounds the receivers that get a new label in any hour: each makes some ten series that Prometheus keeps
	// for weeks.
	labelsNew = 99
	labelsPer = time.Hour
)

// labels says which receivers have series of their own. Safe for concurrent use.
type labels struct {
	mu   sync.Mutex
	last map[string]time.Time // guarded by mu; when a key had a label last
	came []time.Time          // guarded by mu; when keys got one that had none within labelsPer
}

// busiest splits receivers into those with a label, most queued first, and the others. If a key lives here twice during
// a move, the busier one counts.
func (l *labels) busiest(now time.Time, all []inspect.Receiver) (top, rest []inspect.Receiver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	inspect.SortReceivers(all)
	shown := map[string]bool{}
	for _, r := range all {
		if len(top) < collectedMax && !shown[r.Key] && l.give(now, r.Key) {
			shown[r.Key] = true
			top = append(top, r)
		} else {
			rest = append(rest, r)
		}
	}
	return top, rest
}

// expire forgets what is older than an hour.
func (l *labels) expire(now time.Time) {
	for key, at := range l.last {
		if now.Sub(at) >= labelsPer {
			delete(l.last, key)
		}
	}
	for len(l.came) > 0 && now.Sub(l.came[0]) >= labelsPer {
		l.came = l.came[1:]
	}
}

// give gives a key a label, if it had one within the hour or labelsNew permits.
func (l *labels) give(now time.Time, key string) bool {
	if _, known := l.last[key]; !known {
		if len(l.came) >= labelsNew {
			return false
		}
		l.came = append(l.came, now)
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[key] = now
	return true
}
