package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// The movements of a workspace's credits, newest first, and the credits spent since a day.
const (
	grantsOf      = `SELECT created, subject, amount, reason, author FROM entries WHERE workspace = ? AND kind = 'grant' AND number = 0`
	newestGrants  = grantsOf + grantsInOrder
	olderGrants   = grantsOf + ` AND (created, subject) < (?, ?)` + grantsInOrder
	correctionsOf = `SELECT created, id, reason, author FROM corrections WHERE workspace = ?`
	paidOf        = `SELECT ` + verificationColumns + ` FROM verifications WHERE workspace = ? AND paid = 1`
	olderThan     = ` AND (created, id) < (?, ?)`
	spentSince    = `SELECT day, kind, credits FROM credit_days WHERE workspace = ? AND day >= ? AND kind IN ('charge', 'refund')`

	grantsInOrder = ` ORDER BY created DESC, subject DESC LIMIT ?`
)

// Statement returns a workspace's balance, its spending by day, and a page of credit movements.
func (s statements) Statement(ctx context.Context, q ledger.StatementQuery) (ledger.WorkspaceStatement, error) {
	return ledger.Run(ctx, s.glance, func(t *tx) (st ledger.WorkspaceStatement, err error) {
		if q.Limit < 1 || q.Limit > ledger.StatementMax {
			return st, fmt.Errorf("%d moves, 1 to %d are allowed: %w", q.Limit, ledger.StatementMax, ledger.ErrIllegal)
		}
		st.Moves = []ledger.Move{}
		if st.Balance, err = t.Account(q.Workspace); err != nil {
			return st, err
		}
		if err := t.spent(q.Workspace, &st); err != nil {
			return st, fmt.Errorf("add up days: %w", err)
		}
		err = t.moves(q, &st)
		return st, err
	}, "make the statement of workspace %s", q.Workspace)
}

// spent reads the credits spent on each of the last days.
func (t accountRows) spent(workspace uuid.UUID, st *ledger.WorkspaceStatement) error {
	now, err := t.Now()
	if err != nil {
		return err
	}
	day := ledger.Day.Milliseconds()
	first := dayOf(now.UnixMilli()) - (ledger.StatementDays-1)*day
	for i := range int64(ledger.StatementDays) {
		st.Days = append(st.Days, ledger.DaySpent{Day: ledger.Clock(first + i*day)})
	}
	return t.Each(func(rows *sql.Rows) error {
		var on int64
		var kind ledger.EntryKind
		var n ledger.Credits
		if err := rows.Scan(&on, &kind, &n); err != nil {
			return err
		}
		if kind == ledger.EntryRefund {
			n = -n
		}
		if i := (on - first) / day; i < ledger.StatementDays { // after a clock was set back there may be future days
			st.Days[i].Spent += n
		}
		return nil
	}, spentSince, workspace[:], first)
}

// moves reads a page. It reads one more of each kind than the page has, to know whether more follow.
func (t accountRows) moves(q ledger.StatementQuery, st *ledger.WorkspaceStatement) error {
	for _, of := range []struct {
		kind ledger.MoveKind
		read func(q ledger.StatementQuery, st *ledger.WorkspaceStatement) error
	}{{ledger.MoveGrant, t.grants}, {ledger.MoveCorrection, t.correctionMoves}, {ledger.MoveVerification, t.fileMoves}} {
		if q.Only != "" && q.Only != of.kind {
			continue
		}
		if err := of.read(q, st); err != nil {
			return err
		}
	}
	slices.SortFunc(st.Moves, func(a, b ledger.Move) int {
		return cmp.Or(b.At.Compare(a.At), bytes.Compare(b.ID[:], a.ID[:]))
	})
	st.More = len(st.Moves) > q.Limit
	st.Moves = st.Moves[:min(q.Limit, len(st.Moves))]
	return nil
}

// turned reads a page of moves of one kind. The query newest reads the first page, older each further one.
func (t accountRows) turned(q ledger.StatementQuery, scan func(rows *sql.Rows) error, newest, older string) error {
	if q.After == nil {
		return t.Each(scan, newest, q.Workspace[:], q.Limit+1)
	}
	return t.Each(scan, older, q.Workspace[:], ledger.Millis(q.After.Created), q.After.ID[:], q.Limit+1)
}

