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

const usersShown = 1000

// UserLink is a one-time link, which is shown only now.
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
	Next  string     `json:"next,omitempty"` // value of after for the next page; "" at the end
}

// EndedSessions is the number of a user's sessions that were ended.
type EndedSessions struct {
	Email string `json:"email"`
	Ended int    `json:"ended"`
}

func (d userOps) addRoutes(add addCall) {
	type about struct {
		Email string `json:"email"`
	}
	type disabled struct {
		Email    string `json:"email"`
		Disabled bool   `json:"disabled"`
	}
	add("POST /v1/workspaces/{id}/invitations", callAbout(workspaceID,
		func(ctx context.Context, id uuid.UUID, in InviteCall) (UserLink, error) {
			in.Workspace = id
			return d.Invite(ctx, in)
		}))
	add("GET /v1/workspaces/{id}/members", handle(workspaceID, func(ctx context.Context, id uuid.UUID) (UserPage, error) {
		found, err := d.ListMembers(ctx, id)
		return UserPage{Users: mapped(found, memberLine)}, err
	}))
	add("GET /v1/users", handle(usersOf, d.listUsers))
	add("POST /v1/users/password", handle(body[about],
		func(ctx context.Context, in about) (UserLink, error) { return d.MakePasswordLink(ctx, in.Email) }))
	add("POST /v1/users/disable", handle(body[disabled], func(ctx context.Context, in disabled) (UserLine, error) {
		u, err := d.DisableUser(ctx, in.Email, in.Disabled)
		return userLine(u), err
	}))
	add("POST /v1/users/end-sessions", handle(body[about], func(ctx context.Context, in about) (EndedSessions, error) {
		u, n, err := d.EndSessions(ctx, in.Email)
		return EndedSessions{u.Email, n}, err
	}))
	add("POST /v1/users/end-two-step", handle(body[about], func(ctx context.Context, in about) (UserLine, error) {
		u, err := d.ResetTOTP(ctx, in.Email)
		return userLine(u), err
	}))
}

type usersCall struct {
	after string
	limit int
}

func usersOf(r *http.Request) (in usersCall, err error) {
	in.after = r.URL.Query().Get("after")
	in.limit, err = limitOf(r, usersShown, usersShown)
	return in, err
}

func (d userOps) listUsers(ctx context.Context, in usersCall) (UserPage, error) {
	found, err := askPeople(ctx, d.common, "list users", func(ctx context.Context) ([]ledger.User, error) {
		return d.options.Book.Users(ctx, in.after, in.limit)
	})
	out := UserPage{Users: mapped(found, userLine)}
	if len(found) == in.limit {
		out.Next = found[in.limit-1].Email
	}
	return out, err
}

func userLine(u ledger.User) UserLine {
	return UserLine{Email: u.Email, Name: u.Name, HasPassword: new(u.Password != ""), HasCodes: new(u.TOTP != ""),
		HasProvider: new(u.OIDC != ""), CreatedAt: api.Time(u.Created), Disabled: !u.Disabled.IsZero()}
}

func memberLine(m ledger.Membership) UserLine {
	return UserLine{Email: m.Email, Name: m.Name, Role: string(m.Role), CreatedAt: api.Time(m.Created),
		SeenAt: api.TimeOrNull(m.Seen), Disabled: m.Disabled}
}

func askPeople[T any](ctx context.Context, d *common, step string, do func(context.Context) (T, error)) (T, error) {
	return ask(ctx, ledgerTimeout, do, func(err error) error { return d.ofPeople(step, err) })
}

// Invites reports whether this node can make links: it can if it serves the pages to which they lead.
func (d userOps) Invites() bool { return d.options.PagesURL() != "" }

// noPages returns why this node can't make links to its pages, or nil.
func (d userOps) noPages() error {
	if d.Invites() {
		return nil
	}
	return refusal(http.StatusConflict, "no_dashboard", "this node serves no pages to sign in to: set enabled = true in "+
		"[dashboard] of its configuration and start it again")
}

// ListMembers returns the members of a workspace by email.
func (d userOps) ListMembers(ctx context.Context, workspace uuid.UUID) ([]ledger.Membership, error) {
	return askPeople(ctx, d.common, "list members", with(d.options.Book.Members, workspace))
}

// InviteCall asks for an invitation link to a workspace.
type InviteCall struct {
	Form      uuid.UUID   `json:"-"` // a repeated id makes the same link; zero: each call makes a new one
	Workspace uuid.UUID   `json:"-"`
	Email     string      `json:"email"`
	Role      ledger.Role `json:"role"`
}

// Invite makes an invitation link to a workspace. Anybody with the link can use it, once.
func (d userOps) Invite(ctx context.Context, in InviteCall) (UserLink, error) {
	if err := d.noPages(); err != nil {
		return UserLink{}, err
	}
	if !in.Role.Allows(ledger.Viewer) {
		return UserLink{}, invalid("role must be viewer, member or owner")
	}
	token := signin.NewToken()
	if in.Form != uuid.Nil {
		token = signin.DeriveToken([]byte(d.options.Token), "operator invitation", in.Workspace.String(), in.Form.String())
	}
	return d.makeLink(ctx, token, ledger.Link{Purpose: ledger.InviteLink, Workspace: in.Workspace,
		Email: in.Email, Role: in.Role})
}

