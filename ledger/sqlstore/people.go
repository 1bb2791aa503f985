package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/people"
)

// peopleTx is a transaction of a store for package people.
type peopleTx struct{ *tx }

// Row asks for at most one row.
func (t peopleTx) Row(query string, args ...any) people.Row { return t.row(query, args...) }

// UpdatePeople runs do in one transaction.
func (d database) UpdatePeople(ctx context.Context, do func(t people.Tx) error) error {
	return d.store.update(ctx, func(t *tx) error { return do(peopleTx{t}) })
}

// ViewPeople runs do on a session for reading.
func (d database) ViewPeople(ctx context.Context, do func(t people.Tx) error) error {
	return d.store.view(ctx, func(t *tx) error { return do(peopleTx{t}) })
}

// Now is the time of the database.
func (t *tx) Now() (time.Time, error) {
	var now int64
	if err := t.row(`SELECT {now}`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return ledger.Clock(now), nil
}

// LogIn writes a line of the log of a workspace.
func (t *tx) LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error {
	if l.ID == uuid.Nil {
		l.ID = newLine()
	}
	_, err := t.Exec(`INSERT INTO workspace_log (id, workspace, created, actor, action, subject, detail)
		VALUES (?, ?, {now}, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		l.ID[:], workspace[:], l.Actor, l.Action, l.Subject, l.Detail)
	if err != nil {
		return fmt.Errorf("write the log of a workspace: %w", err)
	}
	return nil
}
