package people

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// LogWorkspace writes a line about what the ledger does not do itself.
func (b *Book) LogWorkspace(ctx context.Context, workspace uuid.UUID, l ledger.WorkspaceLine) error {
	l.Actor = ledger.Actor(ctx)
	err := b.runView(ctx, func(t rows) error {
		_, err := t.Account(workspace)
		return err
	})
	if err == nil {
		err = l.Check()
	}
	if err == nil {
		if l.ID == uuid.Nil {
			l.ID = uuid.Must(uuid.NewV7()) // before the transaction, which may run several times
		}
		err = b.runUpdate(ctx, func(t rows) error { return t.LogIn(workspace, l) })
	}
	if err != nil {
		return fmt.Errorf("write the log of workspace %s: %w", workspace, err)
	}
	return nil
}

const (
	pageOfLog            = ` ORDER BY created DESC, id DESC LIMIT ?`
	workspaceLines       = `SELECT id, created, actor, action, subject, detail FROM workspace_log WHERE workspace = ?`
	newestWorkspaceLines = workspaceLines + pageOfLog
	olderWorkspaceLines  = workspaceLines + ` AND (created, id) < (?, ?)` + pageOfLog
)

// WorkspaceLog returns one page, newest first, as one range read of an index.
func (b *Book) WorkspaceLog(ctx context.Context, q ledger.WorkspaceLogQuery) (page []ledger.WorkspaceLine, err error) {
	if q.Limit < 1 || q.Limit > ledger.WorkspaceLogMax {
		return nil, fmt.Errorf("read the log of workspace %s: %d lines, 1 to %d are allowed: %w", q.Workspace, q.Limit,
			ledger.WorkspaceLogMax, ledger.ErrIllegal)
	}
	query, args := newestWorkspaceLines, []any{q.Workspace[:], q.Limit}
	if q.After != nil {
		query, args = olderWorkspaceLines, []any{q.Workspace[:], ledger.Millis(q.After.Created), q.After.ID[:], q.Limit}
	}
	err = b.runView(ctx, func(t rows) error {
		err := t.Each(func(rows *sql.Rows) error {
			var l ledger.WorkspaceLine
			var created int64
			err := rows.Scan(&l.ID, &created, &l.Actor, &l.Action, &l.Subject, &l.Detail)
			l.At = ledger.Clock(created)
			page = append(page, l)
			return err
		}, query, args...)
		if err != nil {
			return err
		}
		return t.fillEmails(page)
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of workspace %s: %w", q.Workspace, err)
	}
	return page, nil
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
	err := engine.InHandfuls(users, func(part []uuid.UUID) error {
		args := make([]any, 0, len(part))
		for _, id := range part {
			args = append(args, id[:])
		}
		return t.Each(func(rows *sql.Rows) error {
			var id uuid.UUID
			var email string
			err := rows.Scan(&id, &email)
			of[id] = email
			return err
		}, `SELECT id, email FROM users WHERE id IN (?`+strings.Repeat(`, ?`, len(part)-1)+`)`, args...)
	})
	for i := range page {
		if id, is := ledger.UserOf(page[i].Actor); is {
			page[i].Email = of[id]
		}
	}
	return err
}
