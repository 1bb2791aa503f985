package admin

import (
	"context"
	"net/http"

	"rollcall/ledger"
)

// Limit is one limit of a workspace.
type Limit struct {
	Limit   int64 `json:"limit"`
	Default bool  `json:"default"` // nobody set it for this workspace
	Used    int64 `json:"used"`    // at this moment
}

// WorkspaceLimits are what a workspace may have and what it has.
type WorkspaceLimits struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Weight int    `json:"weight"`
	Open   Limit  `json:"open"`   // unfinished verifications
	Stored Limit  `json:"stored"` // bytes of uploads that are not erased, as declared
	Unpaid Limit  `json:"unpaid"` // verifications of the last 24 hours that never held a credit
}

// LimitsCall changes limits of a workspace: those that are given; 0 is the default.
type LimitsCall struct {
	Open   *int64 `json:"open,omitempty"`
	Stored *int64 `json:"stored,omitempty"`
	Unpaid *int64 `json:"unpaid,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// limitMax bounds a limit: above 2^53 a number is not exact in every reader of JSON.
const limitMax = 1 << 53

func (s *Server) limits(w http.ResponseWriter, r *http.Request) {
	id, ok := workspaceID(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	u, err := s.options.Book.Usage(ctx, id)
	if err != nil {
		s.fail(w, "read limits", err)
		return
	}
	writeJSON(w, http.StatusOK, s.limitsOf(u))
}

// setLimits changes what a workspace may have, from its next create on.
func (s *Server) setLimits(w http.ResponseWriter, r *http.Request) {
	var in LimitsCall
	id, ok := workspaceID(w, r)
	if !ok || !read(w, r, &in) || !isNamed(w, "reason", in.Reason, 0) {
		return
	}
	for _, n := range []*int64{in.Open, in.Stored, in.Unpaid} {
		if n != nil && (*n < 0 || *n > limitMax) {
			refuse(w, http.StatusBadRequest, "invalid_request",
				"open, stored and unpaid must be whole numbers from 1 to 2^53, or 0 for the default")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	u, err := s.options.Book.SetLimits(ctx, ledger.LimitsChange{Workspace: id, Open: in.Open, Stored: in.Stored,
		Unpaid: in.Unpaid, Reason: in.Reason})
	if err != nil {
		s.fail(w, "set limits", err)
		return
	}
	s.options.Log.Info("limits set", "workspace", id, "limits", u.Own)
	writeJSON(w, http.StatusOK, s.limitsOf(u))
}

func (s *Server) limitsOf(u ledger.Usage) WorkspaceLimits {
	is := u.Own.Or(s.options.Limits)
	return WorkspaceLimits{ID: u.ID.String(), Name: u.Name, Weight: u.Weight,
		Open:   Limit{is.Open, u.Own.Open == 0, u.Used.Open},
		Stored: Limit{is.Stored, u.Own.Stored == 0, u.Used.Stored},
		Unpaid: Limit{is.Unpaid, u.Own.Unpaid == 0, u.Used.Unpaid}}
}
