package http

import (
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
)

// What a listed browser page may send and see. A preflight is remembered for
// 600 seconds, the longest that every browser keeps to.
const (
	corsHeaders = "X-API-Key, Idempotency-Key, X-Upload-Content-Length, X-Upload-Filename, Content-Type"
	corsExposed = headerRetryAfter + ", " + headerRequestID
	corsMaxAge  = "600"
)

// allowOrigin lets a page of a listed origin read the answer. The list is
// exact; nothing is reflected that is not on it, and credentials never are
// allowed.
func (s *Server) allowOrigin(r *request) {
	values := r.Request.Header.PeekAll(fasthttp.HeaderOrigin)
	if len(values) != 1 || !s.origins[string(values[0])] {
		return
	}
	h := &r.Response.Header
	h.SetBytesV(fasthttp.HeaderAccessControlAllowOrigin, values[0])
	h.Set(fasthttp.HeaderAccessControlExposeHeaders, corsExposed)
}

// foreignOrigin says that a browser page sent the request and is not listed.
func (s *Server) foreignOrigin(r *request) bool {
	values := r.Request.Header.PeekAll(fasthttp.HeaderOrigin)
	return len(values) > 0 && (len(values) > 1 || !s.origins[string(values[0])])
}

// preflight answers OPTIONS. It needs no key: browsers send none with it.
func (s *Server) preflight(r *request) {
	if s.foreignOrigin(r) && r.route != routeCredits {
		writeIssue(r.RequestCtx, api.OriginNotAllowed, 0)
		return
	}
	h := &r.Response.Header
	h.Set(fasthttp.HeaderAllow, allow[r.route])
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	if len(h.Peek(fasthttp.HeaderAccessControlAllowOrigin)) > 0 {
		h.Set(fasthttp.HeaderAccessControlAllowMethods, allow[r.route])
		h.Set(fasthttp.HeaderAccessControlAllowHeaders, corsHeaders)
		h.Set(fasthttp.HeaderAccessControlMaxAge, corsMaxAge)
	}
	r.SetStatusCode(fasthttp.StatusNoContent)
}
