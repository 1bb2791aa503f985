package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

// put is one PUT to the URL of a session.
type put struct {
	s       *Server
	ctx     *fasthttp.RequestCtx
	conn    *listen.Conn
	head    Request
	state   ledger.Upload // last state from the ledger, including stored chunks
	skip    int64         // bytes of the body still to drop
	store   int64         // bytes still to store
	pending []byte        // arrived, not durable
}

// put answers one PUT. It decides by the present session (Decide in session.go), stores new bytes if there are any,
// and answers how many are then durable.
func (s *Server) put(ctx *fasthttp.RequestCtx, token string) {
	p := &put{s: s, ctx: ctx, conn: listen.ConnOf(ctx), head: headOf(ctx)}
	d, err := p.decide(token)
	if err == nil && d.Action == Take {
		d, err = p.take()
	}
	if errors.Is(err, ledger.ErrGap) || errors.Is(err, ledger.ErrUploadClosed) {
		err = p.ask(s.o.Book.UploadState)
		d = After(sessionOf(p.state)) // the client continues at the durable end
	}
	switch {
	case err != nil:
		p.fail(err)
	case d.Action == Refuse:
		p.refuse(d.Err)
	case d.Action == Done:
		ctx.SetStatusCode(fasthttp.StatusOK)
	default:
		ctx.SetStatusCode(fasthttp.StatusPermanentRedirect) // 308 without Location
		if durable := DurableRange(d.Durable); durable != "" {
			ctx.Response.Header.Set(fasthttp.HeaderRange, durable)
		}
	}
	if err == nil && d.Action != Refuse {
		ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
		listen.RequestID(ctx)
	}
}

// Errors that end a request without an answer from its session.
var (
	errNoSuchUpload = errors.New("upload: no such upload")                           // the token names no session
	errNoPlace      = errors.New("upload: no place")                                 // too many uploads are sending bytes
	errSuperseded   = errors.New("upload: a newer connection writes")                // this connection needs no answer
	errTooSlow      = errors.New("upload: the client sends too slowly")              // its session stays
	errDraining     = errors.New("upload: the node is stopping, continue elsewhere") // the bytes that arrived are durable
)

func (p *put) decide(token string) (Decision, error) {
	id, known := p.s.o.Tokens.Parse(token)
	if !known {
		// Framing is checked first here too, so that framing errors reveal nothing about tokens.
		d := Decide(Session{Declared: 1}, p.head)
		if errors.Is(d.Err, ErrLengthRequired) || errors.Is(d.Err, ErrEncoding) {
			return d, nil
		}
		return Decision{}, errNoSuchUpload
	}
	spanOf(p.ctx).ID(tracing.Verification, id)
	p.state.Verification = id
	if err := p.ask(p.s.o.Book.UploadState); err != nil {
		return Decision{}, err
	}
	p.ctx.SetUserValue(tenantOfRequest, p.state.Workspace)
	return Decide(sessionOf(p.state), p.head), nil
}

// take becomes the newest writer of the session and stores the body's bytes. It decides again by the state at the
// fence, because an older writer may have stored more since the first decision.
func (p *put) take() (Decision, error) {
	s, id, workspace := p.s, p.state.Verification, p.state.Workspace
	if !s.places.Take(workspace, s.o.Weight(workspace), 1) {
		reason := listen.NoPlace
		if s.places.Used() < s.places.Size() {
			reason = listen.NoShare
		}
		s.metrics.crowded.WithLabelValues(reason).Inc()
		return Decision{}, errNoPlace
	}
	defer s.places.Return(workspace, 1)
	if err := p.ask(s.o.Book.OpenUpload); err != nil {
		return Decision{}, err
	}
	if !s.writers.enter(id, p.state.Writer, p.conn) {
		return Decision{}, errSuperseded
	}
	defer s.writers.leave(id, p.conn)
	d := Decide(sessionOf(p.state), p.head)
	if d.Action != Take {
		return d, nil
	}
	p.skip, p.store = d.Skip, d.Store
	if err := p.receive(); err != nil {
		return Decision{}, err
	}
	return After(sessionOf(p.state)), nil
}

func (p *put) ask(question func(context.Context, uuid.UUID) (ledger.Upload, error)) error {
	call, cancel := p.s.call(p.ctx)
	defer cancel()
	state, err := question(call, p.state.Verification)
	if err == nil {
		p.state = state
	}
	return err
}

// fail answers a request that ended without an answer from its session.
func (p *put) fail(err error) {
	after := retryAfter
	switch {
	case errors.Is(err, errSuperseded), errors.Is(err, ledger.ErrFenced), errors.Is(err, errTooSlow):
		p.conn.Cut()
		return
	case errors.Is(err, errNoPlace):
		listen.WriteIssue(p.ctx, api.RateLimited, listen.Jitter(1, 9))
		return
	case errors.Is(err, errNoSuchUpload), errors.Is(err, ledger.ErrNoSuchVerification):
		listen.WriteIssue(p.ctx, api.UploadNotFound, 0)
		return
	case errors.Is(err, ledger.ErrNoSuchSession), errors.Is(err, ledger.ErrNotAllowed):
		listen.CloseAfter(p.ctx)
		listen.WriteIssue(p.ctx, api.ActionNotAllowed, 0)
		return
	case errors.Is(err, errDraining):
		listen.WriteIssue(p.ctx, api.StorageUnavailable, after)
		return
	case errors.Is(err, ledger.ErrNoRoom):
		after = noRoomRetryAfter
		p.s.metrics.full.Inc()
	}
	p.s.trouble.Write(time.Now(), "verification", p.state.Verification, "request", listen.RequestID(p.ctx), "err", err)
	listen.CloseAfter(p.ctx)
	listen.WriteIssue(p.ctx, api.StorageUnavailable, after)
}

