package http

import (
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
)

// What a listed browser page may send and see. A preflight is remembered for
// 600 seconds, the longest that every browser keeps to.
const (
	corsHeaders = "X-API-Key, Idempotency-Key, X-Upload-Content-Length, X-Upload-Filename, Content-Type"
	corsExposed = listen.HeaderRetryAfter + ", " + listen.HeaderRequestID + ", " + fasthttp.HeaderLink
	corsMaxAge  = "600"
)

// preflight answers OPTIONS. It needs no key: browsers send none with it.
func (s *Server) preflight(r *request) {
	if s.origins.Foreign(r.RequestCtx) && r.route != routeCredits {
		s.refuse(r, api.OriginNotAllowed, 0)
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
