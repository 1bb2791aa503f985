package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/actors/span"
	"rollcall/http/api"
	"rollcall/http/upload"
	"rollcall/ledger"
)

// storageMethods is what the storage URL takes.
const storageMethods = "PUT, OPTIONS"

// storageRetryAfter is the wait, in seconds, that a storage fault or a drain asks for (RELIABILITY 4.5).
const storageRetryAfter = 5

// recovered serves one request and turns a bug into an answer.
func (s *Storage) recovered(ctx *fasthttp.RequestCtx) {
	began := time.Now()
	_, told := s.o.Tracer.Begin(s.root, span.Upload)
	if told.On() {
		ctx.SetUserValue(spanOfRequest, told)
	}
	defer func() {
		if fault := recover(); fault != nil {
			s.o.Log.Error("storage handler panicked", "request", requestID(ctx), "err", fmt.Sprintf("%T", fault))
			closeAfter(ctx)
			writeIssue(ctx, api.InternalError, storageRetryAfter)
		}
		status := ctx.Response.StatusCode()
		s.metrics.finished(status, time.Since(began))
		told.Count(span.Status, int64(status))
		told.End(status >= 500)
		s.o.Log.Debug("storage request", "request", requestID(ctx), "status", status, "took", time.Since(began))
	}()
	s.serve(ctx)
}

// serve answers in the order of RELIABILITY 4.3: framing, route, method,
// origin, then the session's own rules.
func (s *Storage) serve(ctx *fasthttp.RequestCtx) {
	folded := hasFoldedLine(ctx.Request.Header.RawHeaders())
	if folded || ctx.Request.Header.ContentLength() != 0 || rawHas(ctx, fasthttp.HeaderTransferEncoding) {
		closeAfter(ctx) // taken back by receive, when it has read the last byte
	}
	s.shareOrigin(ctx)
	ctx.Response.Header.Set(fasthttp.HeaderReferrerPolicy, "no-referrer") // the URL is a secret
	token, found := strings.CutPrefix(string(ctx.URI().PathOriginal()), upload.PathPrefix)
	switch {
	case folded:
		writeIssue(ctx, api.BadRequest, 0)
	case rawHas(ctx, fasthttp.HeaderTransferEncoding):
		writeIssue(ctx, api.LengthRequired, 0)
	case !found:
		writeIssue(ctx, api.RouteNotFound, 0)
	case ctx.IsOptions():
		s.preflight(ctx)
	case !ctx.IsPut():
		ctx.Response.Header.Set(fasthttp.HeaderAllow, storageMethods)
		writeIssue(ctx, api.MethodNotAllowed, 0)
	case s.draining.Load():
		closeAfter(ctx)
		writeIssue(ctx, api.StorageUnavailable, storageRetryAfter)
	default:
		s.put(ctx, token)
	}
}

// put answers one PUT to the URL of a session.
func (s *Storage) put(ctx *fasthttp.RequestCtx, token string) {
	request := headOf(ctx)
	id, known := s.o.Tokens.Parse(token)
	if !known {
		s.refuse(ctx, unknownSession(request))
		return
	}
	spanOf(ctx).ID(span.Verification, id)
	call, cancel := s.call(ctx)
	state, err := s.o.Book.UploadState(call, id)
	cancel()
	if err != nil {
		s.fault(ctx, id, err)
		return
	}
	ctx.SetUserValue(tenantOfRequest, state.Workspace)
	decision := upload.Decide(sessionOf(state), request)
	if decision.Action == upload.Take {
		s.take(ctx, state, request)
		return
	}
	s.answer(ctx, decision)
}

// take becomes the newest writer of the session and stores the body's bytes.
// It decides again by the state that the fence stands on, for an older writer
// may have stored more in between.
func (s *Storage) take(ctx *fasthttp.RequestCtx, state ledger.Upload, request upload.Request) {
	id, workspace := state.Verification, state.Workspace
	if !s.places.Take(workspace, s.weight(workspace), 1) {
		reason := crowdedFull
		if s.places.Used() < s.places.Size() {
			reason = crowdedShare
		}
		s.metrics.crowded.WithLabelValues(reason).Inc()
		writeIssue(ctx, api.RateLimited, jitter(1, 9))
		return
	}
	defer s.places.Return(workspace, 1)
	call, cancel := s.call(ctx)
	state, err := s.o.Book.OpenUpload(call, id)
	cancel()
	if err != nil {
		s.fault(ctx, id, err)
		return
	}
	conn := connOf(ctx)
	if !s.writers.enter(id, state.Writer, conn) {
		conn.cut()
		return
	}
	defer s.writers.leave(id, conn)
	decision := upload.Decide(sessionOf(state), request)
	if decision.Action != upload.Take {
		s.answer(ctx, decision)
		return
	}
	s.receive(ctx, state, decision)
}

