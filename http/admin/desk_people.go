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

// errNoPeople and errNoPages say that nobody signs in at this process.
var (
	errNoPeople = refusal(http.StatusConflict, "no_people", "nobody signs in at this process: ask another node")
	errNoPages  = refusal(http.StatusConflict, "no_dashboard", "this node serves no pages to sign in to: set enabled = true in "+
		"[dashboard] of its configuration and start it again")
)

// withPeople bounds a question about those who sign in; an error when there are none here.
func (d *Desk) withPeople(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if d.options.People == nil {
		return ctx, func() {}, errNoPeople
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	return ctx, cancel, nil
}

// Invites reports whether this node can make links: it serves the pages that they lead to.
func (d *Desk) Invites() bool {
	return d.options.People != nil && d.options.PagesURL != nil && d.options.PagesURL() != ""
}

// ListMembers gives the members of a workspace by email. Without people at this process there are none.
func (d *Desk) ListMembers(ctx context.Context, workspace uuid.UUID) ([]ledger.Membership, error) {
	ctx, cancel, err := d.withPeople(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	found, err := d.options.People.Members(ctx, workspace)
	if err != nil {
		return nil, d.ofPeople("list members", err)
	}
	return found, nil
}

// InviteCall asks for a link with which somebody joins a workspace.
type InviteCall struct {
	Form      uuid.UUID // the same one again makes the same link; zero: each call makes its own
	Workspace uuid.UUID
	Email     string
	Role      ledger.Role
}

// Invite makes a link that makes somebody a member of a workspace. Who has the link can use it, once.
func (d *Desk) Invite(ctx context.Context, in InviteCall) (UserLink, error) {
	if !d.Invites() {
		return UserLink{}, errNoPages
	}
	if !in.Role.Allows(ledger.Viewer) {
		return UserLink{}, refusal(http.StatusBadRequest, "invalid_request", "role must be viewer, member or owner")
	}
	token := signin.NewToken()
	if in.Form != uuid.Nil {
		token = signin.DeriveToken([]byte(d.options.Token), "operator invitation", in.Workspace.String(), in.Form.String())
	}
	return d.makeLink(ctx, token, ledger.Link{Purpose: ledger.InviteLink, Workspace: in.Workspace, Email: in.Email, Role: in.Role})
}

// MakePasswordLink makes a link with which a user sets their password anew. An older one ends.
func (d *Desk) MakePasswordLink(ctx context.Context, email string) (UserLink, error) {
	if !d.Invites() {
		return UserLink{}, errNoPages
	}
	return d.makeLink(ctx, signin.NewToken(), ledger.Link{Purpose: ledger.PasswordLink, Email: email})
}

// makeLink keeps a link and gives its URL.
func (d *Desk) makeLink(ctx context.Context, token signin.Token, l ledger.Link) (UserLink, error) {
	ctx, cancel, err := d.withPeople(ctx)
	defer cancel()
	if err != nil {
		return UserLink{}, err
	}
	l.ID, _ = token.Hash()
	l.Email, l.MadeBy = strings.TrimSpace(l.Email), strings.TrimSpace("operator "+ledger.Author(ctx))
	if ledger.CheckEmail(l.Email) != nil {
		return UserLink{}, d.ofPeople("make link", ledger.ErrIllegal)
	}
	made, err := d.options.People.MakeLink(ctx, l)
	switch {
	case errors.Is(err, ledger.ErrIllegal):
		return UserLink{}, refusal(http.StatusConflict, "conflict", "this was sent before with something else in it; send it anew")
	case err != nil:
		return UserLink{}, d.ofPeople("make link", err)
	}
	d.options.Log.Info("one-time link made", "purpose", string(l.Purpose), "workspace", l.Workspace)
	note := ledger.LogLine{Action: "user invite", Workspace: l.Workspace, Subject: l.Email, New: string(l.Role)}
	if l.Purpose == ledger.PasswordLink { // the log of the workspace has the others
		note = line("user password link", l.Email, "")
	}
	note.ID = uuid.NewSHA1(uuid.Nil, l.ID[:]) // a link that is made again is noted once
	d.note(ctx, note)
	return UserLink{URL: strings.TrimSuffix(d.options.PagesURL(), "/") + "/link/" + string(token),
		Email: made.Email, Role: string(made.Role), ExpiresAt: api.Time(made.Expires)}, nil
}

// DisableUser keeps somebody from signing in, and ends their sessions and links; false lets them again.
func (d *Desk) DisableUser(ctx context.Context, email string, disabled bool) (ledger.User, error) {
	u, err := d.changeUser(ctx, "disable user", email, func(ctx context.Context, u *ledger.User) (err error) {
		*u, err = d.options.People.DisableUser(ctx, u.ID, disabled)
		return err
	})
	if err == nil {
		d.note(ctx, line("user disable", u.Email, strconv.FormatBool(disabled)))
	}
	return u, err
}

// EndSessions signs somebody out everywhere, and gives how many sessions that ended.
func (d *Desk) EndSessions(ctx context.Context, email string) (u ledger.User, ended int, err error) {
	u, err = d.changeUser(ctx, "end sessions", email, func(ctx context.Context, u *ledger.User) (err error) {
		ended, err = d.options.People.EndSessions(ctx, u.ID, ledger.Hash{})
		return err
	})
	if err == nil {
		d.note(ctx, line("user end-sessions", u.Email, strconv.Itoa(ended)))
	}
	return u, ended, err
}

// ResetTOTP has sign-in ask somebody for no codes any more, and signs them out everywhere.
func (d *Desk) ResetTOTP(ctx context.Context, email string) (ledger.User, error) {
	u, err := d.changeUser(ctx, "reset codes", email, func(ctx context.Context, u *ledger.User) error {
		return d.options.People.SetTOTP(ctx, u.ID, "", ledger.Hash{})
	})
	if err == nil {
		d.note(ctx, line("user reset-totp", u.Email, ""))
	}
	u.TOTP = ""
	return u, err
}

// changeUser does something about the user who has an email.
func (d *Desk) changeUser(ctx context.Context, step, email string,
	do func(ctx context.Context, u *ledger.User) error) (ledger.User, error) {
	ctx, cancel, err := d.withPeople(ctx)
	defer cancel()
	if err != nil {
		return ledger.User{}, err
	}
	u, err := d.options.People.UserByEmail(ctx, strings.TrimSpace(email))
	if err == nil {
		err = do(ctx, &u)
	}
	if err != nil {
		return ledger.User{}, d.ofPeople(step, err)
	}
	return u, nil
}

// ofPeople is the refusal for an error about users.
func (d *Desk) ofPeople(step string, err error) error {
	switch {
	case errors.Is(err, ledger.ErrNoSuchUser):
		return refusal(http.StatusNotFound, "user_not_found", "nobody with this email signs in here; see GET /v1/users")
	case errors.Is(err, ledger.ErrTooManyMembers):
		return refusal(http.StatusConflict, "too_many_members", "the workspace has "+strconv.Itoa(ledger.MembersMax)+
			" members, and no more are possible")
	case errors.Is(err, ledger.ErrIllegal):
		return refusal(http.StatusBadRequest, "invalid_request", "email must be one, such as anna@example.com")
	}
	return d.ofLedger(step, err)
}
