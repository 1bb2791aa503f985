package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/http/apikey"
	"rollcall/ledger"
)

const (
	bodyMax = 64 << 10 // operators send a name and a number
	nameMax = 200      // characters of a name, a label or a reason; a guess
)

// creditsMax bounds one grant, against a slip of the finger and far below what overflows a sum.
const creditsMax = 1_000_000_000_000

type workspace struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt *api.Time `json:"created_at,omitempty"`
	Weight    int       `json:"weight,omitempty"` // turns it has for one of another at a receiver
}

type key struct {
	ID        string    `json:"id"`
	Label     string    `json:"label"`
	CreatedAt api.Time  `json:"created_at"`
	RevokedAt *api.Time `json:"revoked_at"` // null while it works
}

type balance struct {
	Granted   ledger.Credits `json:"granted"`
	Available ledger.Credits `json:"available"`
	Held      ledger.Credits `json:"held"`
	Spent     ledger.Credits `json:"spent"`
}

func (s *Server) createWorkspace(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name string `json:"name"`
	}
	if !read(w, r, &in) || !isNamed(w, "name", in.Name, 1) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	made, err := s.options.Book.CreateWorkspace(ctx, uuid.New(), in.Name)
	if err != nil {
		s.fail(w, "create workspace", err)
		return
	}
	s.options.Log.Info("workspace created", "workspace", made.ID)
	writeJSON(w, http.StatusOK, workspace{ID: made.ID.String(), Name: made.Name})
}

func (s *Server) workspaces(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	found, err := s.options.Book.Workspaces(ctx)
	if err != nil {
		s.fail(w, "list workspaces", err)
		return
	}
	out := make([]workspace, 0, len(found))
	for _, f := range found {
		created := api.Time(f.Created)
		out = append(out, workspace{ID: f.ID.String(), Name: f.Name, CreatedAt: &created, Weight: f.Weight})
	}
	writeJSON(w, http.StatusOK, map[string]any{"workspaces": out})
}

// setWeight says how many turns a workspace has at a receiver for one of another.
func (s *Server) setWeight(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Weight int `json:"weight"`
	}
	id, ok := workspaceID(w, r)
	if !ok || !read(w, r, &in) {
		return
	}
	changed, err := s.desk.SetWeight(r.Context(), id, in.Weight)
	created := api.Time(changed.Created)
	answer(w, workspace{ID: changed.ID.String(), Name: changed.Name, CreatedAt: &created, Weight: changed.Weight}, err)
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Label string `json:"label"`
	}
	id, ok := workspaceID(w, r)
	if !ok || !read(w, r, &in) || !isNamed(w, "label", in.Label, 0) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	text, k := apikey.New()
	made, err := s.options.Book.CreateKey(ctx, ledger.Key{
		ID: k.ID, Workspace: id, Label: in.Label, SecretSHA256: k.SHA256,
	})
	if err != nil {
		s.fail(w, "create key", err)
		return
	}
	s.options.Log.Info("key created", "workspace", id, "key", made.ID)
	writeJSON(w, http.StatusOK, map[string]string{"id": made.ID, "key": text})
}

func (s *Server) keys(w http.ResponseWriter, r *http.Request) {
	id, ok := workspaceID(w, r)
	if !ok {
		return
	}
	found, err := s.desk.ListKeys(r.Context(), id)
	out := make([]key, 0, len(found))
	for _, f := range found {
		out = append(out, key{ID: f.ID, Label: f.Label, CreatedAt: api.Time(f.Created), RevokedAt: timeOrNull(f)})
	}
	answer(w, map[string]any{"keys": out}, err)
}

func (s *Server) revokeKey(w http.ResponseWriter, r *http.Request) {
	k, err := s.desk.RevokeKey(r.Context(), r.PathValue("id"))
	answer(w, map[string]any{"id": k.ID, "revoked_at": timeOrNull(k)}, err)
}

func (s *Server) grant(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID      uuid.UUID `json:"id"`
		Credits int64     `json:"credits"`
		Reason  string    `json:"reason"`
	}
	id, ok := workspaceID(w, r)
	if !ok || !read(w, r, &in) {
		return
	}
	b, err := s.desk.Grant(r.Context(), GrantCall{ID: in.ID, Workspace: id, Credits: in.Credits, Reason: in.Reason})
	answer(w, balance(b), err)
}

func (s *Server) balance(w http.ResponseWriter, r *http.Request) {
	id, ok := workspaceID(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	b, err := s.options.Book.Balance(ctx, id)
	if err != nil {
		s.fail(w, "read balance", err)
		return
	}
	writeJSON(w, http.StatusOK, balance(b))
}

func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.longCall(r)
	defer cancel()
	report, err := s.desk.Audit(ctx)
	answer(w, report, err)
}

// CorrectionCall asks for a correction of what an audit finds about one subject.
type CorrectionCall struct {
	ID      string `json:"id"` // sent again it is the same correction
	Subject string `json:"subject"`
	Reason  string `json:"reason"`
	Keep    bool   `json:"keep_account,omitempty"` // a workspace's account stays as it is
}

func (s *Server) correct(w http.ResponseWriter, r *http.Request) {
	var in CorrectionCall
	if !read(w, r, &in) || !isNamed(w, "subject", in.Subject, 1) || !isNamed(w, "reason", in.Reason, 1) {
		return
	}
	id, err := uuid.Parse(in.ID)
	if err != nil || id == uuid.Nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "id must be a UUID that you made for this correction")
		return
	}
	ctx, cancel := s.longCall(r)
	defer cancel()
	c, err := s.options.Book.Correct(ctx, ledger.CorrectionCall{ID: id, Subject: in.Subject, Reason: in.Reason, Keep: in.Keep})
	switch {
	case errors.Is(err, ledger.ErrNothingFound):
		refuse(w, http.StatusNotFound, "nothing_to_correct",
			"an audit finds nothing about this subject that is not set right already; see GET /v1/audit")
	case errors.Is(err, ledger.ErrUncorrectable):
		refuse(w, http.StatusConflict, "uncorrectable", err.Error())
	case err != nil:
		s.fail(w, "correct", err)
	default:
		s.options.Log.Warn("the ledger was corrected", "subject", c.Subject, "correction", c.ID, "findings", len(c.Findings))
		if s.options.Wake != nil {
			s.options.Wake()
		}
		writeJSON(w, http.StatusOK, c)
	}
}

// fail answers for an error of the ledger.
func (s *Server) fail(w http.ResponseWriter, step string, err error) {
	answer(w, nil, s.desk.ofLedger(step, err))
}

// workspaceID reads the {id} of the path.
func workspaceID(w http.ResponseWriter, r *http.Request) (uuid.UUID, bool) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request",
			"the workspace id must be a UUID; see GET /v1/workspaces")
	}
	return id, err == nil
}

// read reads the JSON body of a call.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	return readMost(w, r, into, bodyMax)
}

// readMost is read with another bound.
func readMost(w http.ResponseWriter, r *http.Request, into any, most int64) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request",
			"the body is not the JSON that this call takes: "+err.Error())
		return false
	}
	return true
}

// isNamed checks a text for people.
func isNamed(w http.ResponseWriter, field, text string, least int) bool {
	err := named(field, text, least)
	if err != nil {
		answer(w, nil, err)
	}
	return err == nil
}

func timeOrNull(k ledger.Key) *api.Time {
	if k.Revoked.IsZero() {
		return nil
	}
	t := api.Time(k.Revoked)
	return &t
}