// MakePasswordLink makes a link for setting a new password. It revokes an older one.
func (d userOps) MakePasswordLink(ctx context.Context, email string) (UserLink, error) {
	if err := d.noPages(); err != nil {
		return UserLink{}, err
	}
	return d.makeLink(ctx, signin.NewToken(), ledger.Link{Purpose: ledger.PasswordLink, Email: email})
}

func (d userOps) makeLink(ctx context.Context, token signin.Token, l ledger.Link) (UserLink, error) {
	l.ID, _ = token.Hash()
	l.Email, l.MadeBy = strings.TrimSpace(l.Email), strings.TrimSpace("operator "+ledger.Author(ctx))
	made, err := askPeople(ctx, d.common, "make link", func(ctx context.Context) (ledger.Link, error) {
		if ledger.CheckEmail(l.Email) != nil {
			return l, ledger.ErrIllegal
		}
		made, err := d.options.Book.MakeLink(ctx, l)
		if errors.Is(err, ledger.ErrIllegal) {
			err = refusal(http.StatusConflict, "conflict", "this id was sent before with other content; use a new id")
		}
		return made, err
	})
	if err != nil {
		return UserLink{}, err
	}
	d.options.Log.Info("one-time link made", "purpose", string(l.Purpose), "workspace", l.Workspace)
	note := ledger.LogLine{Action: "user invite", Workspace: l.Workspace, Subject: l.Email, New: string(l.Role)}
	if l.Purpose == ledger.PasswordLink { // other links are in the log of the workspace
		note = line("user password link", l.Email, "")
	}
	note.ID = uuid.NewSHA1(uuid.Nil, l.ID[:]) // so that a repeated link is noted once
	d.note(ctx, note)
	return UserLink{URL: strings.TrimSuffix(d.options.PagesURL(), "/") + "/link/" + string(token),
		Email: made.Email, Role: string(made.Role), ExpiresAt: api.Time(made.Expires)}, nil
}

// DisableUser keeps a user from signing in, and ends their sessions and links. With disabled false the user may sign
// in again.
func (d userOps) DisableUser(ctx context.Context, email string, disabled bool) (ledger.User, error) {
	return d.changeUser(ctx, "disable user", email, func(ctx context.Context, u *ledger.User) (ledger.LogLine, error) {
		var err error
		*u, err = d.options.Book.DisableUser(ctx, u.ID, disabled)
		return line("user disable", u.Email, strconv.FormatBool(disabled)), err
	})
}

// EndSessions signs a user out everywhere, and returns how many sessions that ended.
func (d userOps) EndSessions(ctx context.Context, email string) (u ledger.User, ended int, err error) {
	u, err = d.changeUser(ctx, "end sessions", email, func(ctx context.Context, u *ledger.User) (ledger.LogLine, error) {
		var err error
		ended, err = d.options.Book.EndSessions(ctx, u.ID, ledger.Hash{})
		return line("user end-sessions", u.Email, strconv.Itoa(ended)), err
	})
	return u, ended, err
}

// ResetTOTP turns off a user's two-step sign-in, and signs them out everywhere.
func (d userOps) ResetTOTP(ctx context.Context, email string) (ledger.User, error) {
	u, err := d.changeUser(ctx, "reset codes", email, func(ctx context.Context, u *ledger.User) (ledger.LogLine, error) {
		return line("user end-two-step", u.Email, ""), d.options.Book.SetTOTP(ctx, u.ID, "", ledger.Hash{})
	})
	u.TOTP = ""
	return u, err
}

// changeUser changes the user with an email, and writes the log line that do returns.
func (d userOps) changeUser(ctx context.Context, step, email string,
	do func(ctx context.Context, u *ledger.User) (ledger.LogLine, error)) (ledger.User, error) {
	var done ledger.LogLine
	u, err := askPeople(ctx, d.common, step, func(ctx context.Context) (ledger.User, error) {
		u, err := d.options.Book.UserByEmail(ctx, strings.TrimSpace(email))
		if err == nil {
			done, err = do(ctx, &u)
		}
		return u, err
	})
	if err == nil {
		d.note(ctx, done)
	}
	return u, err
}

func (d *common) ofPeople(step string, err error) error {
	switch {
	case errors.Is(err, ledger.ErrNoSuchUser):
		return refusal(http.StatusNotFound, "user_not_found", "nobody with this email signs in here; see GET /v1/users")
	case errors.Is(err, ledger.ErrTooManyMembers):
		return refusal(http.StatusConflict, "too_many_members", "the workspace has "+strconv.Itoa(ledger.MembersMax)+
			" members, the most allowed")
	case errors.Is(err, ledger.ErrIllegal):
		return invalid("email must be an address such as anna@example.com")
	}
	return d.ofLedger(step, err)
}
