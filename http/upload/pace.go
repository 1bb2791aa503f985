package upload

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// paceAhead is how much of a workspace's uploads is read at full speed, in time at its rate: reads
	// come in pieces. Guess.
	paceAhead = time.Second

	// pacesKept is how many workspaces are remembered before those are forgotten that are within
	// their rate.
	pacesKept = 1024
)

// paces bound how fast the uploads of each workspace are read, all of its connections
// together. Nil bounds nothing. Safe for concurrent use.
type paces struct {
	perSecond int64

	mu   sync.Mutex
	paid map[uuid.UUID]time.Time // when what was read would have come at the rate
}

// newPaces makes bounds of so many bytes a second; nil for 0.
func newPaces(perSecond int64) *paces {
	if perSecond == 0 {
		return nil
	}
	return &paces{perSecond: perSecond, paid: map[uuid.UUID]time.Time{}}
}

// took notes that n bytes were read at now, and gives how long nothing more is to be read.
func (p *paces) took(workspace uuid.UUID, n int64, now time.Time) time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	paid, known := p.paid[workspace]
	if !known && len(p.paid) >= pacesKept {
		for other, until := range p.paid {
			if !until.After(now) {
				delete(p.paid, other)
			}
		}
	}
	if paid.Before(now) {
		paid = now
	}
	paid = paid.Add(time.Duration(float64(n) / float64(p.perSecond) * float64(time.Second)))
	p.paid[workspace] = paid
	return max(0, paid.Sub(now)-paceAhead)
}

// hold waits until the workspace is within its rate, or the node ends. The client's time stands
// still meanwhile.
func (p *put) hold(window *rateWindow, n int64) {
	long := p.s.rates.took(p.state.Workspace, n, time.Now())
	if long == 0 {
		return
	}
	p.s.metrics.held.Add(long.Seconds())
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.s.ending:
	}
	window.later(long)
}
