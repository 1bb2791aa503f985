package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// links selects the links of an email or of a maker, one of which is required; further zero fields match all.
type links struct {
	folded    string // email
	madeBy    string
	purpose   ledger.Purpose
	workspace uuid.UUID
}

type storedLink struct {
	ledger.Link
	session ledger.Hash // the session that it began; zero: none
}

const linkColumns = `id, purpose, workspace, email, role, made_by, created, expires, ends, used_by`

func scanLink(scan engine.Scan) (l storedLink, err error) {
	var ends time.Time
	err = scan(hashed{&l.ID}, &l.Purpose, &l.Workspace, &l.Email, &l.Role, &l.MadeBy, engine.At(&l.Created),
		engine.At(&l.Expires), engine.At(&ends), hashed{&l.session})
	if ends.Before(l.Expires) {
		l.Used = ends
	}
	return l, err
}

// readLink reads a link; nil when there is none.
func (t peopleRows) readLink(id ledger.Hash) (*storedLink, error) {
	return engine.Find(t, "read link", scanLink, `SELECT `+linkColumns+` FROM links WHERE id = ?`, id[:])
}

func (t peopleRows) addLink(l ledger.Link) error {
	_, err := t.Exec(`INSERT INTO links (`+linkColumns+`, folded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		l.ID[:], l.Purpose, l.Workspace[:], l.Email, l.Role, l.MadeBy, ledger.Millis(l.Created), ledger.Millis(l.Expires),
		ledger.Millis(l.Expires), []byte{}, []byte(ledger.FoldEmail(l.Email)))
	return ledger.Wrap(err, "write link")
}

// useLink ends an open link.
func (t peopleRows) useLink(id, session ledger.Hash, now time.Time) (int64, error) {
	return t.Exec(`UPDATE links SET ends = ?, used_by = ? WHERE id = ? AND ends > ?`,
		now.UnixMilli(), blob(session), id[:], now.UnixMilli())
}

// endStatement returns the statement that ends the open ones.
func (of links) endStatement(now time.Time) (query string, args []any) {
	query, args = `UPDATE links SET ends = ? WHERE ends > ?`, []any{now.UnixMilli(), now.UnixMilli()}
	where := func(is bool, column string, value any) {
		if is {
			query, args = query+` AND `+column+` = ?`, append(args, value)
		}
	}
	where(of.folded != "", "folded", []byte(of.folded))
	where(of.madeBy != "", "made_by", of.madeBy)
	where(of.purpose != "", "purpose", of.purpose)
	where(of.workspace != uuid.Nil, "workspace", of.workspace[:])
	return query, args
}

// endLinks ends the selected open links.
func (t peopleRows) endLinks(of links, now time.Time) error {
	query, args := of.endStatement(now)
	_, err := t.Exec(query, args...)
	return ledger.Wrap(err, "end links")
}

// MakeLink stores a link.
func (s people) MakeLink(ctx context.Context, l ledger.Link) (ledger.Link, error) {
	if !personal(l) {
		if err := s.isWorkspace(ctx, l.Workspace); err != nil {
			return ledger.Link{}, ledger.Wrap(err, "make a link")
		}
	}
	return ledger.Run(ctx, s.update, func(t *tx) (ledger.Link, error) { return makeLink(t, ledger.Actor(ctx), l) },
		"make a link")
}

func makeLink(t *tx, actor string, l ledger.Link) (ledger.Link, error) {
	known, err := t.readLink(l.ID)
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
	action := "link create"
	if personal(l) {
		action = string(l.Purpose) + " link create"
	}
	older := links{folded: ledger.FoldEmail(l.Email), purpose: l.Purpose, workspace: l.Workspace}
	if err := t.endLinks(older, now); err != nil {
		return l, err
	}
	l.Created, l.Expires, l.Used = now, now.Add(ledger.LinkLife), time.Time{}
	if err := t.addLink(l); err != nil {
		return l, err
	}
	line := ledger.WorkspaceLine{Action: action, Subject: l.Email, Detail: string(l.Role)}
	return l, logChange(t, actor, l.Workspace, line)
}

func personal(l ledger.Link) bool {
	return l.Purpose == ledger.PasswordLink || l.Purpose == ledger.SignInLink
}

// mayBeInvited refuses a link that nobody could use, or that its maker may not make. ErrNoSuchUser, ErrNotOwner,
// ErrTooManyMembers.
func mayBeInvited(t *tx, l ledger.Link, now time.Time) error {
	if personal(l) {
		u, err := t.userOf(l.Email)
		if err == nil && (u == nil || !u.Disabled.IsZero()) {
			err = ledger.ErrNoSuchUser
		}
		return err
	}
	if err := onlyOwner(t, l.MadeBy, l.Workspace); err != nil {
		return err
	}
	n, err := engine.Value[int](t, "count members", countMembers, l.Workspace[:], l.Workspace[:], now.UnixMilli())
	if err == nil && n >= ledger.MembersMax {
		err = ledger.ErrTooManyMembers
	}
	return err
}

// AcceptLink uses a link and begins a session.
func (s people) AcceptLink(ctx context.Context, a ledger.Accept) (ledger.SignedIn, error) {
	if err := s.update(ctx, func(t *tx) error { return acceptLink(ctx, t, a) }); err != nil {
		return ledger.SignedIn{}, fmt.Errorf("accept a link: %w", err)
	}
	return s.signedIn(ctx, a.Session.ID, forEver, ledger.ErrNoSuchLink, "accept a link")
}

func acceptLink(ctx context.Context, t *tx, a ledger.Accept) error {
	l, err := t.readLink(a.Link)
	if err != nil {
		return err
	}
	if l == nil {
		return ledger.ErrNoSuchLink
	}
	if l.session != (ledger.Hash{}) && l.session == a.Session.ID {
		return nil // this call, or an earlier run of it, has used it
	}
	now, err := t.Now()
	if err != nil {
		return err
	}
	u, err := t.userOf(l.Email)
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
	if u, err = userOfLink(ctx, t, l, u, a, now); err != nil {
		return err
	}
	actor := cmp.Or(ledger.Actor(ctx), userActor+u.ID.String())
	if l.Purpose == ledger.InviteLink {
		if err := joinWorkspace(t, actor, l, u, now); err != nil {
			return err
		}
	}
	n, err := t.useLink(l.ID, a.Session.ID, now)
	if err := one(n, err, "use link"); err != nil {
		return err
	}
	a.Session.User = u.ID
	return beginSession(ctx, t, a.Session, u, now)
}

// userOfLink makes or changes the user of a link, and returns the user. An invitation changes no existing user,
// because its maker also has the link.
func userOfLink(ctx context.Context, t *tx, l *storedLink, u *ledger.User, a ledger.Accept, now time.Time) (
	*ledger.User, error) {
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
		return u, t.writeUser(ctx, u, now, signInChange{ends: true})
	}
	if err := mayBeNew(t, a); err != nil {
		return nil, err
	}
	u = &ledger.User{ID: a.User, Email: l.Email, Name: a.Name, Password: a.Password, OIDC: a.OIDC, Created: now}
	return u, t.addUser(*u)
}

// mayBeNew refuses an invalid new user. ErrIllegal, ErrIdentityTaken.
func mayBeNew(t *tx, a ledger.Accept) error {
	if a.User == uuid.Nil || len(a.Name) > ledger.NameMax {
		return fmt.Errorf("a user without an id, or a name of more than %d bytes: %w", ledger.NameMax, ledger.ErrIllegal)
	}
	if err := ledger.CheckName(a.Name); err != nil {
		return err
	}
	taken, err := t.readUser(a.User)
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

// EndLink ends an invitation to a workspace.
func (s people) EndLink(ctx context.Context, workspace uuid.UUID, id ledger.Hash) error {
	return ledger.Wrap(s.update(ctx, func(t *tx) error {
		l, err := t.readLink(id)
		if err != nil {
			return err
		}
		if l == nil || l.Workspace != workspace || l.Purpose != ledger.InviteLink || l.session != (ledger.Hash{}) {
			return ledger.ErrNoSuchLink
		}
		now, err := t.Now()
		if err != nil {
			return err
		}
		n, err := t.useLink(id, ledger.Hash{}, now)
		if err != nil || n == 0 {
			return err // it has already ended
		}
		return logChange(t, ledger.Actor(ctx), workspace, ledger.WorkspaceLine{Action: "link end", Subject: l.Email,
			Detail: string(l.Role)})
	}), "end a link of workspace %s", workspace)
}

// LinkByID returns an open link, and whether a user with its email exists.
func (s people) LinkByID(ctx context.Context, id ledger.Hash) (l ledger.Link, known bool, err error) {
	var user sql.Null[[]byte]
	var disabled, now time.Time
	l, err = ledger.Run(ctx, s.view, func(t *tx) (ledger.Link, error) {
		row, err := engine.Find(t, "ask", func(scan engine.Scan) (storedLink, error) {
			return scanLink(func(into ...any) error {
				return scan(append(into, &user, engine.At(&disabled), engine.At(&now))...)
			})
		}, `SELECT `+linkOf+`, u.id, coalesce(u.disabled, 0), {now}
			FROM links l LEFT JOIN users u ON u.folded = l.folded WHERE l.id = ?`, id[:])
		if err == nil && (row == nil || !row.Open(now) || !disabled.IsZero()) {
			err = ledger.ErrNoSuchLink
		}
		if err != nil {
			return ledger.Link{}, err
		}
		return row.Link, nil
	}, "read a link")
	return l, err == nil && user.Valid, err
}

// linkOf are linkColumns for a join.
var linkOf = "l." + strings.ReplaceAll(linkColumns, ", ", ", l.")

const openLinks = `SELECT ` + linkColumns + ` FROM links WHERE workspace = ? AND ends > {now}`

// OpenLinks lists the open invitations to a workspace, newest first.
func (s people) OpenLinks(ctx context.Context, workspace uuid.UUID) ([]ledger.Link, error) {
	if workspace == uuid.Nil {
		return nil, nil // password links have no workspace
	}
	return s.newestLinks(ctx, openLinks, workspace[:])
}

const invitations = `SELECT ` + linkColumns + ` FROM links WHERE folded = ? AND ends > {now} AND purpose = 'invite'`

// Invitations lists the open invitations of an email, newest first.
func (s people) Invitations(ctx context.Context, email string) ([]ledger.Link, error) {
	if ledger.CheckEmail(email) != nil {
		return nil, nil // an invalid email has none
	}
	return s.newestLinks(ctx, invitations, []byte(ledger.FoldEmail(email)))
}

// newestLinks lists links, newest first.
func (s people) newestLinks(ctx context.Context, query string, arg any) ([]ledger.Link, error) {
	list, err := ledger.Run(ctx, s.view, func(t *tx) ([]ledger.Link, error) {
		return engine.List(t, "read", func(scan engine.Scan) (ledger.Link, error) {
			l, err := scanLink(scan)
			return l.Link, err
		}, query, arg)
	}, "list invitations")
	slices.SortFunc(list, func(a, b ledger.Link) int {
		return cmp.Or(b.Created.Compare(a.Created), slices.Compare(b.ID[:], a.ID[:]))
	})
	return list, err
}

// The open invitations to a workspace, and their number with that of the members.
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
func (t peopleRows) readRole(workspace, user uuid.UUID) (role ledger.Role, err error) {
	return engine.Value[ledger.Role](t, "read membership",
		`SELECT role FROM memberships WHERE workspace = ? AND user_id = ?`, workspace[:], user[:])
}

// setMember writes a membership and replaces an earlier one.
func (t peopleRows) setMember(workspace, user uuid.UUID, role ledger.Role, now time.Time) error {
	_, err := t.Exec(`INSERT INTO memberships (workspace, user_id, role, created) VALUES (?, ?, ?, ?)
		ON CONFLICT (workspace, user_id) DO UPDATE SET role = excluded.role`, workspace[:], user[:], role, ledger.Millis(now))
	return ledger.Wrap(err, "write membership")
}

const members = `SELECT m.user_id, u.email, u.name, m.role, m.created, u.seen, u.disabled, w.name
	FROM memberships m JOIN users u ON u.id = m.user_id JOIN workspaces w ON w.id = m.workspace WHERE m.workspace = ?`

// Members lists the members of a workspace by email.
func (s people) Members(ctx context.Context, workspace uuid.UUID) ([]ledger.Membership, error) {
	list, err := ledger.Run(ctx, s.view, func(t *tx) ([]ledger.Membership, error) {
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

// userActor is the prefix of a user's actor.
const userActor = "user:"

// onlyOwner refuses a user who is disabled or not an owner of a workspace: a node's knowledge of owners may be
// seconds old. ErrNotOwner.
func onlyOwner(t *tx, actor string, workspace uuid.UUID) error {
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

// joinWorkspace makes the user of an invitation a member, or gives a member the role if it is higher.
func joinWorkspace(t *tx, actor string, l *storedLink, u *ledger.User, now time.Time) error {
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
	return logChange(t, actor, l.Workspace, line)
}

func roleLine(email string, old, now ledger.Role) ledger.WorkspaceLine {
	return ledger.WorkspaceLine{Action: "member role", Subject: email, Detail: string(old) + " to " + string(now)}
}

// SetRole changes a member's role.
func (s people) SetRole(ctx context.Context, workspace, user uuid.UUID, role ledger.Role) error {
	err := s.isWorkspace(ctx, workspace)
	if err == nil {
		err = s.update(ctx, func(t *tx) error { return setRole(t, ledger.Actor(ctx), workspace, user, role) })
	}
	return ledger.Wrap(err, "set the role of user %s in workspace %s", user, workspace)
}

func setRole(t *tx, actor string, workspace, user uuid.UUID, role ledger.Role) error {
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
		others, err := engine.Value[int](t, "count owners", countOwners, workspace[:], user[:])
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
		n, err := t.Exec(`DELETE FROM memberships WHERE workspace = ? AND user_id = ?`, workspace[:], user[:])
		if err := one(n, err, "end membership"); err != nil {
			return err
		}
		line = ledger.WorkspaceLine{Action: "member end", Subject: u.Email, Detail: string(is)}
		return logChange(t, actor, workspace, line)
	}
	if err := t.setMember(workspace, user, role, now); err != nil {
		return err
	}
	return logChange(t, actor, workspace, line)
}

// endInvitations ends the open invitations to a workspace that a member made or got: with one the member could
// regain a lost role.
func endInvitations(t *tx, workspace uuid.UUID, u *ledger.User, now time.Time) error {
	made := links{madeBy: userActor + u.ID.String(), purpose: ledger.InviteLink, workspace: workspace}
	if err := t.endLinks(made, now); err != nil {
		return err
	}
	return t.endLinks(links{folded: ledger.FoldEmail(u.Email), purpose: ledger.InviteLink, workspace: workspace}, now)
}
