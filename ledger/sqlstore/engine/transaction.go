package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

const (
	// attemptsMax bounds a transaction's failures other than conflicts. The waits between them are some 1.2 s together.
	attemptsMax = 8
	// conflictsMax bounds a transaction's conflicts, which certainly changed nothing. Measured: where two nodes
	// settle files of one workspace without a pause, every second run loses to the other node, and with 8 runs one
	// settlement in 200 failed. The waits between them are some 5 s together.
	conflictsMax = 40
	// The wait before another attempt doubles from waitMin, or Options.RetryWait, to waitTimes as much, or conflictTimes
	// as much after a conflict. The real wait is random in its upper half, so that writers do not meet again.
	waitMin       = 10 * time.Millisecond
	waitTimes     = 100
	conflictTimes = 16
	// crowdedRuns is how many conflicts with others of this process a transaction has before it runs alone once, see
	// writeGate. A lock timeout does not count, because running alone would not shorten it. Measured: of 8 writers
	// in one workspace one call in 200 failed without it.
	crowdedRuns = 2
	// aloneTime bounds how long a transaction that is to run alone waits for the others, and then for a lock,
	// because all others wait meanwhile. Guess.
	aloneTime = 50 * time.Millisecond
	// repeatMax is the time after which no further attempt begins. It is longer than the callers wait (10 and 15 s),
	// so that they decide. Guess.
	repeatMax = 30 * time.Second
)

// Tx is one transaction or reading. It is for one goroutine.
type Tx struct {
	ctx     context.Context
	session *session
	// store repeats a statement after a temporary failure; nil inside a transaction, which is repeated as a whole.
	store *DB
	// Passes: an earlier run waited for a lock until lockTime. When this run only looks for some free rows, it skips
	// those that another transaction has locked.
	Passes bool
	// Doubt: an earlier run may have been committed.
	Doubt bool
}

// Context returns the transaction's context.
func (t *Tx) Context() context.Context { return t.ctx }

