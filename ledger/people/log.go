package people

import (
	"context"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// LogWorkspace writes a line about what the ledger does not do itself.
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

// fillEmails fills in those of the users who are the actors of lines.
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