// answer writes a decision that takes no bytes.
func (s *Storage) answer(ctx *fasthttp.RequestCtx, d upload.Decision) {
	switch d.Action {
	case upload.Done:
		ctx.SetStatusCode(fasthttp.StatusOK)
	case upload.Incomplete:
		ctx.SetStatusCode(fasthttp.StatusPermanentRedirect) // 308, here without Location
		if durable := upload.DurableRange(d.Durable); durable != "" {
			ctx.Response.Header.Set(fasthttp.HeaderRange, durable)
		}
	default:
		s.refuse(ctx, d.Err)
		return
	}
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	requestID(ctx)
}

// refuse writes one of the refusals of package upload, or errNoSuchUpload.
func (s *Storage) refuse(ctx *fasthttp.RequestCtx, err error) {
	code := api.InternalError
	switch {
	case errors.Is(err, upload.ErrLengthRequired):
		code = api.LengthRequired
		closeAfter(ctx)
	case errors.Is(err, upload.ErrEncoding):
		code = api.UnsupportedEncoding
	case errors.Is(err, errNoSuchUpload):
		code = api.UploadNotFound
	case errors.Is(err, upload.ErrExpired):
		code = api.UploadExpired
	case errors.Is(err, upload.ErrCancelled):
		code = api.UploadCancelled
	case errors.Is(err, upload.ErrRangeInvalid):
		code = api.UploadRangeInvalid
	case errors.Is(err, upload.ErrLengthMismatch):
		code = api.UploadLengthMismatch
	case errors.Is(err, upload.ErrTooLarge):
		code = api.UploadTooLarge
	}
	writeIssue(ctx, code, 0)
}

// errNoSuchUpload means that the token names no session of ours.
var errNoSuchUpload = errors.New("http: no such upload")

// unknownSession is the refusal of a request whose token we never made.
// Faults of framing come first there too, so that they say nothing about tokens.
func unknownSession(request upload.Request) error {
	d := upload.Decide(upload.Session{Declared: 1}, request)
	if errors.Is(d.Err, upload.ErrLengthRequired) || errors.Is(d.Err, upload.ErrEncoding) {
		return d.Err
	}
	return errNoSuchUpload
}

// fault answers an error of the ledger.
func (s *Storage) fault(ctx *fasthttp.RequestCtx, id uuid.UUID, err error) {
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		s.refuse(ctx, errNoSuchUpload)
		return
	case errors.Is(err, ledger.ErrUploadClosed):
		s.answerNow(ctx, id)
		return
	}
	after := storageRetryAfter
	if errors.Is(err, ledger.ErrNoRoom) {
		after = limitRetryAfter
		s.metrics.full.Inc()
	}
	s.trouble.warn(time.Now(), "verification", id, "request", requestID(ctx), "err", err)
	closeAfter(ctx)
	writeIssue(ctx, api.StorageUnavailable, after)
}

// answerNow answers by the session as it is, after its ledger refused a write.
func (s *Storage) answerNow(ctx *fasthttp.RequestCtx, id uuid.UUID) {
	call, cancel := s.call(ctx)
	defer cancel()
	state, err := s.o.Book.UploadState(call, id)
	if err != nil {
		s.trouble.warn(time.Now(), "verification", id, "request", requestID(ctx), "err", err)
		writeIssue(ctx, api.StorageUnavailable, storageRetryAfter)
		return
	}
	s.answer(ctx, upload.After(sessionOf(state)))
}

// call is the context of one ledger call for a request: work of the upload's workspace, once that
// is known.
func (s *Storage) call(ctx *fasthttp.RequestCtx) (context.Context, context.CancelFunc) {
	workspace, known := ctx.UserValue(tenantOfRequest).(uuid.UUID)
	if !known {
		workspace = ledger.Strangers
	}
	return context.WithTimeout(ledger.WithTenant(spanOf(ctx).Under(s.root), workspace), s.o.LedgerTimeout)
}

// tenantOfRequest is the name of an upload's workspace among a request's user values.
const tenantOfRequest = "tenant"

// spanOfRequest is the name of a request's span among its user values.
const spanOfRequest = "span"

