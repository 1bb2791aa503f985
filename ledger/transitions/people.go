package transitions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// operator is who makes changes by the command line.
const operator = "operator"

// forEver is longer than any session holds.
const forEver = 1 << 62 * time.Nanosecond

// told writes what a change is told by: a line of the log of its workspace, and a line of the operator log when an operator
// made it or it is of no workspace.
func told(t Tables, actor string, workspace uuid.UUID, l ledger.WorkspaceLine) error {
	l.Actor = actor
	if err := l.Check(); err != nil {
		return err
	}
	if workspace != uuid.Nil {
		if err := t.LogIn(workspace, l); err != nil {
			return err
		}
		if actor != operator {
			return nil
		}
	}
	return t.Log(ledger.LogLine{Action: l.Action, Workspace: workspace, Subject: l.Subject, New: l.Detail})
}

// isWorkspace refuses a workspace that is none. It is asked before a transaction: a workspace never goes, and who reads its
// row in a transaction is in the way of those who move its credits. ErrNoSuchWorkspace.
func (e Engine) isWorkspace(ctx context.Context, workspace uuid.UUID) error {
	return e.db.View(ctx, func(t Tables) error {
		_, err := t.Account(workspace)
		return err
	})
}

// MakeLink keeps a link.
func (e Engine) MakeLink(ctx context.Context, l ledger.Link) (made ledger.Link, err error) {
	if !personal(l) {
		err = e.isWorkspace(ctx, l.Workspace)
	}
	if err == nil {
		err = e.db.Update(ctx, Scope{}, func(t Tables) (err error) {
			made, err = makeLink(t, ledger.Actor(ctx), l)
			return err
		})
	}
	if err != nil {
		return ledger.Link{}, fmt.Errorf("make a link: %w", err)
	}
	return made, nil
}

func makeLink(t Tables, actor string, l ledger.Link) (ledger.Link, error) {
	known, err := t.LinkRow(l.ID)
	if err != nil {
		return l, err
	}
	if known != nil && known.Same(l) {
		return known.Link, nil
	}
	now, err := t.Now()
	if err != nil {
		return l, err
	}
	if err := mayBeInvited(t, l, now); err != nil {
		return l, err
	}
	if err := l.Check(); err != nil {
		return l, err
	}
	if known != nil {
		return l, fmt.Errorf("the id of the link was used for another: %w", ledger.ErrIllegal)
	}
	folded, action := ledger.FoldEmail(l.Email), "link create"
	if personal(l) {
		action = string(l.Purpose) + " link create"
		if err := t.EndLinks(Links{Folded: folded, Purpose: l.Purpose}, now); err != nil {
			return l, err
		}
	}
	l.Created, l.Expires, l.Used = now, now.Add(ledger.LinkLife), time.Time{}
	if err := t.AddLink(l); err != nil {
		return l, err
	}
	return l, told(t, actor, l.Workspace, ledger.WorkspaceLine{Action: action, Subject: l.Email, Detail: string(l.Role)})
}

// personal says that a link is for somebody who is a user already, in no workspace.
func personal(l ledger.Link) bool {
	return l.Purpose == ledger.PasswordLink || l.Purpose == ledger.SignInLink
}

// mayBeInvited refuses a link that nobody could use, or may make. ErrNoSuchUser, ErrNotOwner, ErrTooManyMembers.
func mayBeInvited(t Tables, l ledger.Link, now time.Time) error {
	if personal(l) {
		u, err := userOf(t, l.Email)
		if err == nil && (u == nil || !u.Disabled.IsZero()) {
			err = ledger.ErrNoSuchUser
		}
		return err
	}
	if err := onlyOwner(t, l.MadeBy, l.Workspace); err != nil {
		return err
	}
	n, err := t.MembersAndInvited(l.Workspace, now)
	if err == nil && n >= ledger.MembersMax {
		err = ledger.ErrTooManyMembers
	}
	return err
}

// userActor is what the actor of a user begins with.
const userActor = "user:"

// onlyOwner refuses a user who is no owner of a workspace: a node may believe for some seconds that they are. ErrNotOwner.
func onlyOwner(t Tables, actor string, workspace uuid.UUID) error {
	text, is := strings.CutPrefix(actor, userActor)
	if !is {
		return nil
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return ledger.ErrNotOwner
	}
	role, err := t.Member(workspace, id)
	if err == nil && role != ledger.Owner {
		err = ledger.ErrNotOwner
	}
	return err
}

