package admin

import (
	"context"
	"net/http"

	"rollcall/http/api"
	"rollcall/ledger"
)

// OperateCall asks for a link to the pages.
type OperateCall struct {
	ReadOnly bool `json:"read_only"` // who opens it sees and changes nothing
}

// OperateLink is a path of this listener that signs somebody in to the pages, once.
type OperateLink struct {
	Path      string   `json:"path"`
	Author    string   `json:"author"` // of what they change, for the operator log; "": it is not said
	ReadOnly  bool     `json:"read_only"`
	ExpiresAt api.Time `json:"expires_at"`
}

// operate makes a link to the pages. It asks no ledger.
func (s *Server) operate(ctx context.Context, in OperateCall) (OperateLink, error) {
	if s.pages == nil {
		return OperateLink{}, refusal(http.StatusConflict, "no_pages",
			"this process serves no pages for operators: ask another node")
	}
	author := ledger.Author(ctx)
	path, until := s.pages.Link(author, in.ReadOnly)
	return OperateLink{Path: path, Author: author, ReadOnly: in.ReadOnly, ExpiresAt: api.Time(until)}, nil
}
