package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"rollcall/ledger"
)

// Entries gives one page of the entries of a verification, newest first, with the
// sums of all of them, as of one moment.
func (s *Store) Entries(ctx context.Context, q ledger.EntriesQuery) (st ledger.Statement, err error) {
	err = s.glance(ctx, func(t *tx) error {
		v, err := t.ReadOf(q.Workspace, q.Verification)
		if err != nil {
			return err
		}
		st = ledger.Statement{Verification: v.Verification, Entries: []ledger.Entry{}}
		if err := t.sums(q, &st); err != nil {
			return fmt.Errorf("add up entries: %w", err)
		}
		return t.entries(q, &st)
	})
	if err != nil {
		return ledger.Statement{}, fmt.Errorf("list entries of verification %s: %w", q.Verification, err)
	}
	return st, nil
}

// sums adds up all entries by kind. They are read by their key.
func (t *tx) sums(q ledger.EntriesQuery, st *ledger.Statement) error {
	return t.Each(func(rows *sql.Rows) error {
		var kind ledger.EntryKind
		var n int64
		var amount ledger.Credits
		err := rows.Scan(&kind, &n, &amount)
		st.Sums.Add(kind, amount)
		st.Count += n
		return err
	}, `SELECT kind, count(*), CAST(sum(amount) AS BIGINT) FROM entries WHERE subject = ? GROUP BY kind`,
		q.Verification[:])
}

// entries reads the page. The entries of one verification are put in order of
// time each time: even a file of 1,000,000 addresses has few thousand.
func (t *tx) entries(q ledger.EntriesQuery, st *ledger.Statement) error {
	query := `SELECT kind, number, amount, created FROM entries WHERE subject = ?`
	args := []any{q.Verification[:]}
	if a := q.After; a != nil {
		query += ` AND (created, number, kind) < (?, ?, ?)`
		args = append(args, ledger.Millis(a.At), a.Number, a.Kind)
	}
	query += ` ORDER BY created DESC, number DESC, kind DESC LIMIT ?`
	return t.Each(func(rows *sql.Rows) error {
		var e ledger.Entry
		var created int64
		err := rows.Scan(&e.Kind, &e.Number, &e.Amount, &created)
		e.At = ledger.Clock(created)
		st.Entries = append(st.Entries, e)
		return err
	}, query, append(args, min(max(q.Limit, 0), ledger.EntriesMax))...)
}