// refusals are the issue codes of Decide's refusals.
var refusals = map[error]api.Code{
	ErrLengthRequired: api.LengthRequired,
	ErrEncoding:       api.UnsupportedEncoding,
	ErrExpired:        api.UploadExpired,
	ErrCancelled:      api.UploadCancelled,
	ErrRangeInvalid:   api.UploadRangeInvalid,
	ErrLengthMismatch: api.UploadLengthMismatch,
	ErrTooLarge:       api.UploadTooLarge,
}

func (p *put) refuse(err error) {
	if errors.Is(err, ErrLengthRequired) {
		listen.CloseAfter(p.ctx)
	}
	listen.WriteIssue(p.ctx, refusals[err], 0) // internal_error for an unknown error
}

// sessionOf converts the ledger's upload to a Session. A failed verification with missing bytes has expired: no other
// failure happens before the file is complete.
func sessionOf(u ledger.Upload) Session {
	return Session{
		Declared: u.Bytes, Durable: u.Durable,
		Expired:   u.Expired || u.Status == ledger.Failed,
		Cancelled: u.Status == ledger.Cancelled || u.Status == ledger.Cancelling,
	}
}

// receive reads the body and makes it durable chunk by chunk. It counts bytes and never trusts an end of the stream,
// because fasthttp reports a clean end when a client vanishes in the middle of a body.
func (p *put) receive() error {
	buffer := p.s.buffers.Get().(*[]byte)
	defer p.s.buffers.Put(buffer)
	p.pending = (*buffer)[:0]
	p.s.metrics.receiving.Inc()
	defer p.s.metrics.receiving.Dec()
	readErr := p.readAll(p.ctx.RequestBodyStream())
	if errors.Is(readErr, errLedger) {
		return readErr
	}
	if err := p.flush(); err != nil { // after a cut, the bytes that arrived are kept
		return err
	}
	switch {
	case p.skip == 0 && p.store == 0:
		listen.KeepOpen(p.ctx)
	case p.s.draining.Load():
		return errDraining
	case listen.IsTimeout(readErr):
		return errTooSlow
	}
	if sessionOf(p.state).Complete() {
		p.s.o.Log.Info("upload complete", "verification", p.state.Verification, "bytes", p.state.Bytes)
		p.s.o.Wake()
	}
	return nil
}

// errLedger marks an error of the ledger among the errors of reading.
var errLedger = errors.New("upload: store a chunk")

// readAll reads until the body's last byte, an error of the connection, an error of the ledger (errLedger), or the
// end of the client's time.
func (p *put) readAll(body io.Reader) error {
	window := rateWindow{s: p.s, conn: p.conn}
	window.open()
	for p.skip+p.store > 0 {
		if p.s.draining.Load() { // checked after the deadline is set, so that an interrupt is never undone
			return errDraining
		}
		room := p.pending[len(p.pending):cap(p.pending)]
		if left := p.skip + p.store; int64(len(room)) > left {
			room = room[:left]
		}
		n, err := body.Read(room)
		p.accept(int64(n))
		if p.skip+p.store == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		window.count(int64(n))
		if len(p.pending) == cap(p.pending) {
			if err := p.flush(); err != nil {
				return err
			}
			window.open() // the time that the ledger took does not count against the client
		}
		p.hold(&window, int64(n))
	}
	return nil
}

// accept counts n bytes that arrived at the end of pending: first bytes that are already durable, then new ones.
func (p *put) accept(n int64) {
	p.pending = p.pending[:len(p.pending)+int(n)]
	if p.skip > 0 {
		old := min(p.skip, n)
		p.skip -= old
		n -= old
		kept := copy(p.pending, p.pending[old:]) // pending had nothing before the old bytes
		p.pending = p.pending[:kept]
	}
	p.store -= n
}

func (p *put) flush() error {
	if len(p.pending) == 0 {
		return nil
	}
	call, cancel := p.s.call(p.ctx)
	defer cancel()
	if user, is := ledger.UserOf(p.state.MadeBy); is {
		call = ledger.WithActing(call, ledger.Acting{User: user, Workspace: p.state.Workspace, Role: ledger.Member})
	}
	call, told := tracing.Within(call, tracing.Append)
	told.Count(tracing.Bytes, int64(len(p.pending)))
	state, err := p.s.o.Book.AppendChunk(call, p.state.Verification, p.state.Writer, p.state.Durable, p.pending)
	told.End(err != nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errLedger, err)
	}
	p.s.metrics.bytes.Add(float64(len(p.pending)))
	p.state, p.pending = state, p.pending[:0]
	return nil
}

