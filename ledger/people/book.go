package people

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// Tx is one transaction or reading of the ledger's database. It is for one goroutine.
type Tx interface {
	// Exec runs a statement and returns the number of changed rows.
	Exec(statement string, args ...any) (int64, error)
	// Row returns a query for at most one row: sql.ErrNoRows from Scan when there is none.
	Row(query string, args ...any) engine.Row
	// Each calls scan for each row of a query.
	Each(scan func(rows *sql.Rows) error, query string, args ...any) error

	// Now returns the time of the database.
	Now() (time.Time, error)
	// Account returns ledger.ErrNoSuchWorkspace for an unknown workspace.
	Account(workspace uuid.UUID) (ledger.Balance, error)
	// LogIn writes a line of a workspace's log, and Log one of the operator log.
	LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error
	Log(l ledger.LogLine) error
}

// Database runs transactions, as transitions.Database does.
type Database interface {
	UpdatePeople(ctx context.Context, do func(t Tx) error) error
	ViewPeople(ctx context.Context, do func(t Tx) error) error
}

// Book is the part of a ledger.Book about people. Safe for concurrent use if its database is.
type Book struct{ db Database }

// New returns the part about people on a database.
func New(db Database) *Book { return &Book{db} }

// rows are the statements of this package in one transaction.
type rows struct{ Tx }

func (b *Book) runUpdate(ctx context.Context, do func(t rows) error) error {
	return b.db.UpdatePeople(ctx, func(t Tx) error { return do(rows{t}) })
}

func (b *Book) runView(ctx context.Context, do func(t rows) error) error {
	return b.db.ViewPeople(ctx, func(t Tx) error { return do(rows{t}) })
}

// operator is the actor of changes by the command line.
const operator = "operator"

// logChange logs a change: a line in the log of its workspace, and a line in the operator log when an operator made it
// or it has no workspace.
func logChange(t rows, actor string, workspace uuid.UUID, l ledger.WorkspaceLine) error {
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

// isWorkspace refuses an unknown workspace. It is called before a transaction: workspaces are never deleted, and
// reading their row inside a transaction would conflict with movements of credits. ErrNoSuchWorkspace.
func (b *Book) isWorkspace(ctx context.Context, workspace uuid.UUID) error {
	return b.runView(ctx, func(t rows) error {
		_, err := t.Account(workspace)
		return err
	})
}

func checkBatch(list []ledger.Hash) error {
	if len(list) > ledger.BatchMax {
		return fmt.Errorf("%d at once, %d are allowed: %w", len(list), ledger.BatchMax, ledger.ErrIllegal)
	}
	return nil
}

// one checks that a conditional change met its row.
func one(n int64, err error, what string) error {
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows changed, 1 expected", n)
	}
	return ledger.Wrap(err, "%s", what)
}

// hashed reads a column into a hash; an empty one is the zero hash.
type hashed struct{ into *ledger.Hash }

// Scan reads the bytes of a column.
func (h hashed) Scan(from any) error {
	text, ok := from.([]byte)
	if !ok && from != nil || len(text) != 0 && len(text) != len(h.into) {
		return fmt.Errorf("a hash of %d bytes in a column of type %T", len(text), from)
	}
	*h.into = ledger.Hash{}
	copy(h.into[:], text)
	return nil
}

func hashArg(h ledger.Hash) any { return h[:] }

// blob returns the stored form of a hash; the zero hash is empty.
func blob(h ledger.Hash) []byte {
	if h == (ledger.Hash{}) {
		return []byte{}
	}
	return h[:]
}

// Query is a statement and its expected index, or the columns of a key without a name.
type Query struct{ Name, Text, Index string }

