package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/http/dashboard/signin"
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
		if s.options.PagesURL == nil || s.options.PagesURL() == "" {
			refuse(w, http.StatusConflict, "no_dashboard", "this node serves no pages to sign in to: set enabled = true in "+
				"[dashboard] of its configuration and start it again")
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
	if !in.Role.Allows(ledger.Viewer) {
		refuse(w, http.StatusBadRequest, "invalid_request", "role must be viewer, member or owner")
		return
	}
	s.makeLink(w, r, ledger.Link{Purpose: ledger.InviteLink, Workspace: id, Email: in.Email, Role: in.Role})
}

// passwordLink makes a link that sets the password of a user anew.
func (s *Server) passwordLink(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Email string `json:"email"`
	}
	if read(w, r, &in) {
		s.makeLink(w, r, ledger.Link{Purpose: ledger.PasswordLink, Email: in.Email})
	}
}

// makeLink keeps a link and answers with its URL.
func (s *Server) makeLink(w http.ResponseWriter, r *http.Request, l ledger.Link) {
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	token := signin.NewToken()
	l.ID, _ = token.Hash()
	l.Email, l.MadeBy = strings.TrimSpace(l.Email), strings.TrimSpace("operator "+ledger.Author(r.Context()))
	made, err := s.options.People.MakeLink(ctx, l)
	if err != nil {
		s.failUser(w, "make link", err)
		return
	}
	s.options.Log.Info("one-time link made", "purpose", string(l.Purpose), "workspace", l.Workspace)
	if l.Purpose == ledger.PasswordLink { // the log of the workspace has the others
		s.desk.note(r.Context(), line("user password link", l.Email, ""))
	} else {
		s.desk.note(r.Context(), ledger.LogLine{Action: "user invite", Workspace: l.Workspace, Subject: l.Email, New: string(l.Role)})
	}
	writeJSON(w, http.StatusOK, UserLink{URL: strings.TrimSuffix(s.options.PagesURL(), "/") + "/link/" + string(token),
		Email: made.Email, Role: string(made.Role), ExpiresAt: api.Time(made.Expires)})
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
		s.failUser(w, "list users", err)
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
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	found, err := s.options.People.Members(ctx, id)
	if err != nil {
		s.failUser(w, "list members", err)
		return
	}
	out := UserPage{Users: []UserLine{}}
	for _, m := range found {
		one := UserLine{Email: m.Email, Name: m.Name, Role: string(m.Role), CreatedAt: api.Time(m.Created), Disabled: m.Disabled}
		if !m.Seen.IsZero() {
			seen := api.Time(m.Seen)
			one.SeenAt = &seen
		}
		out.Users = append(out.Users, one)
	}
	writeJSON(w, http.StatusOK, out)
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
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	u, err := s.options.People.UserByEmail(ctx, strings.TrimSpace(in.Email))
	if err == nil {
		u, err = s.options.People.DisableUser(ctx, u.ID, in.Disabled)
	}
	if err != nil {
		s.failUser(w, "disable user", err)
		return
	}
	s.desk.note(r.Context(), line("user disable", u.Email, strconv.FormatBool(in.Disabled)))
	writeJSON(w, http.StatusOK, userLine(u))
}

// aboutUser does something about the user whose email a request has, and answers for what goes wrong.
func (s *Server) aboutUser(w http.ResponseWriter, r *http.Request, step string,
	do func(ctx context.Context, u ledger.User) error) (ledger.User, bool) {
	var in struct {
		Email string `json:"email"`
	}
	if !read(w, r, &in) {
		return ledger.User{}, false
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	u, err := s.options.People.UserByEmail(ctx, strings.TrimSpace(in.Email))
	if err == nil {
		err = do(ctx, u)
	}
	if err != nil {
		s.failUser(w, step, err)
	}
	return u, err == nil
}

// endSessions signs somebody out everywhere.
func (s *Server) endSessions(w http.ResponseWriter, r *http.Request) {
	n := 0
	u, ok := s.aboutUser(w, r, "end sessions", func(ctx context.Context, u ledger.User) (err error) {
		n, err = s.options.People.EndSessions(ctx, u.ID, ledger.Hash{})
		return err
	})
	if !ok {
		return
	}
	s.desk.note(r.Context(), line("user end-sessions", u.Email, strconv.Itoa(n)))
	writeJSON(w, http.StatusOK, map[string]any{"email": u.Email, "ended": n})
}

// resetTOTP has sign-in ask somebody for no codes any more, and signs them out everywhere.
func (s *Server) resetTOTP(w http.ResponseWriter, r *http.Request) {
	u, ok := s.aboutUser(w, r, "reset codes", func(ctx context.Context, u ledger.User) error {
		return s.options.People.SetTOTP(ctx, u.ID, "", ledger.Hash{})
	})
	if !ok {
		return
	}
	s.desk.note(r.Context(), line("user reset-totp", u.Email, ""))
	u.TOTP = ""
	writeJSON(w, http.StatusOK, userLine(u))
}

// failUser answers for an error of a call about users.
func (s *Server) failUser(w http.ResponseWriter, step string, err error) {
	switch {
	case errors.Is(err, ledger.ErrNoSuchUser):
		refuse(w, http.StatusNotFound, "user_not_found", "nobody with this email signs in here; see GET /v1/users")
	case errors.Is(err, ledger.ErrTooManyMembers):
		refuse(w, http.StatusConflict, "too_many_members", "the workspace has "+strconv.Itoa(ledger.MembersMax)+
			" members, and no more are possible")
	case errors.Is(err, ledger.ErrIllegal):
		refuse(w, http.StatusBadRequest, "invalid_request", "email must be one, such as anna@example.com")
	default:
		s.fail(w, step, err)
	}
}