// Range is one Content-Range: the bytes First to Last of Total, or a status
// query. The zero value is no Range; ParseRange makes them.
type Range struct {
	Query       bool  // "bytes */N" or "bytes */*": a question without bytes
	First, Last int64 // of a data range: 0 <= First <= Last < Total
	Total       int64 // of the whole file; TotalUnknown for "bytes */*"
}

// TotalUnknown is the total of the status query "bytes */*".
const TotalUnknown int64 = -1

// ParseRange reads the value of a Content-Range header (RFC 9110 §14.4): "bytes a-b/N", "bytes */N" or "bytes */*".
// The unit is case-insensitive, as every range unit is (RFC 9110 §14.1). Numbers are plain decimal digits that fit 63
// bits. Anything else is ErrRangeInvalid: another unit, several ranges, a > b, b >= N, a data range without a total,
// N = 0.
func ParseRange(text string) (Range, error) {
	unit, spec, found := strings.Cut(text, " ")
	if !found || !strings.EqualFold(unit, "bytes") {
		return Range{}, ErrRangeInvalid
	}
	span, size, found := strings.Cut(spec, "/")
	if !found {
		return Range{}, ErrRangeInvalid
	}
	if span == "*" && size == "*" {
		return Range{Query: true, Total: TotalUnknown}, nil
	}
	total, ok := parseCount(size)
	if !ok || total == 0 {
		return Range{}, ErrRangeInvalid
	}
	if span == "*" {
		return Range{Query: true, Total: total}, nil
	}
	head, tail, found := strings.Cut(span, "-")
	first, okFirst := parseCount(head)
	last, okLast := parseCount(tail)
	if !found || !okFirst || !okLast || first > last || last >= total {
		return Range{}, ErrRangeInvalid
	}
	return Range{First: first, Last: last, Total: total}, nil
}

// parseCount reads decimal digits and nothing else: no sign, no space.
func parseCount(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strings.Trim(text, "0123456789") == ""
}

// DurableRange returns the value of the Range header that names the durable bytes: "bytes=0-(n-1)". It returns "" if
// none are durable; then the header is left out and the client begins at byte zero.
func DurableRange(durable int64) string {
	if durable == 0 {
		return ""
	}
	return "bytes=0-" + strconv.FormatInt(durable-1, 10)
}

const (
	// paceAhead is how far reading a workspace's uploads may be ahead of its rate, because reads come in pieces.
	// Guess.
	paceAhead = time.Second

	// pacesKept is how many workspaces are remembered before those within their rate are dropped.
	pacesKept = 1024
)

// paces bound how fast the uploads of each workspace are read, all of its connections together. A nil value bounds
// nothing. Safe for concurrent use.
type paces struct {
	perSecond int64

	mu   sync.Mutex
	paid map[uuid.UUID]time.Time // time at which the read bytes would have arrived at the rate
}

// newPaces makes a bound of perSecond bytes a second. For 0 it returns nil.
func newPaces(perSecond int64) *paces {
	if perSecond == 0 {
		return nil
	}
	return &paces{perSecond: perSecond, paid: map[uuid.UUID]time.Time{}}
}

// noteRead notes that n bytes were read at now, and returns how long to wait before reading more.
func (p *paces) noteRead(workspace uuid.UUID, n int64, now time.Time) time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	paid, known := p.paid[workspace]
	if !known && len(p.paid) >= pacesKept {
		maps.DeleteFunc(p.paid, func(_ uuid.UUID, until time.Time) bool { return !until.After(now) })
	}
	if paid.Before(now) {
		paid = now
	}
	paid = paid.Add(time.Duration(float64(n) / float64(p.perSecond) * float64(time.Second)))
	p.paid[workspace] = paid
	return max(0, paid.Sub(now)-paceAhead)
}

// hold waits until the workspace is within its rate, or the node ends. It extends the client's deadlines by that
// time.
func (p *put) hold(window *rateWindow, n int64) {
	long := p.s.rates.noteRead(p.state.Workspace, n, time.Now())
	if long == 0 {
		return
	}
	p.s.metrics.held.Add(long.Seconds())
	select {
	case <-time.After(long):
	case <-p.s.ending:
	}
	window.ends = window.ends.Add(long)
	_ = window.conn.SetReadDeadline(window.ends)
}

// rateWindow enforces a client's least rate: WindowBytes in each Window. When they have arrived, a new Window starts.
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

func (w *rateWindow) count(n int64) {
	if w.got += n; w.got >= w.s.o.WindowBytes {
		w.open()
	}
}

// writers knows which connection of this node writes which session, so that an older connection ends as soon as a
// newer one takes over. Correctness depends only on the ledger's fence; writers only saves the older client a wait.
// It has at most UploadsMax entries.
type writers struct {
	mu     sync.Mutex // guards active
	active map[uuid.UUID]writer
}

type writer struct {
	number int64
	conn   *listen.Conn
}

// enter makes conn the session's writer and cuts the older one. It returns false if there is a newer one already.
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
