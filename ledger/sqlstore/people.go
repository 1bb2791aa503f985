package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// hashed reads a column into a hash; an empty one is the zero hash.
type hashed struct{ into *ledger.Hash }

// Scan takes the bytes of a column.
func (h hashed) Scan(from any) error {
	text, ok := from.([]byte)
	if !ok && from != nil || len(text) != 0 && len(text) != len(h.into) {
		return fmt.Errorf("a hash of %d bytes in a column of type %T", len(text), from)
	}
	*h.into = ledger.Hash{}
	copy(h.into[:], text)
	return nil
}

// blob is how a hash is written; the zero hash is empty.
func blob(h ledger.Hash) []byte {
	if h == (ledger.Hash{}) {
		return []byte{}
	}
	return h[:]
}

// Now is the time of the database.
func (t *tx) Now() (time.Time, error) {
	var now int64
	if err := t.row(`SELECT {now}`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return transitions.Clock(now), nil
}

const userColumns = `id, email, name, password, oidc, totp, created, disabled`

func scanUser(scan func(into ...any) error) (u ledger.User, err error) {
	var created, disabled int64
	err = scan(&u.ID, &u.Email, &u.Name, &u.Password, &u.OIDC, &u.TOTP, &created, &disabled)
	u.Created, u.Disabled = transitions.Clock(created), transitions.Clock(disabled)
	return u, err
}

// oneUser reads a user; nil when there is none.
func (t *tx) oneUser(query string, args ...any) (*ledger.User, error) {
	u, err := scanUser(t.row(query, args...).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	return &u, nil
}

// The readings of users.
const (
	userByID    = `SELECT ` + userColumns + ` FROM users WHERE id = ?`
	userByEmail = `SELECT ` + userColumns + ` FROM users WHERE folded = ?`
	userByOIDC  = `SELECT ` + userColumns + ` FROM users WHERE oidc = ? AND oidc <> ''`
	pageOfUsers = `SELECT ` + userColumns + ` FROM users WHERE folded > ? ORDER BY folded LIMIT ?`
)

// User reads one by id; nil when there is none.
func (t *tx) User(id uuid.UUID) (*ledger.User, error) { return t.oneUser(userByID, id[:]) }

// UserOf reads one by email; nil when there is none.
func (t *tx) UserOf(folded string) (*ledger.User, error) {
	return t.oneUser(userByEmail, []byte(folded))
}

// UserOfOIDC reads who has an identity at a provider; nil when nobody does.
func (t *tx) UserOfOIDC(identity string) (*ledger.User, error) {
	return t.oneUser(userByOIDC, identity)
}

// AddUser writes a new user.
func (t *tx) AddUser(u ledger.User) error {
	_, err := t.exec(`INSERT INTO users (`+userColumns+`, folded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, u.ID[:], u.Email, u.Name,
		u.Password, u.OIDC, u.TOTP, transitions.Millis(u.Created), transitions.Millis(u.Disabled), []byte(ledger.FoldEmail(u.Email)))
	if err != nil {
		return fmt.Errorf("write user: %w", err)
	}
	return nil
}

// ChangeUser writes password, OIDC, TOTP and disabled of a user.
func (t *tx) ChangeUser(u ledger.User) (int64, error) {
	return t.exec(`UPDATE users SET password = ?, oidc = ?, totp = ?, disabled = ? WHERE id = ?`, u.Password, u.OIDC, u.TOTP,
		transitions.Millis(u.Disabled), u.ID[:])
}

// Member reads the role of a user in a workspace; "": none.
func (t *tx) Member(workspace, user uuid.UUID) (role ledger.Role, err error) {
	err = t.row(`SELECT role FROM memberships WHERE workspace = ? AND user_id = ?`, workspace[:], user[:]).Scan(&role)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read membership: %w", err)
	}
	return role, nil
}

// The invitations to a workspace that can be used at a time, and how many there are together with the members.
const (
	openInvitations = ` FROM links WHERE workspace = ? AND ends > ?`
	countMembers    = `SELECT (SELECT count(*) FROM memberships WHERE workspace = ?) + (SELECT count(*)` + openInvitations + `)`
	countOwners     = `SELECT count(*) FROM memberships m JOIN users u ON u.id = m.user_id
		WHERE m.workspace = ? AND m.role = 'owner' AND u.disabled = 0 AND m.user_id <> ?`
)

// MembersAndInvited counts the members of a workspace and its open invitations.
func (t *tx) MembersAndInvited(workspace uuid.UUID, now time.Time) (n int, err error) {
	if err = t.row(countMembers, workspace[:], workspace[:], now.UnixMilli()).Scan(&n); err != nil {
		return 0, fmt.Errorf("count members: %w", err)
	}
	return n, nil
}

// OwnersBut counts the owners of a workspace who may sign in, without one.
func (t *tx) OwnersBut(workspace, user uuid.UUID) (n int, err error) {
	if err = t.row(countOwners, workspace[:], user[:]).Scan(&n); err != nil {
		return 0, fmt.Errorf("count owners: %w", err)
	}
	return n, nil
}

// SetMember writes a membership, in place of the one that was.
func (t *tx) SetMember(workspace, user uuid.UUID, role ledger.Role, now time.Time) error {
	_, err := t.exec(`INSERT INTO memberships (workspace, user_id, role, created) VALUES (?, ?, ?, ?)
		ON CONFLICT (workspace, user_id) DO UPDATE SET role = excluded.role`,
		workspace[:], user[:], role, transitions.Millis(now))
	if err != nil {
		return fmt.Errorf("write membership: %w", err)
	}
	return nil
}

// DropMember deletes a membership.
func (t *tx) DropMember(workspace, user uuid.UUID) (int64, error) {
	return t.exec(`DELETE FROM memberships WHERE workspace = ? AND user_id = ?`, workspace[:], user[:])
}

const linkColumns = `id, purpose, workspace, email, role, made_by, created, expires, ends, used_by`

func scanLink(scan func(into ...any) error) (l transitions.LinkRow, err error) {
	var created, expires, ends int64
	err = scan(hashed{&l.ID}, &l.Purpose, &l.Workspace, &l.Email, &l.Role, &l.MadeBy, &created, &expires, &ends,
		hashed{&l.Session})
	l.Created, l.Expires = transitions.Clock(created), transitions.Clock(expires)
	if ends < expires {
		l.Used = transitions.Clock(ends)
	}
	return l, err
}

// LinkRow reads a link; nil when there is none.
func (t *tx) LinkRow(id ledger.Hash) (*transitions.LinkRow, error) {
	l, err := scanLink(t.row(`SELECT `+linkColumns+` FROM links WHERE id = ?`, id[:]).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read link: %w", err)
	}
	return &l, nil
}

// AddLink writes a new link.
func (t *tx) AddLink(l ledger.Link) error {
	_, err := t.exec(`INSERT INTO links (`+linkColumns+`, folded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		l.ID[:], l.Purpose, l.Workspace[:], l.Email, l.Role, l.MadeBy, transitions.Millis(l.Created), transitions.Millis(l.Expires),
		transitions.Millis(l.Expires), []byte{}, []byte(ledger.FoldEmail(l.Email)))
	if err != nil {
		return fmt.Errorf("write link: %w", err)
	}
	return nil
}

// UseLink ends a link that is open.
func (t *tx) UseLink(id, session ledger.Hash, now time.Time) (int64, error) {
	return t.exec(`UPDATE links SET ends = ?, used_by = ? WHERE id = ? AND ends > ?`,
		now.UnixMilli(), blob(session), id[:], now.UnixMilli())
}

// endLinks is how the open links of some are ended.
func endLinks(of transitions.Links, now time.Time) (query string, args []any) {
	query, args = `UPDATE links SET ends = ? WHERE ends > ?`, []any{now.UnixMilli(), now.UnixMilli()}
	where := func(is bool, column string, value any) {
		if is {
			query, args = query+` AND `+column+` = ?`, append(args, value)
		}
	}
	where(of.Folded != "", "folded", []byte(of.Folded))
	where(of.MadeBy != "", "made_by", of.MadeBy)
	where(of.Purpose != "", "purpose", of.Purpose)
	where(of.Workspace != uuid.Nil, "workspace", of.Workspace[:])
	return query, args
}

// EndLinks ends the open links of some.
func (t *tx) EndLinks(of transitions.Links, now time.Time) error {
	query, args := endLinks(of, now)
	if _, err := t.exec(query, args...); err != nil {
		return fmt.Errorf("end links: %w", err)
	}
	return nil
}

// LogIn writes a line of the log of a workspace.
func (t *tx) LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error {
	if l.ID == uuid.Nil {
		l.ID = newLine()
	}
	_, err := t.exec(`INSERT INTO workspace_log (id, workspace, created, actor, action, subject, detail)
		VALUES (?, ?, {now}, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		l.ID[:], workspace[:], l.Actor, l.Action, l.Subject, l.Detail)
	if err != nil {
		return fmt.Errorf("write the log of a workspace: %w", err)
	}
	return nil
}

// LinkByID reads a link that can be used, and says whether there is a user with its email.
func (s *Store) LinkByID(ctx context.Context, id ledger.Hash) (l ledger.Link, known bool, err error) {
	var row transitions.LinkRow
	var user sql.Null[[]byte]
	var disabled, now int64
	err = s.view(ctx, func(t *tx) error {
		row, err = scanLink(func(into ...any) error {
			return t.row(`SELECT `+linkOf+`, u.id, coalesce(u.disabled, 0), {now}
				FROM links l LEFT JOIN users u ON u.folded = l.folded WHERE l.id = ?`, id[:]).
				Scan(append(into, &user, &disabled, &now)...)
		})
		return err
	})
	if errors.Is(err, sql.ErrNoRows) || err == nil && (!row.Open(transitions.Clock(now)) || disabled != 0) {
		err = ledger.ErrNoSuchLink
	}
	if err != nil {
		return ledger.Link{}, false, fmt.Errorf("read a link: %w", err)
	}
	return row.Link, user.Valid, nil
}

// linkOf are linkColumns where another table stands beside.
var linkOf = "l." + strings.ReplaceAll(linkColumns, ", ", ", l.")

// openLinks are the invitations to a workspace that can be used now.
const openLinks = `SELECT ` + linkColumns + ` FROM links WHERE workspace = ? AND ends > {now}`

// OpenLinks lists the invitations to a workspace that can be used, newest first.
func (s *Store) OpenLinks(ctx context.Context, workspace uuid.UUID) (list []ledger.Link, err error) {
	if workspace == uuid.Nil {
		return nil, nil // the links for passwords are of no workspace
	}
	err = s.view(ctx, func(t *tx) error {
		return t.each(func(rows *sql.Rows) error {
			l, err := scanLink(rows.Scan)
			list = append(list, l.Link)
			return err
		}, openLinks, workspace[:])
	})
	if err != nil {
		return nil, fmt.Errorf("list the invitations to workspace %s: %w", workspace, err)
	}
	slices.SortFunc(list, func(a, b ledger.Link) int {
		return cmp.Or(b.Created.Compare(a.Created), slices.Compare(b.ID[:], a.ID[:]))
	})
	return list, nil
}

// UserByEmail finds who signs in.
func (s *Store) UserByEmail(ctx context.Context, email string) (ledger.User, error) {
	var u *ledger.User
	err := ledger.CheckEmail(email)
	if err == nil {
		err = s.view(ctx, func(t *tx) (err error) {
			u, err = t.UserOf(ledger.FoldEmail(email))
			return err
		})
	}
	if errors.Is(err, ledger.ErrIllegal) || err == nil && u == nil {
		err = ledger.ErrNoSuchUser // what is no email, no database need be asked for
	}
	if err != nil {
		return ledger.User{}, fmt.Errorf("read a user: %w", err)
	}
	return *u, nil
}

// Users lists all users by email.
func (s *Store) Users(ctx context.Context, after string, limit int) (list []ledger.User, err error) {
	if limit < 1 || limit > ledger.UsersMax {
		return nil, fmt.Errorf("list %d users, 1 to %d are allowed: %w", limit, ledger.UsersMax, ledger.ErrIllegal)
	}
	err = s.view(ctx, func(t *tx) error {
		return t.each(func(rows *sql.Rows) error {
			u, err := scanUser(rows.Scan)
			list = append(list, u)
			return err
		}, pageOfUsers, []byte(ledger.FoldEmail(after)), limit)
	})
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return list, nil
}

// members are those of a workspace.
const members = `SELECT m.user_id, u.email, u.name, m.role, m.created, u.seen, u.disabled, w.name
	FROM memberships m JOIN users u ON u.id = m.user_id JOIN workspaces w ON w.id = m.workspace WHERE m.workspace = ?`

// Members lists the members of a workspace by email.
func (s *Store) Members(ctx context.Context, workspace uuid.UUID) (list []ledger.Membership, err error) {
	err = s.view(ctx, func(t *tx) error {
		if _, err := t.Account(workspace); err != nil {
			return err
		}
		return t.each(func(rows *sql.Rows) error {
			m := ledger.Membership{Workspace: workspace}
			var created, seen, disabled int64
			err := rows.Scan(&m.User, &m.Email, &m.Name, &m.Role, &created, &seen, &disabled, &m.WorkspaceName)
			m.Created, m.Seen, m.Disabled = transitions.Clock(created), transitions.Clock(seen), disabled != 0
			list = append(list, m)
			return err
		}, members, workspace[:])
	})
	if err != nil {
		return nil, fmt.Errorf("list the members of workspace %s: %w", workspace, err)
	}
	slices.SortFunc(list, func(a, b ledger.Membership) int {
		return cmp.Compare(ledger.FoldEmail(a.Email), ledger.FoldEmail(b.Email))
	})
	return list, nil
}

// LogWorkspace writes a line about what the ledger does not do itself.
func (s *Store) LogWorkspace(ctx context.Context, workspace uuid.UUID, l ledger.WorkspaceLine) error {
	l.Actor = ledger.Actor(ctx)
	err := s.view(ctx, func(t *tx) error {
		_, err := t.Account(workspace)
		return err
	})
	if err == nil {
		err = l.Check()
	}
	if err == nil {
		if l.ID == uuid.Nil {
			l.ID = newLine() // before the transaction, which may run several times
		}
		err = s.update(ctx, func(t *tx) error { return t.LogIn(workspace, l) })
	}
	if err != nil {
		return fmt.Errorf("write the log of workspace %s: %w", workspace, err)
	}
	return nil
}

const (
	workspaceLines       = `SELECT id, created, actor, action, subject, detail FROM workspace_log WHERE workspace = ?`
	newestWorkspaceLines = workspaceLines + pageOfLog
	olderWorkspaceLines  = workspaceLines + ` AND (created, id) < (?, ?)` + pageOfLog
)

// WorkspaceLog gives one page, newest first, as one range read of an index.
func (s *Store) WorkspaceLog(ctx context.Context, q ledger.WorkspaceLogQuery) (page []ledger.WorkspaceLine, err error) {
	if q.Limit < 1 || q.Limit > ledger.WorkspaceLogMax {
		return nil, fmt.Errorf("read the log of workspace %s: %d lines, 1 to %d are allowed: %w", q.Workspace, q.Limit,
			ledger.WorkspaceLogMax, ledger.ErrIllegal)
	}
	query, args := newestWorkspaceLines, []any{q.Workspace[:], q.Limit}
	if q.After != nil {
		query, args = olderWorkspaceLines, []any{q.Workspace[:], transitions.Millis(q.After.Created), q.After.ID[:], q.Limit}
	}
	err = s.view(ctx, func(t *tx) error {
		err := t.each(func(rows *sql.Rows) error {
			var l ledger.WorkspaceLine
			var created int64
			err := rows.Scan(&l.ID, &created, &l.Actor, &l.Action, &l.Subject, &l.Detail)
			l.At = transitions.Clock(created)
			page = append(page, l)
			return err
		}, query, args...)
		if err != nil {
			return err
		}
		return t.emails(page)
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of workspace %s: %w", q.Workspace, err)
	}
	return page, nil
}

// emails fills in those of the users who are the actors of lines.
func (t *tx) emails(page []ledger.WorkspaceLine) error {
	of := map[uuid.UUID]string{}
	var users []uuid.UUID
	for _, l := range page {
		if id, is := actingUser(l); is {
			if _, known := of[id]; !known {
				of[id] = ""
				users = append(users, id)
			}
		}
	}
	err := inHandfuls(users, func(part []uuid.UUID) error {
		args := make([]any, 0, len(part))
		for _, id := range part {
			args = append(args, id[:])
		}
		return t.each(func(rows *sql.Rows) error {
			var id uuid.UUID
			var email string
			err := rows.Scan(&id, &email)
			of[id] = email
			return err
		}, `SELECT id, email FROM users WHERE id IN (?`+strings.Repeat(`, ?`, len(part)-1)+`)`, args...)
	})
	for i := range page {
		if id, is := actingUser(page[i]); is {
			page[i].Email = of[id]
		}
	}
	return err
}

// actingUser is the user who is the actor of a line.
func actingUser(l ledger.WorkspaceLine) (uuid.UUID, bool) {
	text, is := strings.CutPrefix(l.Actor, "user:")
	id, err := uuid.Parse(text)
	return id, is && err == nil
}
