package upload

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/http/listen"
)

const (
	// paceAhead is how far reading a workspace's uploads may run ahead of its rate, because reads come in pieces.
	// Guess.
	paceAhead = time.Second

	// pacesKept is how many workspaces are remembered before those within their rate are dropped.
	pacesKept = 1024
)

// paces bound how fast the uploads of each workspace are read, all of its connections
// together. Nil bounds nothing. Safe for concurrent use.
type paces struct {
	perSecond int64

	mu   sync.Mutex
	paid map[uuid.UUID]time.Time // time at which the read bytes would have arrived at the rate
}

// newPaces makes bounds of so many bytes a second; nil for 0.
func newPaces(perSecond int64) *paces {
	if perSecond == 0 {
		return nil
	}
	return &paces{perSecond: perSecond, paid: map[uuid.UUID]time.Time{}}
}

// took notes that n bytes were read at now, and returns how long to read nothing.
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

// hold waits until the workspace is within its rate, or the node ends. The client's deadlines are extended by that
// time.
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

// rateWindow enforces a client's least rate: WindowBytes in each Window, which starts anew whenever they have arrived.
type rateWindow struct {
	s    *Server
	conn *listen.Conn
	got  int64 // in this window
	ends time.Time
}

func (w *rateWindow) open() {
	w.got, w.ends = 0, time.Now().Add(w.s.o.Window)
	_ = w.conn.SetReadDeadline(w.ends)
}

// later extends the client's deadline by a time in which the server did not read.
func (w *rateWindow) later(long time.Duration) {
	w.ends = w.ends.Add(long)
	_ = w.conn.SetReadDeadline(w.ends)
}

func (w *rateWindow) count(n int64) {
	if w.got += n; w.got >= w.s.o.WindowBytes {
		w.open()
	}
}

// writers knows which connection of this node writes which session, so that an older one ends as soon as a newer one
// takes over. Correctness depends only on the ledger's fence; this spares the older client a wait. At most UploadsMax
// entries.
type writers struct {
	mu     sync.Mutex // guards active
	active map[uuid.UUID]writer
}

type writer struct {
	number int64
	conn   *listen.Conn
}

// enter makes conn the session's writer and cuts the older one. It returns false when there is a newer one already.
func (w *writers) enter(id uuid.UUID, number int64, conn *listen.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active == nil {
		w.active = make(map[uuid.UUID]writer)
	}
	older, found := w.active[id]
	if found && older.number > number {
		return false
	}
	w.active[id] = writer{number: number, conn: conn}
	if found {
		older.conn.Cut()
	}
	return true
}

func (w *writers) leave(id uuid.UUID, conn *listen.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active[id].conn == conn {
		delete(w.active, id)
	}
}