// Now returns the time of the database.
func (t *Tx) Now() (time.Time, error) {
	var now int64
	if err := t.Row(`SELECT {now}`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return ledger.Clock(now), nil
}

// Embedded reports whether the database is a file of this process.
func (t *Tx) Embedded() bool { return t.session.dialect.embedded() }

// ask sends one query to the database.
func (t *Tx) ask(question func(ctx context.Context) error) error {
	if t.store == nil {
		return question(t.ctx)
	}
	return t.store.repeatOn(t.ctx, t.session, question)
}

// Exec runs a statement and returns the number of changed rows.
func (t *Tx) Exec(statement string, args ...any) (int64, error) {
	prepared, err := t.session.statement(t.ctx, statement)
	if err != nil {
		return 0, err
	}
	r, err := prepared.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Row is a query for at most one row.
type Row struct {
	tx    *Tx
	query string
	args  []any
}

// Row returns a query; Scan sends it.
func (t *Tx) Row(query string, args ...any) Row { return Row{tx: t, query: query, args: args} }

// Scan sends the query and reads the row; sql.ErrNoRows when there is none.
func (r Row) Scan(into ...any) error {
	return r.tx.ask(func(ctx context.Context) error {
		prepared, err := r.tx.session.statement(ctx, r.query)
		if err != nil {
			return err
		}
		return prepared.QueryRowContext(ctx, r.args...).Scan(into...)
	})
}

// Each calls scan for each row of a query. A failed query is repeated only if scan was not called yet.
func (t *Tx) Each(scan func(rows *sql.Rows) error, query string, args ...any) error {
	begun, cut := false, error(nil)
	err := t.ask(func(ctx context.Context) error {
		err := t.session.stream(ctx, func(rows *sql.Rows) error {
			begun = true
			return scan(rows)
		}, query, args)
		if begun {
			cut = err
			return nil
		}
		return err
	})
	if cut != nil && t.store != nil {
		f := t.session.judge(cut)
		return f.callerError(cut, false)
	}
	return errors.Join(err, cut)
}

func (s *session) stream(ctx context.Context, scan func(rows *sql.Rows) error, query string, args []any) (err error) {
	prepared, err := s.statement(ctx, query)
	if err != nil {
		return err
	}
	rows, err := prepared.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// View runs do once in a session for reading; each statement has its own snapshot. A statement is repeated after a
// temporary failure before its first row.
func (s *DB) View(ctx context.Context, do func(t *Tx) error) (err error) {
	ctx, told := tracing.Within(ctx, tracing.LedgerRead)
	defer func() {
		s.meters.fails(kindRead, err)
		told.End(err != nil)
	}()
	session, err := s.readers.take(ctx, false, 0)
	if err != nil {
		return noSession(err).callerError(err, false)
	}
	defer s.readers.put(session)
	return do(&Tx{ctx: ctx, session: session, store: s})
}

// Snapshot runs do once on one snapshot of the ledger, without a time limit. Meanwhile the write-ahead log cannot be
// written back, so it is for audits, not for requests.
func (s *DB) Snapshot(ctx context.Context, do func(t *Tx) error) error {
	return s.moment(ctx, false, do)
}

// Glance is Snapshot for a request: it ends after the time of one attempt.
func (s *DB) Glance(ctx context.Context, do func(t *Tx) error) error {
	return s.moment(ctx, true, do)
}

func (s *DB) moment(ctx context.Context, short bool, do func(t *Tx) error) error {
	session, err := s.readers.take(ctx, false, 0)
	if err != nil {
		return noSession(err).callerError(err, false)
	}
	defer s.readers.put(session)
	begin := func(ctx context.Context) error { return session.begin(ctx, s.dialect.snapshot) }
	if err := s.repeatOn(ctx, session, begin); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	within := ctx
	if long := session.dialect.attempt; short && long > 0 {
		bounded, cancel := context.WithTimeout(ctx, long)
		defer cancel()
		within = bounded
	}
	session.broken = true // inside a transaction, in case do panics
	err = do(&Tx{ctx: within, session: session})
	session.broken = false
	if err != nil {
		f := session.judge(err)
		err = f.callerError(err, false)
	}
	session.rollback(ctx)
	return err
}

// Update is UpdateIn for the workspace in ctx.
func (s *DB) Update(ctx context.Context, do func(t *Tx) error) error {
	return s.UpdateIn(ctx, Scope{}, do)
}

// Scope is what a transaction is about. Transactions with conflicting scopes can wait for each other before they begin.
type Scope struct {
	Workspace uuid.UUID // zero: the one in the context, see ledger.TenantOf
	Account   bool      // the workspace's account may change
}

// UpdateIn runs do in one transaction and commits it. do may run several times: outside the transaction it may only
// change variables that it sets anew in each run. ErrReadOnly, ErrUnavailable, ErrUnknown.
func (s *DB) UpdateIn(ctx context.Context, in Scope, do func(t *Tx) error) (err error) {
	if s.writer == nil {
		return ErrReadOnly
	}
	ctx, meter := s.meters.write(ctx)
	defer func() { meter.end(err) }()
	if in.Workspace == uuid.Nil {
		in.Workspace = ledger.TenantOf(ctx)
	}
	conflicts, busy, doubt := 0, false, false
	return s.repeat(ctx, func(ctx context.Context) (fault, error) {
		meter.runs++
		is := again{before: meter.runs > 1, alone: conflicts%(crowdedRuns+1) == crowdedRuns}
		f, err := s.run(ctx, in, is, func(t *Tx) error {
			t.Passes, t.Doubt = busy, doubt
			return do(t)
		})
		if f.why == whyConflict {
			conflicts++
		}
		busy = busy || f.why == whyBusy
		doubt = doubt || f.unknown
		return f, err
	})
}

// Writes counts the beginnings and ends of writing transactions. still reports that none runs: what is read then
// stays true while the count stays. On a server it is false, because others write too.
func (s *DB) Writes() (count uint64, still bool) {
	count = s.writes.Load()
	return count, s.Embedded() && s.writer != nil && count%2 == 0 // there is one writer
}

// again describes the earlier runs of a transaction.
type again struct {
	before bool // there were earlier runs
	alone  bool // this one runs alone in its workspace
}

// run runs a transaction once. Between two runs a transaction keeps neither a session nor its turn at the account.
// While it waits for that turn it keeps no session.
func (s *DB) run(ctx context.Context, in Scope, a again, do func(t *Tx) error) (fault, error) {
	arrived := time.Now()
	if in.Account {
		leave, err := s.gate.account(ctx, in.Workspace)
		if err != nil {
			return stopped, fmt.Errorf("wait for the account: %w", err)
		}
		defer leave()
	}
	session, err := s.writer.take(ctx, a.before, time.Since(arrived))
	if err != nil {
		return noSession(err), err
	}
	defer s.writer.put(session)
	s.writes.Add(1)
	defer s.writes.Add(1)
	leave, only, err := s.gate.enter(ctx, in.Workspace, a.alone)
	if err != nil {
		return stopped, fmt.Errorf("wait for other transactions: %w", err)
	}
	defer leave()
	begin := session.dialect.begin
	if only {
		begin = session.dialect.hurried
	}
	err = session.attempt(ctx, func(ctx context.Context) error { return session.transaction(ctx, begin, do) })
	if err != nil {
		return session.judge(err), err
	}
	return fault{}, nil
}

func (s *DB) repeatOn(ctx context.Context, on *session, attempt func(ctx context.Context) error) error {
	return s.repeat(ctx, func(ctx context.Context) (fault, error) {
		err := on.attempt(ctx, attempt)
		if err != nil {
			return on.judge(err), err
		}
		return fault{}, nil
	})
}

// repeat repeats attempts until one succeeds, one fails permanently, or there were enough.
func (s *DB) repeat(ctx context.Context, attempt func(ctx context.Context) (fault, error)) error {
	begun, unknown, wait, conflicts := time.Now(), false, s.retryWait, 0
	for n := 1; ; n++ {
		f, err := attempt(ctx)
		if err == nil {
			return nil
		}
		unknown = unknown || f.unknown
		if ended := ctx.Err(); ended != nil && (f.why != "" || errors.Is(err, ended)) {
			return stopped.callerError(errors.Join(ended, err), unknown)
		}
		longest := time.Duration(waitTimes)
		if f.why == whyConflict {
			conflicts, longest = conflicts+1, conflictTimes
		}
		if !f.again || n-conflicts == attemptsMax || conflicts == conflictsMax || time.Since(begun) > repeatMax {
			return f.callerError(err, unknown)
		}
		s.meters.retries.WithLabelValues(f.why).Inc()
		// Debug only: the caller reports a failure that lasts, and the metric counts each retry.
		s.Log.Debug("ledger call is retried", "why", f.why, "sqlstate", sqlState(err), "attempt", n)
		wait = min(wait, longest*s.retryWait)
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return stopped.callerError(errors.Join(ctx.Err(), err), unknown)
		}
		wait *= 2
	}
}

// attempt runs do once, on a connection, with the deadline of one attempt.
func (s *session) attempt(ctx context.Context, do func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if long := s.dialect.attempt; long > 0 {
		bounded, cancel := context.WithTimeout(ctx, long)
		defer cancel()
		ctx = bounded
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	returned := false
	defer func() { s.broken = s.broken || !returned }() // a panic leaves a transaction open
	err := do(ctx)
	returned = true
	return err
}

// judge returns the meaning of an error of do, and marks a session that must not be reused.
func (s *session) judge(err error) fault {
	var c *commitError
	f := s.dialect.judge(failure{err: err, committing: errors.As(err, &c), lost: s.lost()})
	s.broken = s.broken || f.fresh
	return f
}

// transaction runs do between begin and COMMIT, or ROLLBACK after an error. It always sends one of them, even after
// the end of ctx, so that no session is returned inside a transaction.
func (s *session) transaction(ctx context.Context, begin string, do func(t *Tx) error) error {
	if err := s.begin(ctx, begin); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	run := func() error {
		err := do(&Tx{ctx: ctx, session: s})
		if err != nil && sqlState(err) == "" && s.connReports(s.dialect.failed) {
			err = errAborted // conclusions without the failed statement are worthless
		}
		return err
	}
	if s.dialect.restarts {
		return s.runInCRDB(ctx, run)
	}
	err := run()
	if err == nil {
		if err = s.control(ctx, "COMMIT"); err == nil {
			return nil
		}
		err = &commitError{err}
	}
	s.rollback(ctx)
	return err
}

// rollback ends a transaction without its changes.
func (s *session) rollback(ctx context.Context) {
	if err := s.control(ctx, "ROLLBACK"); err != nil {
		// The database may or may not have rolled back by itself: do not reuse a session in doubt.
		s.broken = true
	}
}

// handfuls are the numbers of rows in one statement. There are few, so there are few statements: 1,000 facts take 22
// at most.
var handfuls = [...]int{128, 16, 1}

// InHandfuls calls do for parts of a list, each as long as one of handfuls.
func InHandfuls[T any](list []T, do func(part []T) error) error {
	for _, n := range handfuls {
		for ; len(list) >= n; list = list[n:] {
			if err := do(list[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// In cuts a list into handfuls and calls do for each, with ` IN (?, …)` and its arguments.
func In[T any](list []T, arg func(T) any, do func(in string, args []any) error) error {
	return InHandfuls(list, func(part []T) error {
		args := make([]any, len(part))
		for i, one := range part {
			args[i] = arg(one)
		}
		return do(` IN (?`+strings.Repeat(`, ?`, len(part)-1)+`)`, args)
	})
}

// Scan reads the columns of a row.
type Scan = func(into ...any) error

// Asker sends queries to the database: a Tx, or a type with one.
type Asker interface {
	Row(query string, args ...any) Row
	Each(scan func(rows *sql.Rows) error, query string, args ...any) error
}

// List reads all rows of a query. what begins its error.
func List[T any](t Asker, what string, read func(Scan) (T, error), query string, args ...any) ([]T, error) {
	var list []T
	err := t.Each(func(rows *sql.Rows) error {
		one, err := read(rows.Scan)
		list = append(list, one)
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

// Pairs reads a query of two columns into a map. what begins its error.
func Pairs[K comparable, V any](t Asker, what, query string, args ...any) (map[K]V, error) {
	all := map[K]V{}
	err := t.Each(func(rows *sql.Rows) error {
		var key K
		var value V
		err := rows.Scan(&key, &value)
		all[key] = value
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}

// Find reads one row; nil when there is none. what begins its error.
func Find[T any](t Asker, what string, read func(Scan) (T, error), query string, args ...any) (*T, error) {
	one, err := read(t.Row(query, args...).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &one, nil
}

// Only reads a row of one column.
func Only[T any](scan Scan) (value T, err error) {
	err = scan(&value)
	return value, err
}

// Value reads one column of one row; the zero value when there is no row. what begins its error.
func Value[T any](t Asker, what, query string, args ...any) (value T, err error) {
	found, err := Find(t, what, Only[T], query, args...)
	if found != nil {
		value = *found
	}
	return value, err
}

// At reads a column of milliseconds into a time.
func At(into *time.Time) sql.Scanner { return moment{into} }

type moment struct{ into *time.Time }

// Scan reads the number of a column.
func (m moment) Scan(from any) error {
	ms, is := from.(int64)
	if !is {
		return fmt.Errorf("a time in a column of type %T", from)
	}
	*m.into = ledger.Clock(ms)
	return nil
}