func (t accountRows) grants(q ledger.StatementQuery, st *ledger.WorkspaceStatement) error {
	return ledger.Wrap(t.turned(q, func(rows *sql.Rows) error {
		m := ledger.Move{Kind: ledger.MoveGrant}
		err := rows.Scan(engine.At(&m.At), &m.ID, &m.Granted, &m.Reason, &m.Author)
		st.Moves = append(st.Moves, m)
		return err
	}, newestGrants, olderGrants), "list grants")
}

// correctionMoves adds the page's corrections with the amounts of their entries.
func (t accountRows) correctionMoves(q ledger.StatementQuery, st *ledger.WorkspaceStatement) error {
	first := len(st.Moves)
	err := t.turned(q, func(rows *sql.Rows) error {
		m := ledger.Move{Kind: ledger.MoveCorrection}
		err := rows.Scan(engine.At(&m.At), &m.ID, &m.Reason, &m.Author)
		st.Moves = append(st.Moves, m)
		return err
	}, correctionsOf+newestFirst, correctionsOf+olderThan+newestFirst)
	if err != nil {
		return fmt.Errorf("list corrections: %w", err)
	}
	for i := range st.Moves[first:] {
		m := &st.Moves[first+i]
		var of ledger.Statement
		if err := t.sums(ledger.EntriesQuery{Verification: m.ID}, &of); err != nil {
			return fmt.Errorf("add up the entries of a correction: %w", err)
		}
		e := of.Sums
		m.Granted, m.Held = e.Granted-e.Withdrawn, e.Held
		m.Charged, m.GivenBack = e.Charged-e.Refunded, e.Released+e.Refunded
	}
	return nil
}

// fileMoves adds the page's verifications that ever held credits.
func (t accountRows) fileMoves(q ledger.StatementQuery, st *ledger.WorkspaceStatement) error {
	return ledger.Wrap(t.turned(q, func(rows *sql.Rows) error {
		v, err := scanVerification(rows.Scan)
		if err != nil {
			return err
		}
		st.Moves = append(st.Moves, ledger.Move{At: v.Created, ID: v.ID, Kind: ledger.MoveVerification,
			Verification: &v.Verification, Held: ledger.Credits(v.Total), Charged: ledger.Credits(v.Counts.Charged()),
			GivenBack: ledger.Credits(v.Counts.Unknown + v.Counts.Cancelled)})
		return nil
	}, paidOf+newestFirst, paidOf+olderThan+newestFirst), "list verifications")
}

// Entries returns one page of a verification's entries, newest first, with the sums of all entries, from one snapshot.
func (s statements) Entries(ctx context.Context, q ledger.EntriesQuery) (ledger.Statement, error) {
	return ledger.Run(ctx, s.glance, func(t *tx) (st ledger.Statement, err error) {
		v, err := t.ReadOf(q.Workspace, q.Verification)
		if err != nil {
			return st, err
		}
		st.Verification = v.Verification
		if err := t.sums(q, &st); err != nil {
			return st, fmt.Errorf("add up entries: %w", err)
		}
		st.Entries, err = t.entries(q)
		return st, err
	}, "list entries of verification %s", q.Verification)
}

func (t accountRows) sums(q ledger.EntriesQuery, st *ledger.Statement) error {
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

// entries reads the page. It sorts a verification's entries by time for each page: even a file of 1,000,000
// addresses has only a few thousand.
func (t accountRows) entries(q ledger.EntriesQuery) ([]ledger.Entry, error) {
	query := `SELECT kind, number, amount, created FROM entries WHERE subject = ?`
	args := []any{q.Verification[:]}
	if a := q.After; a != nil {
		query += ` AND (created, number, kind) < (?, ?, ?)`
		args = append(args, ledger.Millis(a.At), a.Number, a.Kind)
	}
	query += ` ORDER BY created DESC, number DESC, kind DESC LIMIT ?`
	return engine.List(t, "read", func(scan engine.Scan) (e ledger.Entry, err error) {
		err = scan(&e.Kind, &e.Number, &e.Amount, engine.At(&e.At))
		return e, err
	}, query, append(args, min(max(q.Limit, 0), ledger.EntriesMax))...)
}
