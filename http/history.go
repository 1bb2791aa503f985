package http

import (
	"context"
	"strconv"

	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/ledger"
)

// The page sizes of the contract.
const (
	pageDefault = 20
	pageMax     = 100
)

// history answers GET /v1/verifications. One row more than asked for is read,
// to know whether there is another page.
func (s *Server) history(ctx context.Context, r *request) {
	q, refused := s.readHistory(r)
	if refused != "" {
		writeIssue(r.RequestCtx, refused, 0)
		return
	}
	limit := q.Limit
	q.Limit++
	found, err := s.options.Book.History(ctx, q)
	if err != nil {
		s.unavailable(r, "read history", err)
		return
	}
	page := api.History{
		Verifications: make([]api.Summary, 0, min(len(found), limit)),
		Limits:        api.Limits{MaxFileBytes: s.options.MaxFileBytes, MaxRows: s.options.MaxRows},
	}
	for _, v := range found[:min(len(found), limit)] {
		page.Verifications = append(page.Verifications, summaryOf(v))
	}
	if len(found) > limit {
		last := found[limit-1]
		cursor := s.cursors.seal(ledger.Position{Created: last.Created, ID: last.ID}, q.Workspace, q.Kind)
		page.NextCursor = &cursor
	}
	writeJSON(r.RequestCtx, fasthttp.StatusOK, page)
}

// readHistory reads the query; the code names the first parameter that is
// wrong. Unknown parameters are ignored.
func (s *Server) readHistory(r *request) (ledger.HistoryQuery, api.Code) {
	q := ledger.HistoryQuery{Workspace: r.key.Workspace, Limit: pageDefault}
	args := r.QueryArgs()
	for _, name := range []string{"limit", "kind", "cursor"} {
		if len(args.PeekMulti(name)) > 1 {
			return q, api.InvalidParameter
		}
	}
	if args.Has("limit") {
		n, err := strconv.ParseUint(string(args.Peek("limit")), 10, 8)
		if err != nil || n < 1 || n > pageMax {
			return q, api.InvalidLimit
		}
		q.Limit = int(n)
	}
	if args.Has("kind") {
		q.Kind = ledger.Kind(args.Peek("kind"))
		if q.Kind != ledger.Single && q.Kind != ledger.Bulk {
			return q, api.InvalidKind
		}
	}
	if args.Has("cursor") {
		p, ok := s.cursors.open(args.Peek("cursor"), q.Workspace, q.Kind)
		if !ok {
			return q, api.InvalidCursor
		}
		q.After = &p
	}
	return q, ""
}
