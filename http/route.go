package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

type route int

const (
	routeNone route = iota
	routeCredits
	routeVerifications // GET: history; POST: create
	routeDetail
	routeResults
	routeCancel
	routeOpenAPI
	routePages
	routeCount
)

// routeNames are the labels of logs and metrics: paths with {id}, never with an id.
var routeNames = [routeCount]string{
	routeNone:          "none",
	routeCredits:       "/v1/credits",
	routeVerifications: "/v1/verifications",
	routeDetail:        "/v1/verifications/{id}",
	routeResults:       "/v1/verifications/{id}/results",
	routeCancel:        "/v1/verifications/{id}/cancel",
	routeOpenAPI:       "/openapi.yaml",
	routePages:         "pages",
}

// allow is the Allow header of each route (RFC 9110 §10.2.1).
var allow = [routeCount]string{
	routeCredits:       "GET, HEAD, OPTIONS",
	routeVerifications: "GET, HEAD, POST, OPTIONS",
	routeDetail:        "GET, HEAD, OPTIONS",
	routeResults:       "GET, HEAD, OPTIONS",
	routeCancel:        "POST, OPTIONS",
	routeOpenAPI:       "GET, HEAD, OPTIONS",
}

// request is one call during the checks.
type request struct {
	*fasthttp.RequestCtx
	route    route
	idText   []byte // the {id} of the path, unchecked
	id       uuid.UUID
	key      ledger.Key
	read     bool // GET or HEAD
	placed   bool // it holds a place
	hugeBody bool // a body above bodyMax was announced, and not read
	span     tracing.Span

	page     *PageRequest // for a page; nil for the API
	rows     Rows         // of results
	fileName string       // name of the results file; "": made from the id
}

const verificationsPath = "/v1/verifications"

// findRoute matches the raw path. It does not find a path in another spelling.
func findRoute(path []byte) (r route, id []byte) {
	switch string(path) {
	case "/v1/credits":
		return routeCredits, nil
	case verificationsPath:
		return routeVerifications, nil
	case "/openapi.yaml":
		return routeOpenAPI, nil
	}
	rest, ok := bytes.CutPrefix(path, []byte(verificationsPath+"/"))
	if !ok || len(rest) == 0 {
		return routeNone, nil
	}
	id, tail, deeper := bytes.Cut(rest, []byte("/"))
	switch {
	case len(id) == 0:
		return routeNone, nil
	case !deeper:
		return routeDetail, id
	case string(tail) == "results":
		return routeResults, id
	case string(tail) == "cancel":
		return routeCancel, id
	}
	return routeNone, nil
}

// handle serves one request with valid framing.
func (s *Server) handle(ctx *fasthttp.RequestCtx) { s.serve(ctx, false) }

// serve runs the checks and the operation, and recovers from panics.
func (s *Server) serve(ctx *fasthttp.RequestCtx, hugeBody bool) {
	began := time.Now()
	r := &request{RequestCtx: ctx, hugeBody: hugeBody}
	_, r.span = s.options.Tracer.Begin(context.Background(), tracing.Request)
	working := s.work.Add(1)
	defer func() {
		if p := recover(); p != nil {
			s.metrics.panics.Inc()
			s.log.Error("request handler panicked", "route", routeNames[r.route],
				"request", listen.RequestID(ctx), "err", fmt.Sprintf("%T", p))
			ctx.Response.Reset()
			listen.WriteIssue(ctx, api.InternalError, 5)
			ctx.SetConnectionClose()
		}
		if ctx.Response.BodyStream() == nil { // a download ends later, with its stream
			s.work.Add(-1)
			s.leave(r)
		}
		s.finished(r, began)
	}()
	listen.RequestID(ctx)
	ctx.Response.Header.Set(fasthttp.HeaderVary, fasthttp.HeaderOrigin)
	if hugeBody {
		listen.CloseAfter(ctx)
		ctx.Response.SkipBody = ctx.IsHead() // the library loses this setting after an error
	}
	s.check(r, working)
}

