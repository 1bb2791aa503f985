package http

import (
	"context"
	"strconv"

	"github.com/valyala/fasthttp"

	"rollcall/http/listen"
)

// credits answers GET /v1/credits.
func (s *Server) credits(ctx context.Context, r *request) {
	balance, err := s.balances.read(ctx, r.key.Workspace)
	if err != nil {
		s.unavailable(r, "read balance", err)
		return
	}
	h := &r.Response.Header
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	r.SetContentType(listen.JSONType)
	var buffer [64]byte
	body := append(buffer[:0], `{"credits":`...)
	body = strconv.AppendInt(body, int64(balance.Available), 10)
	r.SetBody(append(body, '}'))
}
