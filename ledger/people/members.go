package people

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// The invitations to a workspace that can be used at a time, and how many there are together with the members.
const (
	openInvitations = ` FROM links WHERE workspace = ? AND ends > ?`
	countMembers    = `SELECT (SELECT count(*) FROM memberships WHERE workspace = ?) +
		(SELECT count(*)` + openInvitations + `)`
	activeOwners = `SELECT count(*) FROM memberships m JOIN users u ON u.id = m.user_id
		WHERE m.workspace = ? AND m.role = 'owner' AND u.disabled = 0 AND m.user_id `
	countOwners     = activeOwners + `<> ?`
	countOwnerships = activeOwners + `= ?`
)

// readRole reads the role of a user in a workspace; "": none.
func (t rows) readRole(workspace, user uuid.UUID) (role ledger.Role, err error) {
	return engine.Value[ledger.Role](t, "read membership",
		`SELECT role FROM memberships WHERE workspace = ? AND user_id = ?`, workspace[:], user[:])
}

// membersAndInvited counts the members of a workspace and its open invitations.
func (t rows) membersAndInvited(workspace uuid.UUID, now time.Time) (n int, err error) {
	return engine.Value[int](t, "count members", countMembers, workspace[:], workspace[:], now.UnixMilli())
}

// ownersBut counts the owners of a workspace who may sign in, without one.
func (t rows) ownersBut(workspace, user uuid.UUID) (n int, err error) {
	return engine.Value[int](t, "count owners", countOwners, workspace[:], user[:])
}

// setMember writes a membership, in place of the one that was.
func (t rows) setMember(workspace, user uuid.UUID, role ledger.Role, now time.Time) error {
	_, err := t.Exec(`INSERT INTO memberships (workspace, user_id, role, created) VALUES (?, ?, ?, ?)
		ON CONFLICT (workspace, user_id) DO UPDATE SET role = excluded.role`,
		workspace[:], user[:], role, ledger.Millis(now))
	return ledger.Wrap(err, "write membership")
}

// dropMember deletes a membership.
func (t rows) dropMember(workspace, user uuid.UUID) (int64, error) {
	return t.Exec(`DELETE FROM memberships WHERE workspace = ? AND user_id = ?`, workspace[:], user[:])
}

// members are those of a workspace.
const members = `SELECT m.user_id, u.email, u.name, m.role, m.created, u.seen, u.disabled, w.name
	FROM memberships m JOIN users u ON u.id = m.user_id JOIN workspaces w ON w.id = m.workspace WHERE m.workspace = ?`

// Members lists the members of a workspace by email.
func (b *Book) Members(ctx context.Context, workspace uuid.UUID) ([]ledger.Membership, error) {
	list, err := ledger.Run(ctx, b.runView, func(t rows) ([]ledger.Membership, error) {
		if _, err := t.Account(workspace); err != nil {
			return nil, err
		}
		return engine.List(t, "read", func(scan engine.Scan) (ledger.Membership, error) {
			m := ledger.Membership{Workspace: workspace}
			var disabled time.Time
			err := scan(&m.User, &m.Email, &m.Name, &m.Role, engine.At(&m.Created), engine.At(&m.Seen),
				engine.At(&disabled), &m.WorkspaceName)
			m.Disabled = !disabled.IsZero()
			return m, err
		}, members, workspace[:])
	}, "list the members of workspace %s", workspace)
	slices.SortFunc(list, func(a, b ledger.Membership) int {
		return cmp.Compare(ledger.FoldEmail(a.Email), ledger.FoldEmail(b.Email))
	})
	return list, err
}

// userActor is what the actor of a user begins with.
const userActor = "user:"

// onlyOwner refuses a user who is no owner of a workspace, or is disabled: a node may believe for some seconds that
// they may do what owners do. ErrNotOwner.
func onlyOwner(t rows, actor string, workspace uuid.UUID) error {
	text, is := strings.CutPrefix(actor, userActor)
	if !is {
		return nil
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return ledger.ErrNotOwner
	}
	owns, err := engine.Value[int](t, "read ownership", countOwnerships, workspace[:], id[:])
	if err == nil && owns == 0 {
		err = ledger.ErrNotOwner
	}
	return err
}

// join makes the user of an invitation a member, or gives a member the role if it is the higher.
func join(t rows, actor string, l *linkRow, u *ledger.User, now time.Time) error {
	is, err := t.readRole(l.Workspace, u.ID)
	if err != nil || is.Allows(l.Role) {
		return err
	}
	if err := t.setMember(l.Workspace, u.ID, l.Role, now); err != nil {
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

// SetRole changes a member's role.
func (b *Book) SetRole(ctx context.Context, workspace, user uuid.UUID, role ledger.Role) error {
	err := b.isWorkspace(ctx, workspace)
	if err == nil {
		err = b.runUpdate(ctx, func(t rows) error { return setRole(t, ledger.Actor(ctx), workspace, user, role) })
	}
	return ledger.Wrap(err, "set the role of user %s in workspace %s", user, workspace)
}

func setRole(t rows, actor string, workspace, user uuid.UUID, role ledger.Role) error {
	is, err := t.readRole(workspace, user)
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
		others, err := t.ownersBut(workspace, user)
		if err != nil {
			return err
		}
		if others == 0 {
			return ledger.ErrLastOwner
		}
	}
	u, err := t.readUser(user)
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
		n, err := t.dropMember(workspace, user)
		if err := one(n, err, "end membership"); err != nil {
			return err
		}
		line = ledger.WorkspaceLine{Action: "member end", Subject: u.Email, Detail: string(is)}
		return told(t, actor, workspace, line)
	}
	if err := t.setMember(workspace, user, role, now); err != nil {
		return err
	}
	return told(t, actor, workspace, line)
}

// endInvitations ends the open invitations to a workspace that a member made, and those of their email: with one
// they could take back a role that they lost.
func endInvitations(t rows, workspace uuid.UUID, u *ledger.User, now time.Time) error {
	made := links{madeBy: userActor + u.ID.String(), purpose: ledger.InviteLink, workspace: workspace}
	if err := t.endLinks(made, now); err != nil {
		return err
	}
	return t.endLinks(links{folded: ledger.FoldEmail(u.Email), purpose: ledger.InviteLink, workspace: workspace}, now)
}
