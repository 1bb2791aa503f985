package listen

import (
	"bytes"
	"errors"
	"net"

	"github.com/valyala/fasthttp"

	"rollcall/http/api"
)

// FramingMark is a header that this package adds to a request with a
// Transfer-Encoding or with a folded line. A client that sends it itself is refused in
// the same way.
const FramingMark = "X-Framing-Refused"

// FoldedMark is the value of FramingMark for a folded line.
const FoldedMark = "folded"

// RefuseTransferEncoding takes away a chunked body before it is read: the
// handler answers 411 and the connection ends, so what follows is never taken
// for a request (RFC 9112 §6.3, §11.2). The library drops "identity" in
// silence, so the raw lines are looked at.
func RefuseTransferEncoding(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	mark := ""
	switch raw := h.RawHeaders(); {
	case HasFoldedLine(raw):
		mark = FoldedMark
	case h.ContentLength() == -1 || hasTransferEncoding(raw):
		mark = "1"
	}
	if mark != "" {
		h.SetContentLength(0)
		h.Set(FramingMark, mark)
		h.SetConnectionClose()
	}
	return fasthttp.RequestConfig{}
}

// HasFoldedLine looks for a line that goes on with the one before (obs-fold, RFC 9112
// §5.2): a server may refuse it, and what stands before us may have read it in another way.
func HasFoldedLine(raw []byte) bool {
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

// FramingIssue says what is wrong with the bytes of a request, and after how many seconds it may come again; 0: never.
func FramingIssue(err error) (code api.Code, retryAfter int) {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.Is(err, ErrCrowded):
		return api.RateLimited, Jitter(1, 9)
	case errors.As(err, &small):
		return api.HeadersTooLarge, 0
	case IsTimeout(err):
		return api.RequestTimeout, 0
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		return api.LengthRequired, 0
	}
	return api.BadRequest, 0
}

// IsTimeout reports whether a client was too slow.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
