package http

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/actors/span"
	"rollcall/http/api"
	"rollcall/http/upload"
	"rollcall/ledger"
)

// reception is one body on its way into the ledger.
type reception struct {
	s       *Storage
	ctx     *fasthttp.RequestCtx
	conn    *conn
	body    io.Reader
	state   ledger.Upload // after the last durable write
	skip    int64         // bytes still to drop
	store   int64         // bytes still to store
	pending []byte        // arrived, not durable
}

// receive reads a body, makes it durable chunk by chunk, and answers. It
// counts bytes and never believes an end of stream: fasthttp shows a client
// that vanished in mid body as a clean end.
func (s *Storage) receive(ctx *fasthttp.RequestCtx, state ledger.Upload, d upload.Decision) {
	buffer := s.buffers.Get().(*[]byte)
	defer s.buffers.Put(buffer)
	r := &reception{
		s: s, ctx: ctx, conn: connOf(ctx), body: ctx.RequestBodyStream(),
		state: state, skip: d.Skip, store: d.Store, pending: (*buffer)[:0],
	}
	s.metrics.receiving.Inc()
	defer s.metrics.receiving.Dec()
	readErr := r.readAll()
	if errors.Is(readErr, errLedger) {
		s.interrupted(ctx, r, readErr)
		return
	}
	if err := r.flush(); err != nil { // a cut connection keeps what arrived
		s.interrupted(ctx, r, err)
		return
	}
	whole := r.skip == 0 && r.store == 0
	switch {
	case whole:
		r.conn.early.Store(false)
		ctx.Response.Header.ResetConnectionClose()
	case s.draining.Load():
		writeIssue(ctx, api.StorageUnavailable, storageRetryAfter)
		return
	case isTimeout(readErr):
		r.conn.cut()
		return
	}
	s.answer(ctx, upload.After(sessionOf(r.state)))
	if sessionOf(r.state).Complete() {
		s.o.Log.Info("upload complete", "verification", r.state.Verification, "bytes", r.state.Bytes)
		s.o.Wake()
	}
}

// errLedger marks an error of the ledger among the errors of reading.
var errLedger = errors.New("http: store a chunk")

// readAll reads until the body's last byte, an error of the connection, an
// error of the ledger (errLedger) or the end of the client's patience.
func (r *reception) readAll() error {
	window := rateWindow{s: r.s, conn: r.conn}
	window.open()
	for r.skip+r.store > 0 {
		if r.s.draining.Load() { // after the deadline was set, so that an interrupt is never undone
			return errDraining
		}
		room := r.pending[len(r.pending):cap(r.pending)]
		if left := r.skip + r.store; int64(len(room)) > left {
			room = room[:left]
		}
		n, err := r.body.Read(room)
		r.accept(int64(n))
		if r.skip+r.store == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		window.count(int64(n))
		if len(r.pending) == cap(r.pending) {
			if err := r.flush(); err != nil {
				return err
			}
			window.open() // the ledger's time is not the client's
		}
		r.hold(&window, int64(n))
	}
	return nil
}

// errDraining means that the node stops and the rest is for another one.
var errDraining = errors.New("http: draining")

// accept counts n bytes that arrived at the end of pending: first the ones
// that are durable already, then the new ones.
func (r *reception) accept(n int64) {
	r.pending = r.pending[:len(r.pending)+int(n)]
	if r.skip > 0 {
		old := min(r.skip, n)
		r.skip -= old
		n -= old
		kept := copy(r.pending, r.pending[old:]) // pending held nothing before the old bytes
		r.pending = r.pending[:kept]
	}
	r.store -= n
}

// flush makes the pending bytes durable.
func (r *reception) flush() error {
	if len(r.pending) == 0 {
		return nil
	}
	call, cancel := r.s.call(r.ctx)
	defer cancel()
	call, told := span.Within(call, span.Append)
	told.Count(span.Bytes, int64(len(r.pending)))
	state, err := r.s.o.Book.AppendChunk(call, r.state.Verification, r.state.Writer, r.state.Durable, r.pending)
	told.End(err != nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errLedger, err)
	}
	r.s.metrics.bytes.Add(float64(len(r.pending)))
	r.state, r.pending = state, r.pending[:0]
	return nil
}

// interrupted answers when the ledger did not take a chunk.
func (s *Storage) interrupted(ctx *fasthttp.RequestCtx, r *reception, err error) {
	switch {
	case errors.Is(err, ledger.ErrFenced):
		r.conn.cut() // the newer writer goes on, this one has nothing to say
	case errors.Is(err, ledger.ErrGap):
		s.answerNow(ctx, r.state.Verification) // the client goes on from the true end
	default:
		s.fault(ctx, r.state.Verification, err)
	}
}

// rateWindow is the floor under a client's rate: WindowBytes in each Window,
// counted anew whenever they have come.
type rateWindow struct {
	s    *Storage
	conn *conn
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

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// storageWriters knows which connection of this node writes which session, so
// that an older one ends as soon as a newer one takes over. The ledger's fence
// is what keeps them apart; this only saves the older one's waiting. At most
// UploadsMax entries.
type storageWriters struct {
	mu     sync.Mutex // guards active
	active map[uuid.UUID]storageWriter
}

type storageWriter struct {
	number int64
	conn   *conn
}

// enter makes conn the session's writer and cuts the older one. It is false
// when a newer one is there already.
func (w *storageWriters) enter(id uuid.UUID, number int64, conn *conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active == nil {
		w.active = make(map[uuid.UUID]storageWriter)
	}
	older, found := w.active[id]
	if found && older.number > number {
		return false
	}
	w.active[id] = storageWriter{number: number, conn: conn}
	if found {
		older.conn.cut()
	}
	return true
}

func (w *storageWriters) leave(id uuid.UUID, conn *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active[id].conn == conn {
		delete(w.active, id)
	}
}
