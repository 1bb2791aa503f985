package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

// pageSettlements is the number of settlements that one question reads, so that
// a large file does not keep a session from the requests that wait for one: with
// 1,000 outcomes in each it takes some 10 ms.
const pageSettlements = 64

// Results calls yield for each settled address in ordinal order, as of the
// settlements at the start, since what is settled never changes. All of the
// ledger is read before the first yield: a slow yield holds neither a session nor
// more memory than a part of a sorter.
func (s files) Results(ctx context.Context, workspace, id uuid.UUID,
	yield func(ledger.Result) error) (err error) {
	var v *transitions.Row
	err = s.view(ctx, func(t *tx) (err error) {
		v, err = t.ReadOf(workspace, id)
		return err
	})
	if err == nil && v.ResultsDeleted {
		err = ledger.ErrResultsExpired
	}
	if err != nil {
		return fmt.Errorf("read results of verification %s: %w", id, err)
	}
	if v.Settlements == 0 {
		return nil
	}
	ordered := newSorter(s.db.Scratch(), v.Total)
	defer func() { err = errors.Join(err, ordered.close()) }()
	if err := s.fill(ctx, ordered, v); err != nil {
		return fmt.Errorf("read results of verification %s: %w", id, err)
	}
	return ordered.drain(yield)
}

const pageOfSettlements = `SELECT payload FROM settlements WHERE verification = ?
	AND number >= ? AND number < ? ORDER BY number`

// fill puts all settlements of v into a sorter.
func (s files) fill(ctx context.Context, ordered *sorter, v *transitions.Row) error {
	if err := s.walk(ctx, v, ordered.add); err != nil {
		return err
	}
	return ordered.filled()
}

// walk calls take with each settlement of v, by number; the batch is good until take returns.
func (s files) walk(ctx context.Context, v *transitions.Row, take func(b *ledger.Batch) error) error {
	var batch ledger.Batch
	number := int64(1) // of the next one
	next := func(rows *sql.Rows) error {
		var payload sql.RawBytes
		if err := rows.Scan(&payload); err != nil {
			return err
		}
		if len(payload) == 0 {
			return ledger.ErrResultsExpired // erased since the start
		}
		if err := batch.Decode(payload); err != nil {
			return err
		}
		number++
		return take(&batch)
	}
	for number <= v.Settlements {
		begun, end := number, min(number+pageSettlements, v.Settlements+1)
		err := s.view(ctx, func(t *tx) error {
			return t.Each(next, pageOfSettlements, v.ID[:], begun, end)
		})
		// What is settled never changes: a page that was cut goes on where it was cut.
		if cut := errors.Is(err, engine.ErrUnavailable) && number > begun; cut && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		if number < end {
			return fmt.Errorf("one of the settlements %d to %d is not there", begun, end-1)
		}
	}
	return nil
}