// Queries are the frequent queries of requests. A test checks their plans on the databases.
var Queries = []Query{
	{"what a session may do", mayDo, "memberships_user"},
	{"sessions of a user", heldSessions, "user_sessions_user"},
	{"open invitations", openLinks, "links_workspace"},
	{"members and invitations", countMembers, "links_workspace"},
	{"links of somebody", endQuery(links{folded: "x"}), "links_folded"},
	{"links for a password of somebody", endQuery(links{folded: "x", purpose: ledger.PasswordLink}), "links_folded"},
	{"invitations to a workspace that somebody made", endQuery(links{madeBy: "x", workspace: uuid.New()}), "links_workspace"},
	{"the newest of a workspace's log", newestWorkspaceLines, "workspace_log_newest"},
	{"a workspace's log before a line", olderWorkspaceLines, "workspace_log_newest"},
	{"who has an email", userByEmail, "users by email"},
	{"users after an email", pageOfUsers, "users by email"},
	{"who signs in by a provider", userByOIDC, "users_oidc"},
	{"invitations of somebody", invitations, "links_folded"},
}

func endQuery(of links) string {
	query, _ := of.endStatement(time.Time{})
	return query
}

// LogWorkspace writes a line about an action outside the ledger.
func (b *Book) LogWorkspace(ctx context.Context, workspace uuid.UUID, l ledger.WorkspaceLine) error {
	l.Actor = ledger.Actor(ctx)
	err := b.isWorkspace(ctx, workspace)
	if err == nil {
		err = l.Check()
	}
	if err == nil {
		if l.ID == uuid.Nil {
			l.ID = uuid.Must(uuid.NewV7()) // before the transaction, which may run several times
		}
		err = b.runUpdate(ctx, func(t rows) error { return t.LogIn(workspace, l) })
	}
	return ledger.Wrap(err, "write the log of workspace %s", workspace)
}

const (
	pageOfLog            = ` ORDER BY created DESC, id DESC LIMIT ?`
	workspaceLines       = `SELECT id, created, actor, action, subject, detail FROM workspace_log WHERE workspace = ?`
	newestWorkspaceLines = workspaceLines + pageOfLog
	olderWorkspaceLines  = workspaceLines + ` AND (created, id) < (?, ?)` + pageOfLog
)

// WorkspaceLog returns one page, newest first, as one range read of an index.
func (b *Book) WorkspaceLog(ctx context.Context, q ledger.WorkspaceLogQuery) ([]ledger.WorkspaceLine, error) {
	if q.Limit < 1 || q.Limit > ledger.WorkspaceLogMax {
		return nil, fmt.Errorf("read the log of workspace %s: %d lines, 1 to %d are allowed: %w", q.Workspace, q.Limit,
			ledger.WorkspaceLogMax, ledger.ErrIllegal)
	}
	query, args := newestWorkspaceLines, []any{q.Workspace[:], q.Limit}
	if q.After != nil {
		query, args = olderWorkspaceLines, []any{q.Workspace[:], ledger.Millis(q.After.Created), q.After.ID[:], q.Limit}
	}
	return ledger.Run(ctx, b.runView, func(t rows) ([]ledger.WorkspaceLine, error) {
		page, err := engine.List(t, "list lines", func(scan engine.Scan) (l ledger.WorkspaceLine, err error) {
			err = scan(&l.ID, engine.At(&l.At), &l.Actor, &l.Action, &l.Subject, &l.Detail)
			return l, err
		}, query, args...)
		if err == nil {
			err = t.fillEmails(page)
		}
		return page, err
	}, "read the log of workspace %s", q.Workspace)
}

// fillEmails fills in the emails of users who are actors.
func (t rows) fillEmails(page []ledger.WorkspaceLine) error {
	of := map[uuid.UUID]string{}
	var users []uuid.UUID
	for _, l := range page {
		if id, is := ledger.UserOf(l.Actor); is {
			if _, known := of[id]; !known {
				of[id] = ""
				users = append(users, id)
			}
		}
	}
	err := engine.In(users, func(id uuid.UUID) any { return id[:] }, func(in string, ids []any) error {
		emails, err := engine.Pairs[uuid.UUID, string](t, "read emails", `SELECT id, email FROM users WHERE id`+in, ids...)
		maps.Copy(of, emails)
		return err
	})
	for i := range page {
		if id, is := ledger.UserOf(page[i].Actor); is {
			page[i].Email = of[id]
		}
	}
	return err
}
