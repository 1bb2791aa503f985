package upload

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

const methods = "PUT, OPTIONS"

// retryAfter is the Retry-After, in seconds, after a storage fault or during a drain.
const retryAfter = 5

// noRoomRetryAfter is the Retry-After, in seconds, while the disk of the ledger is nearly full.
const noRoomRetryAfter = 60

// recovered serves one request, and answers even after a panic.
func (s *Server) recovered(ctx *fasthttp.RequestCtx) {
	began := time.Now()
	_, told := s.o.Tracer.Begin(s.root, tracing.Upload)
	if told.On() {
		ctx.SetUserValue(spanOfRequest, told)
	}
	defer func() {
		if fault := recover(); fault != nil {
			s.o.Log.Error("storage handler panicked", "request", listen.RequestID(ctx), "err", fmt.Sprintf("%T", fault))
			listen.CloseAfter(ctx)
			listen.WriteIssue(ctx, api.InternalError, retryAfter)
		}
		status := ctx.Response.StatusCode()
		s.metrics.finished(status, time.Since(began))
		told.Count(tracing.Status, int64(status))
		told.End(status >= 500)
		s.o.Log.Debug("storage request", "request", listen.RequestID(ctx), "status", status, "took", time.Since(began))
	}()
	s.serve(ctx)
}

// serve checks in this order: framing, route, method, origin, then the session's own rules.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	raw := ctx.Request.Header.RawHeaders()
	folded, transfer := listen.HasFoldedLine(raw), listen.HasHeader(raw, fasthttp.HeaderTransferEncoding)
	if folded || ctx.Request.Header.ContentLength() != 0 || transfer {
		listen.CloseAfter(ctx) // receive undoes this when it has read the last byte
	}
	ctx.Response.Header.Set(fasthttp.HeaderVary, fasthttp.HeaderOrigin)
	// A page of another origin than the listed ones gets no CORS headers, so that the browser withholds the answer.
	s.origins.Allow(ctx, "Range, Retry-After, X-Request-Id", s.ourPages)
	ctx.Response.Header.Set(fasthttp.HeaderReferrerPolicy, "no-referrer") // the URL is a secret
	token, found := strings.CutPrefix(string(ctx.URI().PathOriginal()), PathPrefix)
	switch {
	case folded:
		listen.WriteIssue(ctx, api.BadRequest, 0)
	case transfer:
		listen.WriteIssue(ctx, api.LengthRequired, 0)
	case !found:
		listen.WriteIssue(ctx, api.RouteNotFound, 0)
	case ctx.IsOptions():
		s.preflight(ctx)
	case !ctx.IsPut():
		ctx.Response.Header.Set(fasthttp.HeaderAllow, methods)
		listen.WriteIssue(ctx, api.MethodNotAllowed, 0)
	case s.draining.Load():
		listen.CloseAfter(ctx)
		listen.WriteIssue(ctx, api.StorageUnavailable, retryAfter)
	default:
		s.put(ctx, token)
	}
}

// call returns the context of one ledger call for a request. It belongs to the upload's workspace, once that is
// known.
func (s *Server) call(ctx *fasthttp.RequestCtx) (context.Context, context.CancelFunc) {
	workspace, known := ctx.UserValue(tenantOfRequest).(uuid.UUID)
	if !known {
		workspace = ledger.Strangers
	}
	return context.WithTimeout(ledger.WithTenant(spanOf(ctx).Under(s.root), workspace), s.o.LedgerTimeout)
}

// tenantOfRequest is the key of an upload's workspace among a request's user values.
const tenantOfRequest = "tenant"

// spanOfRequest is the key of a request's span among its user values.
const spanOfRequest = "span"

// spanOf returns the span of a request, or the zero Span if the request is not traced.
func spanOf(ctx *fasthttp.RequestCtx) tracing.Span {
	told, _ := ctx.UserValue(spanOfRequest).(tracing.Span)
	return told
}

// preflight answers a browser's question before its PUT (Fetch standard, CORS preflight).
func (s *Server) preflight(ctx *fasthttp.RequestCtx) {
	if len(ctx.Request.Header.Peek(fasthttp.HeaderOrigin)) == 0 {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, methods)
		ctx.SetStatusCode(fasthttp.StatusNoContent)
		return
	}
	if len(ctx.Response.Header.Peek(fasthttp.HeaderAccessControlAllowOrigin)) == 0 {
		listen.WriteIssue(ctx, api.OriginNotAllowed, 0)
		return
	}
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderAccessControlAllowMethods, fasthttp.MethodPut)
	h.Set(fasthttp.HeaderAccessControlAllowHeaders, "Content-Type, Content-Range")
	h.Set(fasthttp.HeaderAccessControlMaxAge, "600")
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}

func (s *Server) ourPages(origin string) bool {
	if s.o.PagesOrigin == nil {
		return false
	}
	own := s.o.PagesOrigin()
	return own != "" && own == origin
}

// framingError answers a request that fasthttp could not read. A client that is too slow is cut without an answer; its
// session stays.
func (s *Server) framingError(ctx *fasthttp.RequestCtx, err error) {
	listen.CloseAfter(ctx)
	if listen.IsTimeout(err) {
		listen.ConnOf(ctx).Cut()
		return
	}
	code, after := listen.FramingIssue(err)
	listen.WriteIssue(ctx, code, after)
	s.metrics.count(ctx.Response.StatusCode())
	s.o.Log.Debug("storage request unreadable", "request", listen.RequestID(ctx), "status", ctx.Response.StatusCode())
}

// headOf returns the part of a request's head that Decide needs.
func headOf(ctx *fasthttp.RequestCtx) Request {
	h := &ctx.Request.Header
	r := Request{
		Length:   int64(h.ContentLength()),
		Transfer: listen.HasHeader(h.RawHeaders(), fasthttp.HeaderTransferEncoding),
		Encoded:  len(h.PeekAll(fasthttp.HeaderContentEncoding)) > 0,
	}
	if !listen.HasHeader(h.RawHeaders(), fasthttp.HeaderContentLength) {
		r.Length = LengthUnknown // fasthttp says 0
	}
	for _, value := range h.PeekAll(fasthttp.HeaderContentRange) {
		r.ContentRanges = append(r.ContentRanges, string(value))
	}
	return r
}

func crowded(string) string { return listen.RefusalText(api.RateLimited, listen.Jitter(1, 9)) }
