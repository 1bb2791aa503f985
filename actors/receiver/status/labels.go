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

	// labelsNear: a receiver keeps its label while it is among so many with the most queued.
	labelsNear = 2 * collectedMax

	// labelsTop: a receiver among so many with the most queued takes the label of the last one that has a label, if it
	// has labelsMore times as much queued. Guess.
	labelsTop  = 10
	labelsMore = 4
)

// labels says which receivers have series of their own. One that has a label keeps it while
// it is near the top, so that receivers of about the same length do not change places at each
// scrape. Safe for concurrent use.
type labels struct {
	mu   sync.Mutex
	has  map[string]bool      // guarded by mu
	last map[string]time.Time // guarded by mu; when a key had a label last
	came []time.Time          // guarded by mu; when keys got one that had none within labelsPer
}

// busiest splits receivers into those with a label, most queued first, and the others. If a key lives here twice during
// a move, the busier one counts.
func (l *labels) busiest(now time.Time, all []inspect.Receiver) (top, rest []inspect.Receiver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has == nil {
		l.has, l.last = map[string]bool{}, map[string]time.Time{}
	}
	inspect.SortReceivers(all)
	place, ranked := map[string]int{}, []*inspect.Receiver{}
	for i := range all {
		if _, seen := place[all[i].Key]; !seen {
			place[all[i].Key] = len(ranked)
			ranked = append(ranked, &all[i])
		}
	}
	l.expire(now, place)
	l.fill(now, ranked)
	l.replace(now, ranked)
	shown := map[string]bool{}
	for _, r := range all {
		if l.has[r.Key] && !shown[r.Key] {
			shown[r.Key] = true
			l.last[r.Key] = now
			top = append(top, r)
		} else {
			rest = append(rest, r)
		}
	}
	return top, rest
}

// expire takes labels from receivers that have gone, and forgets what is older than an hour.
func (l *labels) expire(now time.Time, place map[string]int) {
	for key := range l.has {
		if _, lives := place[key]; !lives {
			delete(l.has, key)
		}
	}
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
		l.last[key] = now
	}
	l.has[key] = true
	return true
}

// fill gives free labels to the first receivers without one.
func (l *labels) fill(now time.Time, ranked []*inspect.Receiver) {
	for _, r := range ranked {
		if len(l.has) >= collectedMax {
			return
		}
		if !l.has[r.Key] {
			l.give(now, r.Key)
		}
	}
}

// replace moves labels from receivers far from the top, or with far less queued than one at the top, to those at the
// top without one.
func (l *labels) replace(now time.Time, ranked []*inspect.Receiver) {
	last := len(ranked) - 1
	for i, r := range ranked[:min(len(ranked), collectedMax)] {
		if l.has[r.Key] {
			continue
		}
		for last > i && !l.has[ranked[last].Key] {
			last--
		}
		if last <= i {
			return
		}
		worst := ranked[last]
		if last < labelsNear && (i >= labelsTop || r.Queued < labelsMore*max(1, worst.Queued)) {
			return
		}
		if l.give(now, r.Key) {
			delete(l.has, worst.Key)
		}
	}
}