// userOf finds a user by email. What is no email, no database need be asked for.
func userOf(t Tables, email string) (*ledger.User, error) {
	if ledger.CheckEmail(email) != nil {
		return nil, nil
	}
	return t.UserOf(ledger.FoldEmail(email))
}

// AcceptLink uses a link up and begins a session.
func (e Engine) AcceptLink(ctx context.Context, a ledger.Accept) (ledger.SignedIn, error) {
	err := e.db.Update(ctx, Scope{}, func(t Tables) error { return accept(t, ledger.Actor(ctx), a) })
	var in *ledger.SignedIn
	if err == nil {
		in, err = e.signedIn(ctx, a.Session.ID, forEver, ledger.ErrNoSuchLink)
	}
	if err != nil {
		return ledger.SignedIn{}, fmt.Errorf("accept a link: %w", err)
	}
	return *in, nil
}

func accept(t Tables, actor string, a ledger.Accept) error {
	l, err := t.LinkRow(a.Link)
	if err != nil {
		return err
	}
	if l == nil {
		return ledger.ErrNoSuchLink
	}
	if l.Session != (ledger.Hash{}) && l.Session == a.Session.ID {
		return nil // this call, or the same before it, has used it
	}
	now, err := t.Now()
	if err != nil {
		return err
	}
	u, err := t.UserOf(ledger.FoldEmail(l.Email))
	switch {
	case err != nil:
		return err
	case !l.Open(now), u != nil && !u.Disabled.IsZero(), u == nil && personal(l.Link):
		return ledger.ErrNoSuchLink
	}
	if err := a.Session.Check(); err != nil {
		return err
	}
	if u != nil {
		if err := stillProved(a.Session, u); err != nil {
			return err
		}
	}
	if u, err = userOfLink(t, l, u, a, now); err != nil {
		return err
	}
	if actor == "" {
		actor = userActor + u.ID.String()
	}
	switch l.Purpose {
	case ledger.InviteLink:
		err = join(t, actor, l, u, now)
	case ledger.PasswordLink:
		_, err = endAll(t, u.ID, ledger.Hash{}, now)
	}
	if err != nil {
		return err
	}
	n, err := t.UseLink(l.ID, a.Session.ID, now)
	if err := one(n, err, "use link"); err != nil {
		return err
	}
	a.Session.User = u.ID
	return begin(t, a.Session, now)
}

// userOfLink makes or changes the user of a link, and gives them. An invitation changes no user who is there: whoever made
// it has its link.
func userOfLink(t Tables, l *LinkRow, u *ledger.User, a ledger.Accept, now time.Time) (*ledger.User, error) {
	if u != nil && l.Purpose != ledger.PasswordLink {
		if a.Password != "" || a.OIDC != "" && a.OIDC != u.OIDC {
			return nil, fmt.Errorf("a link of this kind does not change how a user signs in: %w", ledger.ErrIllegal)
		}
		return u, nil
	}
	if a.Password != "" || u != nil || a.OIDC == "" {
		if err := ledger.CheckPassword(a.Password); err != nil {
			return nil, err
		}
	}
	if u != nil {
		u.Password = a.Password
		n, err := t.ChangeUser(*u)
		return u, one(n, err, "set password")
	}
	if err := mayBeNew(t, a); err != nil {
		return nil, err
	}
	u = &ledger.User{ID: a.User, Email: l.Email, Name: a.Name, Password: a.Password, OIDC: a.OIDC, Created: now}
	return u, t.AddUser(*u)
}

// mayBeNew refuses a user who cannot be made. ErrIllegal, ErrIdentityTaken.
func mayBeNew(t Tables, a ledger.Accept) error {
	if a.User == uuid.Nil || len(a.Name) > ledger.NameMax {
		return fmt.Errorf("a user without an id, or a name of more than %d bytes: %w", ledger.NameMax, ledger.ErrIllegal)
	}
	if err := ledger.CheckText(a.Name); err != nil {
		return err
	}
	taken, err := t.User(a.User)
	if err != nil {
		return err
	}
	if taken != nil {
		return fmt.Errorf("the id of the user was used for another: %w", ledger.ErrIllegal)
	}
	if a.OIDC == "" {
		return nil
	}
	return freeIdentity(t, a.User, a.OIDC)
}

