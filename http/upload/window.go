package upload

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/http/listen"
)

// rateWindow is the floor under a client's rate: WindowBytes in each Window,
// counted anew whenever they have come.
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

// later gives the client as much more time as nobody read what it sent.
func (w *rateWindow) later(long time.Duration) {
	w.ends = w.ends.Add(long)
	_ = w.conn.SetReadDeadline(w.ends)
}

func (w *rateWindow) count(n int64) {
	if w.got += n; w.got >= w.s.o.WindowBytes {
		w.open()
	}
}

// writers knows which connection of this node writes which session, so
// that an older one ends as soon as a newer one takes over. The ledger's fence
// is what keeps them apart; this only saves the older one's waiting. At most
// UploadsMax entries.
type writers struct {
	mu     sync.Mutex // guards active
	active map[uuid.UUID]writer
}

type writer struct {
	number int64
	conn   *listen.Conn
}

// enter makes conn the session's writer and cuts the older one. It is false
// when a newer one is there already.
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
