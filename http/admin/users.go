package admin

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/ledger"
)

// People is what operators need of those who sign in to the pages; ledger.People is one.
type People interface {
	MakeLink(ctx context.Context, l ledger.Link) (ledger.Link, error)
	UserByEmail(ctx context.Context, email string) (ledger.User, error)
	Users(ctx context.Context, after string, limit int) ([]ledger.User, error)
	Members(ctx context.Context, workspace uuid.UUID) ([]ledger.Membership, error)
	DisableUser(ctx context.Context, user uuid.UUID, disabled bool) (ledger.User, error)
	EndSessions(ctx context.Context, user uuid.UUID, but ledger.Hash) (int, error)
	SetTOTP(ctx context.Context, user uuid.UUID, state string, but ledger.Hash) error
}

// usersShown is how many users one page of the list has.
const usersShown = 1000

// UserLink is a one-time link, at the one moment at which it is shown.
type UserLink struct {
	URL       string   `json:"url"`
	Email     string   `json:"email"`
	Role      string   `json:"role,omitempty"` // of an invitation
	ExpiresAt api.Time `json:"expires_at"`
}

// UserLine is a user in a list.
type UserLine struct {
	Email       string    `json:"email"`
	Name        string    `json:"name"`
	Role        string    `json:"role,omitempty"` // in the workspace that was asked for
	HasPassword *bool     `json:"has_password,omitempty"`
	HasCodes    *bool     `json:"has_codes,omitempty"`    // sign-in asks for a code
	HasProvider *bool     `json:"has_provider,omitempty"` // signs in by the provider
	CreatedAt   api.Time  `json:"created_at"`             // of the user, or of the membership
	SeenAt      *api.Time `json:"seen_at,omitempty"`
	Disabled    bool      `json:"disabled"`
}

// UserPage is a page of the list of users.
type UserPage struct {
	Users []UserLine `json:"users"`
	Next  string     `json:"next,omitempty"` // after of the next page; "" at the end
}

// userRoutes adds the calls about those who sign in to the pages.
func (s *Server) userRoutes(m *http.ServeMux) {
	m.HandleFunc("POST /v1/workspaces/{id}/invitations", s.withPages(s.invite))
	m.HandleFunc("GET /v1/workspaces/{id}/members", s.membersOf)
	m.HandleFunc("GET /v1/users", s.users)
	m.HandleFunc("POST /v1/users/password", s.withPages(s.passwordLink))
	m.HandleFunc("POST /v1/users/disable", s.disableUser)
	m.HandleFunc("POST /v1/users/end-sessions", s.endSessions)
	m.HandleFunc("POST /v1/users/reset-totp", s.resetTOTP)
}

// withPages refuses a call that needs the pages when the node serves none.
func (s *Server) withPages(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.desk.Invites() {
			answer(w, nil, errNoPages)
			return
		}
		next(w, r)
	}
}

// invite makes a link that makes somebody a member of a workspace.
func (s *Server) invite(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Email string      `json:"email"`
		Role  ledger.Role `json:"role"`
	}
	id, ok := workspaceID(w, r)
	if !ok || !read(w, r, &in) {
		return
	}
	made, err := s.desk.Invite(r.Context(), InviteCall{Workspace: id, Email: in.Email, Role: in.Role})
	answer(w, made, err)
}

// passwordLink makes a link that sets the password of a user anew.
func (s *Server) passwordLink(w http.ResponseWriter, r *http.Request) {
	var in emailCall
	if read(w, r, &in) {
		made, err := s.desk.MakePasswordLink(r.Context(), in.Email)
		answer(w, made, err)
	}
}

// users lists those who may sign in.
func (s *Server) users(w http.ResponseWriter, r *http.Request) {
	limit := usersShown
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > usersShown {
			refuse(w, http.StatusBadRequest, "invalid_request", "limit must be a whole number from 1 to 1000")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	found, err := s.options.People.Users(ctx, r.URL.Query().Get("after"), limit)
	if err != nil {
		answer(w, nil, s.desk.ofPeople("list users", err))
		return
	}
	out := UserPage{Users: []UserLine{}}
	for _, u := range found {
		out.Users = append(out.Users, userLine(u))
	}
	if len(found) == limit {
		out.Next = found[limit-1].Email
	}
	writeJSON(w, http.StatusOK, out)
}

func userLine(u ledger.User) UserLine {
	password, codes, provider := u.Password != "", u.TOTP != "", u.OIDC != ""
	return UserLine{Email: u.Email, Name: u.Name, HasPassword: &password, HasCodes: &codes, HasProvider: &provider, CreatedAt: api.Time(u.Created), Disabled: !u.Disabled.IsZero()}
}

// membersOf lists those of one workspace.
func (s *Server) membersOf(w http.ResponseWriter, r *http.Request) {
	id, ok := workspaceID(w, r)
	if !ok {
		return
	}
	found, err := s.desk.ListMembers(r.Context(), id)
	out := UserPage{Users: []UserLine{}}
	for _, m := range found {
		one := UserLine{Email: m.Email, Name: m.Name, Role: string(m.Role), CreatedAt: api.Time(m.Created), Disabled: m.Disabled}
		if !m.Seen.IsZero() {
			seen := api.Time(m.Seen)
			one.SeenAt = &seen
		}
		out.Users = append(out.Users, one)
	}
	answer(w, out, err)
}

// disableUser keeps somebody from signing in, or lets them again.
func (s *Server) disableUser(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Email    string `json:"email"`
		Disabled bool   `json:"disabled"`
	}
	if !read(w, r, &in) {
		return
	}
	u, err := s.desk.DisableUser(r.Context(), in.Email, in.Disabled)
	answer(w, userLine(u), err)
}

// emailCall is about the user who has an email.
type emailCall struct {
	Email string `json:"email"`
}

// endSessions signs somebody out everywhere.
func (s *Server) endSessions(w http.ResponseWriter, r *http.Request) {
	var in emailCall
	if read(w, r, &in) {
		u, n, err := s.desk.EndSessions(r.Context(), in.Email)
		answer(w, map[string]any{"email": u.Email, "ended": n}, err)
	}
}

// resetTOTP has sign-in ask somebody for no codes any more, and signs them out everywhere.
func (s *Server) resetTOTP(w http.ResponseWriter, r *http.Request) {
	var in emailCall
	if read(w, r, &in) {
		u, err := s.desk.ResetTOTP(r.Context(), in.Email)
		answer(w, userLine(u), err)
	}
}
