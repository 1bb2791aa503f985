package sqlstore

import (
	"context"

	"github.com/google/uuid"

	"rollcall/ledger/people"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

// tx is one transaction of a ledger, or some reading: the statements about each noun.
type tx struct {
	*engine.Tx
	accountRows
	verificationRows
	tenantRows
	processRows
	operatorRows
	base *base
}

var (
	_ transitions.Tables = (*tx)(nil)
	_ people.Tx          = (*tx)(nil)
)

// The statements about accounts and their entries, verifications, workspaces and keys, processes and what they learn, and
// what operators and others do.
type (
	accountRows      struct{ *engine.Tx }
	verificationRows struct{ *engine.Tx }
	tenantRows       struct{ *engine.Tx }
	processRows      struct{ *engine.Tx }
	operatorRows     struct{ *engine.Tx }
)

// within returns the statements of a transaction to do.
func (s *base) within(do func(t *tx) error) func(t *engine.Tx) error {
	return func(t *engine.Tx) error {
		return do(&tx{t, accountRows{t}, verificationRows{t}, tenantRows{t}, processRows{t}, operatorRows{t}, s})
	}
}

// withActing is within for a transaction that changes something: it reads first whether the session that acts still
// may.
func (s *base) withActing(do func(t *tx) error) func(t *engine.Tx) error {
	return s.within(func(t *tx) error {
		if err := t.mayAct(); err != nil {
			return err
		}
		return do(t)
	})
}

// update, view, snapshot and glance run do as those of the engine do.
func (s *base) update(ctx context.Context, do func(t *tx) error) error {
	return s.db.Update(ctx, s.withActing(do))
}

func (s *base) view(ctx context.Context, do func(t *tx) error) error {
	return s.db.View(ctx, s.within(do))
}

func (s *base) snapshot(ctx context.Context, do func(t *tx) error) error {
	return s.db.Snapshot(ctx, s.within(do))
}

func (s *base) glance(ctx context.Context, do func(t *tx) error) error {
	return s.db.Glance(ctx, s.within(do))
}

// database gives the transitions and the part about people their transactions.
type database struct{ *base }

// Update runs do in one transaction.
func (d database) Update(ctx context.Context, in transitions.Scope, do func(t transitions.Tables) error) error {
	return d.db.UpdateIn(ctx, engine.Scope(in), d.withActing(func(t *tx) error { return do(t) }))
}

// View runs do on a session for reading.
func (d database) View(ctx context.Context, do func(t transitions.Tables) error) error {
	return d.view(ctx, func(t *tx) error { return do(t) })
}

// UpdatePeople runs do in one transaction.
func (d database) UpdatePeople(ctx context.Context, do func(t people.Tx) error) error {
	return d.update(ctx, func(t *tx) error { return do(t) })
}

// ViewPeople runs do on a session for reading.
func (d database) ViewPeople(ctx context.Context, do func(t people.Tx) error) error {
	return d.view(ctx, func(t *tx) error { return do(t) })
}

// Doubt reports whether a run of this transaction before this one may have been committed.
func (t *tx) Doubt() bool { return t.Tx.Doubt }

// Room is ledger.ErrNoRoom while the disk of an embedded ledger is nearly full.
func (t *tx) Room() error { return t.base.db.Room() }

// EraseUpload deletes chunks of an upload; at the next sweep they leave the write-ahead log.
func (t *tx) EraseUpload(id uuid.UUID, most int64) (left bool, err error) {
	t.base.erased.Add(1)
	n, err := t.Exec(eraseChunks, id[:], id[:], most)
	return n == most, err
}
