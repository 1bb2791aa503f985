package sqlstore

import (
	"context"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// people is the part of a Store about people who sign in to the pages: users, memberships, one-time links, sessions,
// failed sign-ins and the log of a workspace. Every call may be run again: by the caller's id (of a link, a session, a
// state of codes) it finds what an earlier run did, and does nothing more. No credit moves here.
type people struct{ *base }

// operatorActor is the actor of changes by the command line.
const operatorActor = "operator"

// logChange logs a change: a line in the log of its workspace, and a line in the operator log when an operator made it
// or it has no workspace.
func logChange(t *tx, actor string, workspace uuid.UUID, l ledger.WorkspaceLine) error {
	l.Actor = actor
	if err := l.Check(); err != nil {
		return err
	}
	if workspace != uuid.Nil {
		if err := t.LogIn(workspace, l); err != nil {
			return err
		}
		if actor != operatorActor {
			return nil
		}
	}
	return t.Log(ledger.LogLine{Action: l.Action, Workspace: workspace, Subject: l.Subject, New: l.Detail})
}

// isWorkspace refuses an unknown workspace. It is called before a transaction: workspaces are never deleted, and
// reading their row inside a transaction would conflict with movements of credits. ErrNoSuchWorkspace.
func (s people) isWorkspace(ctx context.Context, workspace uuid.UUID) error {
	return s.view(ctx, func(t *tx) error {
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

// LogWorkspace writes a line about an action outside the ledger.
func (s people) LogWorkspace(ctx context.Context, workspace uuid.UUID, l ledger.WorkspaceLine) error {
	l.Actor = ledger.Actor(ctx)
	err := s.isWorkspace(ctx, workspace)
	if err == nil {
		err = l.Check()
	}
	if err == nil {
		if l.ID == uuid.Nil {
			l.ID = uuid.Must(uuid.NewV7()) // before the transaction, which may run several times
		}
		err = s.update(ctx, func(t *tx) error { return t.LogIn(workspace, l) })
	}
	return ledger.Wrap(err, "write the log of workspace %s", workspace)
}

const (
	workspaceLines       = `SELECT id, created, actor, action, subject, detail FROM workspace_log WHERE workspace = ?`
	newestWorkspaceLines = workspaceLines + newestFirst
	olderWorkspaceLines  = workspaceLines + ` AND (created, id) < (?, ?)` + newestFirst
)

// WorkspaceLog returns one page, newest first, as one range read of an index.
func (s people) WorkspaceLog(ctx context.Context, q ledger.WorkspaceLogQuery) ([]ledger.WorkspaceLine, error) {
	if q.Limit < 1 || q.Limit > ledger.WorkspaceLogMax {
		return nil, fmt.Errorf("read the log of workspace %s: %d lines, 1 to %d are allowed: %w", q.Workspace, q.Limit,
			ledger.WorkspaceLogMax, ledger.ErrIllegal)
	}
	query, args := newestWorkspaceLines, []any{q.Workspace[:], q.Limit}
	if q.After != nil {
		query, args = olderWorkspaceLines, []any{q.Workspace[:], ledger.Millis(q.After.Created), q.After.ID[:], q.Limit}
	}
	return ledger.Run(ctx, s.view, func(t *tx) ([]ledger.WorkspaceLine, error) {
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
func (t peopleRows) fillEmails(page []ledger.WorkspaceLine) error {
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
