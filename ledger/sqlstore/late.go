package sqlstore

import (
	"math/rand/v2"
	"sync"

	"github.com/google/uuid"
)

const (
	// lateKept bounds the verifications that a process remembers as failed in a sweep: a few dozen bytes each.
	lateKept = 1000
	// lateTried is how many of them one sweep tries again.
	lateTried = 20
)

// chore is one cause for which one verification is due.
type chore struct {
	what string
	id   uuid.UUID
}

// lateChores are those that failed in a sweep. Sweeps do all others first, so that however many fail
// again and again, what is due behind them is done.
type lateChores struct {
	mu  sync.Mutex
	all map[chore]bool
}

// add remembers a chore, and says whether it is new and there was room for it.
func (l *lateChores) add(c chore) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= lateKept || l.all[c] {
		return false
	}
	if l.all == nil {
		l.all = map[chore]bool{}
	}
	l.all[c] = true
	return true
}

func (l *lateChores) drop(c chore) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, c)
}

func (l *lateChores) has(c chore) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[c]
}

func (l *lateChores) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// some draws lateTried of them, or all when there are fewer.
func (l *lateChores) some() (list []chore) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.all {
		list = append(list, c)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(len(list), lateTried)]
}