// join makes the user of an invitation a member, or gives a member the role if it is the higher.
func join(t Tables, actor string, l *LinkRow, u *ledger.User, now time.Time) error {
	is, err := t.Member(l.Workspace, u.ID)
	if err != nil || is.Allows(l.Role) {
		return err
	}
	if err := t.SetMember(l.Workspace, u.ID, l.Role, now); err != nil {
		return err
	}
	line := ledger.WorkspaceLine{Action: "member join", Subject: u.Email, Detail: string(l.Role)}
	if is != "" {
		line = roleLine(u.Email, is, l.Role)
	}
	return told(t, actor, l.Workspace, line)
}

// roleLine says that a role was changed.
func roleLine(email string, old, now ledger.Role) ledger.WorkspaceLine {
	return ledger.WorkspaceLine{Action: "member role", Subject: email, Detail: string(old) + " to " + string(now)}
}

// EndLink ends an invitation to a workspace before its time.
func (e Engine) EndLink(ctx context.Context, workspace uuid.UUID, id ledger.Hash) error {
	err := e.db.Update(ctx, Scope{}, func(t Tables) error {
		l, err := t.LinkRow(id)
		if err != nil {
			return err
		}
		if l == nil || l.Workspace != workspace || l.Purpose != ledger.InviteLink || l.Session != (ledger.Hash{}) {
			return ledger.ErrNoSuchLink
		}
		now, err := t.Now()
		if err != nil {
			return err
		}
		n, err := t.UseLink(id, ledger.Hash{}, now)
		if err != nil || n == 0 {
			return err // it is over already
		}
		return told(t, ledger.Actor(ctx), workspace, ledger.WorkspaceLine{Action: "link end", Subject: l.Email,
			Detail: string(l.Role)})
	})
	if err != nil {
		return fmt.Errorf("end a link of workspace %s: %w", workspace, err)
	}
	return nil
}

// SetRole changes a member's role.
func (e Engine) SetRole(ctx context.Context, workspace, user uuid.UUID, role ledger.Role) error {
	err := e.isWorkspace(ctx, workspace)
	if err == nil {
		err = e.db.Update(ctx, Scope{}, func(t Tables) error { return setRole(t, ledger.Actor(ctx), workspace, user, role) })
	}
	if err != nil {
		return fmt.Errorf("set the role of user %s in workspace %s: %w", user, workspace, err)
	}
	return nil
}

func setRole(t Tables, actor string, workspace, user uuid.UUID, role ledger.Role) error {
	is, err := t.Member(workspace, user)
	switch {
	case err != nil || is == "" && role == "":
		return err
	case is == "":
		return ledger.ErrNoSuchUser
	case role != "" && !role.Allows(ledger.Viewer):
		return fmt.Errorf("role %q: %w", role, ledger.ErrIllegal)
	case is == role:
		return nil
	}
	if err := onlyOwner(t, actor, workspace); err != nil {
		return err
	}
	if is == ledger.Owner {
		others, err := t.OwnersBut(workspace, user)
		if err != nil {
			return err
		}
		if others == 0 {
			return ledger.ErrLastOwner
		}
	}
	u, err := t.User(user)
	if err != nil {
		return err
	}
	now, err := t.Now()
	if err == nil && !role.Allows(is) {
		err = endInvitations(t, workspace, u, now)
	}
	if err != nil {
		return err
	}
	line := roleLine(u.Email, is, role)
	if role == "" {
		n, err := t.DropMember(workspace, user)
		if err := one(n, err, "end membership"); err != nil {
			return err
		}
		line = ledger.WorkspaceLine{Action: "member end", Subject: u.Email, Detail: string(is)}
		return told(t, actor, workspace, line)
	}
	if err := t.SetMember(workspace, user, role, now); err != nil {
		return err
	}
	return told(t, actor, workspace, line)
}

// endInvitations ends the open invitations to a workspace that a member made, and those of their email: with one they could
// take back a role that they lost.
func endInvitations(t Tables, workspace uuid.UUID, u *ledger.User, now time.Time) error {
	made := Links{MadeBy: userActor + u.ID.String(), Purpose: ledger.InviteLink, Workspace: workspace}
	if err := t.EndLinks(made, now); err != nil {
		return err
	}
	return t.EndLinks(Links{Folded: ledger.FoldEmail(u.Email), Purpose: ledger.InviteLink, Workspace: workspace}, now)
}