// spanOf is the span of a request; the zero Span when it is not traced.
func spanOf(ctx *fasthttp.RequestCtx) span.Span {
	told, _ := ctx.UserValue(spanOfRequest).(span.Span)
	return told
}

// preflight answers a browser's question before its PUT (Fetch standard, CORS preflight).
func (s *Storage) preflight(ctx *fasthttp.RequestCtx) {
	if len(ctx.Request.Header.Peek(fasthttp.HeaderOrigin)) == 0 {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, storageMethods)
		ctx.SetStatusCode(fasthttp.StatusNoContent)
		return
	}
	if len(ctx.Response.Header.Peek(fasthttp.HeaderAccessControlAllowOrigin)) == 0 {
		writeIssue(ctx, api.OriginNotAllowed, 0)
		return
	}
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderAccessControlAllowMethods, fasthttp.MethodPut)
	h.Set(fasthttp.HeaderAccessControlAllowHeaders, "Content-Type, Content-Range")
	h.Set(fasthttp.HeaderAccessControlMaxAge, "600") // RELIABILITY 1.10
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}

// shareOrigin lets a page of a listed origin read the answer. A page of
// another one gets the answer without it, so its browser keeps it back.
func (s *Storage) shareOrigin(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderOrigin)
	origins := ctx.Request.Header.PeekAll(fasthttp.HeaderOrigin)
	if len(origins) != 1 || !s.origins[string(origins[0])] && !s.ourPages(origins[0]) {
		return
	}
	h.Set(fasthttp.HeaderAccessControlAllowOrigin, string(origins[0]))
	h.Set(fasthttp.HeaderAccessControlExposeHeaders, "Range, Retry-After, X-Request-Id")
}

// ourPages says whether an origin is that of our own pages.
func (s *Storage) ourPages(origin []byte) bool {
	if s.o.PagesOrigin == nil {
		return false
	}
	own := s.o.PagesOrigin()
	return own != "" && own == string(origin)
}

// framingError answers a request that fasthttp could not read. A client that
// is too slow is cut without a word; its session stays.
func (s *Storage) framingError(ctx *fasthttp.RequestCtx, err error) {
	closeAfter(ctx)
	var timeout net.Error
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		connOf(ctx).cut()
		return
	case errors.Is(err, errCrowded):
		writeIssue(ctx, api.RateLimited, jitter(1, 9))
	case errors.As(err, &small):
		writeIssue(ctx, api.HeadersTooLarge, 0)
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		writeIssue(ctx, api.LengthRequired, 0)
	default:
		writeIssue(ctx, api.BadRequest, 0)
	}
	s.metrics.count(ctx.Response.StatusCode())
	s.o.Log.Debug("storage request unreadable", "request", requestID(ctx), "status", ctx.Response.StatusCode())
}

// sessionOf is the ledger's upload in the words of package upload. A failed
// verification with bytes missing is one that expired: nothing else fails
// before the file is complete.
func sessionOf(u ledger.Upload) upload.Session {
	return upload.Session{
		Declared: u.Bytes, Durable: u.Durable,
		Expired:   u.Expired || u.Status == ledger.Failed,
		Cancelled: u.Status == ledger.Cancelled || u.Status == ledger.Cancelling,
	}
}

// headOf is the part of a request's head that decides.
func headOf(ctx *fasthttp.RequestCtx) upload.Request {
	h := &ctx.Request.Header
	r := upload.Request{
		Length:   int64(h.ContentLength()),
		Transfer: rawHas(ctx, fasthttp.HeaderTransferEncoding),
		Encoded:  len(h.PeekAll(fasthttp.HeaderContentEncoding)) > 0,
	}
	if !rawHas(ctx, fasthttp.HeaderContentLength) {
		r.Length = upload.LengthUnknown // fasthttp says 0
	}
	for _, value := range h.PeekAll(fasthttp.HeaderContentRange) {
		r.ContentRanges = append(r.ContentRanges, string(value))
	}
	return r
}

// rawHas looks for a header as it was sent: fasthttp hides a missing
// Content-Length and drops "Transfer-Encoding: identity".
func rawHas(ctx *fasthttp.RequestCtx, name string) bool {
	for line := range bytes.Lines(ctx.Request.Header.RawHeaders()) {
		if key, _, found := bytes.Cut(line, []byte(":")); found && bytes.EqualFold(key, []byte(name)) {
			return true
		}
	}
	return false
}

// storageCrowded is the answer of the storage URL to a connection that has no place.
func storageCrowded(string) string { return refusalText(api.RateLimited, jitter(1, 9)) }
