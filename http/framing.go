package http

import (
	"bytes"
	"errors"
	"net"

	"github.com/valyala/fasthttp"

	"rollcall/http/api"
)

// framingMark is a header that this package adds to a request with a
// Transfer-Encoding or with a folded line. A client that sends it itself is refused in
// the same way.
const framingMark = "X-Framing-Refused"

// foldedMark is the value of framingMark for a folded line.
const foldedMark = "folded"

// refuseTransferEncoding takes away a chunked body before it is read: the
// handler answers 411 and the connection ends, so what follows is never taken
// for a request (RFC 9112 §6.3, §11.2). The library drops "identity" in
// silence, so the raw lines are looked at.
func refuseTransferEncoding(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	mark := ""
	switch raw := h.RawHeaders(); {
	case hasFoldedLine(raw):
		mark = foldedMark
	case h.ContentLength() == -1 || hasTransferEncoding(raw):
		mark = "1"
	}
	if mark != "" {
		h.SetContentLength(0)
		h.Set(framingMark, mark)
		h.SetConnectionClose()
	}
	return fasthttp.RequestConfig{}
}

// hasFoldedLine looks for a line that goes on with the one before (obs-fold, RFC 9112
// §5.2): a server may refuse it, and what stands before us may have read it in another way.
func hasFoldedLine(raw []byte) bool {
	for line := range bytes.Lines(raw) {
		if line[0] == ' ' || line[0] == '\t' {
			return true
		}
	}
	return false
}

// hasTransferEncoding looks for the header at the start of a line.
func hasTransferEncoding(raw []byte) bool {
	const name = "transfer-encoding:"
	for len(raw) > 0 {
		line, rest, _ := bytes.Cut(raw, []byte("\n"))
		if len(line) >= len(name) && line[0]|0x20 == 't' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return true
		}
		raw = rest
	}
	return false
}

// handleError answers what is no sound request. The connection always ends.
func (s *Server) handleError(ctx *fasthttp.RequestCtx, err error) {
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		s.serve(ctx, true) // the checks before the body's come first
		return
	}
	closeAfter(ctx)
	code, again := framingCode(err), 0
	if errors.Is(err, errCrowded) {
		code, again = api.RateLimited, jitter(1, 9)
	}
	writeIssue(ctx, code, again)
	s.metrics.count(routeNone, ctx.Response.StatusCode())
	s.log.Debug("request refused", "code", string(code), "request", requestID(ctx))
}

// framingCode names what is wrong with the bytes of a request.
func framingCode(err error) api.Code {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &small):
		return api.HeadersTooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		return api.RequestTimeout
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		return api.LengthRequired
	}
	return api.BadRequest
}
