package admin

import "net/http"

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
	found, err := s.desk.ReadLimits(r.Context(), id)
	answer(w, found, err)
}

// setLimits changes what a workspace may have, from its next create on.
func (s *Server) setLimits(w http.ResponseWriter, r *http.Request) {
	var in LimitsCall
	id, ok := workspaceID(w, r)
	if !ok || !read(w, r, &in) {
		return
	}
	found, err := s.desk.SetLimits(r.Context(), id, in)
	answer(w, found, err)
}