// check makes the common checks in their fixed order, and then runs the operation.
func (s *Server) check(r *request, working int64) {
	if mark := r.Request.Header.Peek(listen.FramingMark); mark != nil {
		listen.CloseAfter(r.RequestCtx)
		code := api.LengthRequired
		if string(mark) == listen.FoldedMark {
			code = api.BadRequest
		}
		s.refuse(r, code, 0)
		return
	}
	if !s.findOperation(r) {
		return
	}
	if s.draining.Load() {
		listen.CloseAfter(r.RequestCtx)
		s.refuse(r, api.ServiceUnavailable, 1)
		return
	}
	if working > int64(s.options.Limits.InFlightMax) {
		s.refuse(r, api.Overloaded, listen.Jitter(10, 10))
		return
	}
	if r.route == routePages {
		s.pages(r)
		return
	}
	if r.route == routeOpenAPI {
		r.SetContentType("application/yaml")
		r.SetBody(api.OpenAPI)
		return
	}
	ctx, cancel := context.WithTimeout(r.span.Under(context.Background()), ledgerTimeout)
	defer cancel()
	if !s.admit(ledger.WithTenant(ctx, ledger.Strangers), r) {
		return
	}
	if !s.enter(r) {
		s.refuse(r, api.Overloaded, listen.Jitter(10, 10))
		return
	}
	s.operate(ledger.WithTenant(ledger.WithActor(ctx, "key:"+r.key.ID), r.key.Workspace), r)
}

// enter gives a request a place, unless its workspace has used up its share.
func (s *Server) enter(r *request) bool {
	if r.placed = s.limits.places.Take(r.key.Workspace, s.options.Weight(r.key.Workspace), 1); !r.placed {
		s.metrics.limited.WithLabelValues("in_flight").Inc()
	}
	return r.placed
}

func (s *Server) leave(r *request) {
	if r.placed {
		s.limits.places.Return(r.key.Workspace, 1)
	}
}

// findOperation finds route and method, answers preflights, and sets the CORS headers.
func (s *Server) findOperation(r *request) bool {
	raw := r.URI().PathOriginal()
	if string(r.Request.Header.RequestURI()) == "*" {
		r.Response.Header.Set(fasthttp.HeaderAllow, "GET, HEAD, POST, OPTIONS")
		s.refuse(r, api.MethodNotAllowed, 0)
		return false
	}
	if bytes.Equal(raw, r.URI().Path()) {
		r.route, r.idText = findRoute(raw)
	}
	if r.route == routeNone && bytes.Equal(raw, r.URI().Path()) && s.isPage(r, raw) {
		s.beginPage(r)
		return true
	}
	if r.route == routeNone {
		s.refuse(r, api.RouteNotFound, 0)
		return false
	}
	s.origins.Allow(r.RequestCtx, corsExposed, nil)
	method := string(r.Method())
	switch {
	case method == fasthttp.MethodOptions:
		s.preflight(r)
		return false
	case (method == fasthttp.MethodGet || method == fasthttp.MethodHead) && r.route != routeCancel:
		r.read = true
		return true
	case method == fasthttp.MethodPost && (r.route == routeVerifications || r.route == routeCancel):
		return true
	}
	r.Response.Header.Set(fasthttp.HeaderAllow, allow[r.route])
	s.refuse(r, api.MethodNotAllowed, 0)
	return false
}

// operate runs the operation of an admitted request.
func (s *Server) operate(ctx context.Context, r *request) {
	if r.hugeBody && r.route != routeCredits { // the route of credits has no answer 422
		s.refuse(r, api.UnexpectedBody, 0)
		return
	}
	if r.idText != nil {
		var ok bool
		if r.id, ok = parseUUID(r.idText); !ok {
			s.refuse(r, api.InvalidID, 0)
			return
		}
	}
	switch r.route {
	case routeCredits:
		s.credits(ctx, r)
	case routeVerifications:
		if r.read {
			s.history(ctx, r)
		} else {
			s.create(ctx, r)
		}
	case routeDetail:
		s.detail(ctx, r)
	case routeResults:
		s.results(r)
	case routeCancel:
		s.cancel(ctx, r)
	}
}

// uuidLength is the length of the text form in RFC 9562 §4. Forms with braces, with urn: or without hyphens are not
// accepted.
const uuidLength = 36

func parseUUID(text []byte) (uuid.UUID, bool) {
	if len(text) != uuidLength {
		return uuid.UUID{}, false
	}
	id, err := uuid.ParseBytes(text)
	return id, err == nil
}

// handleError answers a malformed request. The connection always ends.
func (s *Server) handleError(ctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		s.serve(ctx, true) // other checks come before the check of the body
		return
	}
	listen.CloseAfter(ctx)
	code, again := listen.FramingIssue(err)
	listen.WriteIssue(ctx, code, again)
	s.metrics.requests.WithLabelValues(routeNames[routeNone], strconv.Itoa(ctx.Response.StatusCode())).Inc()
	s.log.Debug("request refused", "code", string(code), "request", listen.RequestID(ctx))
}
