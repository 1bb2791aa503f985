package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rollcall/ledger"
)

// dialect is the differences between the databases.
type dialect struct {
	// name is for logs.
	name string
	// now is an SQL expression for the database's clock: milliseconds since 1970.
	now string
	// lock ends a query that locks its rows: it waits for transactions that change them and keeps others out.
	lock string
	// begin starts a writing transaction, hurried one that waits at most aloneTime for a lock, and snapshot one that
	// only reads and sees the ledger at one moment.
	begin, hurried, snapshot string
	// types replaces the words in braces of a migration by this database's types.
	types *strings.Replacer
	// numbered: arguments are written $1, $2 instead of ?.
	numbered bool
	// file: the database is a file of this process, not a server.
	file bool
	// restarts: the database can rerun a transaction from a savepoint, so cockroach-go runs the transactions.
	// PostgreSQL can't: the rerun would keep the snapshot with the conflict.
	restarts bool
	// apart: a schema change is always its own transaction, even inside another one.
	apart bool
	// oneMigrates blocks other migrations until the transaction ends; "": begin already does.
	oneMigrates string
	// judge returns the meaning of an attempt's error.
	judge func(failure) fault
	// control runs a statement that begins or ends a transaction.
	control func(ctx context.Context, conn *sql.Conn, statement string) error
	// lost reports whether a driver's connection has ended, failed whether its transaction can only be rolled back;
	// hangUp ends a connection without waiting for the server.
	lost, failed func(driverConn any) bool
	hangUp       func(driverConn any)
	// attempt bounds one run of a transaction or of a reading statement, ending COMMIT or ROLLBACK, and lifetime the
	// use of a connection; 0: no bound.
	attempt, ending, lifetime time.Duration
}

// text converts a statement of this package for the database.
func (d dialect) text(statement string) string {
	statement = strings.ReplaceAll(statement, "{now}", d.now)
	statement = strings.ReplaceAll(statement, "{lock}", d.lock)
	if d.embedded() {
		// SQLite recompiles a statement whenever a LIMIT parameter is bound, to plan for its value, unless the limit
		// is an expression.
		statement = strings.ReplaceAll(statement, "LIMIT ?", "LIMIT +?")
	}
	if d.numbered {
		statement = numbered(statement)
	}
	return statement
}

// numbered writes $1, $2 and so on for each ? outside of quotes.
func numbered(statement string) string {
	var b strings.Builder
	n, quoted := 0, false
	for _, c := range []byte(statement) {
		if c == '\'' {
			quoted = !quoted
		}
		if c != '?' || quoted {
			b.WriteByte(c)
			continue
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// Name is the kind of the database.
func (s *DB) Name() string { return s.dialect.name }

// Text converts a statement for this database.
func (s *DB) Text(statement string) string { return s.dialect.text(statement) }

// sqliteDialect is the embedded ledger's. It has no time limits, because no server can be away, and a slow disk can
// only be waited for.
func sqliteDialect() dialect {
	return dialect{
		name: "sqlite", file: true,
		// Take the write lock at once, so that no transaction fails half-way because it cannot get it.
		begin:    "BEGIN IMMEDIATE",
		hurried:  "BEGIN IMMEDIATE", // there is one writer
		snapshot: "BEGIN",
		now:      "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)",
		types: strings.NewReplacer("{blob}", "BLOB", "{int}", "INTEGER",
			"{strict}", "STRICT", "{keyed}", "STRICT, WITHOUT ROWID"),
		judge: judgeSQLite,
		control: func(ctx context.Context, conn *sql.Conn, statement string) error {
			_, err := conn.ExecContext(ctx, statement)
			return err
		},
		lost:   func(any) bool { return false },
		failed: func(any) bool { return false },
		hangUp: func(any) {},
	}
}

// judgeSQLite returns the meaning of an error of SQLite.
func judgeSQLite(f failure) fault {
	var e *sqlite.Error
	if !errors.As(f.err, &e) {
		return fault{}
	}
	switch e.Code() & 0xff { // the primary code of an extended one
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fault{why: whyBusy, again: true, passing: true}
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN:
		return fault{why: whyResources, passing: true}
	case sqlite3.SQLITE_IOERR:
		// A failed sync may or may not have written everything.
		return fault{why: whyResources, passing: true, fresh: true, unknown: f.committing}
	}
	return fault{why: whyRefused}
}

// restartsMax bounds how often CockroachDB reruns one attempt from its savepoint, without a pause; 0 means no bound.
const restartsMax = 5

// runInCRDB runs a begun transaction through cockroach-go. RELEASE of its savepoint is the commit.
func (s *session) runInCRDB(ctx context.Context, run func() error) error {
	d := &cockroach{session: s}
	err := crdb.ExecuteInTx(crdb.WithMaxRetries(ctx, restartsMax), d, run)
	var ambiguous *crdb.AmbiguousCommitError
	switch {
	case errors.As(err, &ambiguous):
		return &commitError{err}
	case err == nil && d.ended != nil:
		return &commitError{d.ended} // the library does not inspect it
	}
	return err
}

// cockroach is a session's transaction with the interface of cockroach-go.
type cockroach struct {
	session *session
	ended   error // of COMMIT
}

var _ crdb.Tx = (*cockroach)(nil)

// Exec runs the library's savepoint statements.
func (d *cockroach) Exec(ctx context.Context, statement string, _ ...any) error {
	return d.session.control(ctx, statement)
}

// Commit ends the transaction. It keeps its error in ended, because the library drops it.
func (d *cockroach) Commit(ctx context.Context) error {
	d.ended = d.session.control(ctx, "COMMIT")
	if d.ended != nil {
		d.session.rollback(ctx)
	}
	return d.ended
}

// Rollback ends the transaction without its changes.
func (d *cockroach) Rollback(ctx context.Context) error {
	d.session.rollback(ctx)
	return nil
}

const (
	// apartMax is the difference between a server's and the node's clock above which nothing is erased. Time
	// services keep both within milliseconds; 5 minutes are a fault. Guess.
	apartMax = 5 * time.Minute
	// jumpMax is how much further than the process's run time the ledger's clock may advance. Pauses of virtual machines
	// are shorter. Data is erased at most jumpMax too early.
	jumpMax = time.Hour
	// standstillMax is the longest time without any sweep before a process began, such as a night without nodes.
	standstillMax = 24 * time.Hour
	// trustAfter is how long a jump must last before it is accepted. Until then people can correct the clock. After
	// a long standstill the jump is real.
	trustAfter = 24 * time.Hour
	// sweptEvery is the precision of the stored time of the last sweep.
	sweptEvery = time.Minute
)

type clockReading struct {
	ledger, swept time.Time     // by the ledger's clock: now, and at the last sweep
	node          time.Time     // for a ledger on a server: by this machine's clock; zero: it is the same clock
	ran           time.Duration // of this process, by a monotonic clock
}

// clockWatch notices a forward jump of the ledger's clock, which would make everything with a retention due at once.
// A slow clock erases nothing.
type clockWatch struct {
	node func() time.Time
	ran  func() time.Duration

	mu     sync.Mutex
	last   clockReading  // the last accepted reading; ledger is the latest time it can mean
	known  bool          // there was one
	jump   *clockReading // the first reading of the current jump; nil: none
	doubts bool          // the last reading was doubted
}

func newClockWatch() *clockWatch {
	began := time.Now()
	return &clockWatch{node: time.Now, ran: func() time.Duration { return time.Since(began) }}
}

// doubt returns why a reading is not accepted; "": it is.
func (c *clockWatch) doubt(l clockReading) string {
	if apart := l.ledger.Sub(l.node).Abs(); !l.node.IsZero() && apart > apartMax {
		c.jump = nil
		return fmt.Sprintf("it differs from this node's by %s", apart.Round(time.Second))
	}
	ahead, most, since := l.ledger.Sub(l.swept), standstillMax, "the last sweep"
	expected := l.ledger
	if c.known {
		expected = c.last.ledger.Add(l.ran - c.last.ran)
		ahead, most, since = l.ledger.Sub(expected), jumpMax, "this process was sure of it"
	}
	if ahead > most {
		if c.jump == nil || (l.ledger.Sub(c.jump.ledger)-(l.ran-c.jump.ran)).Abs() > jumpMax {
			c.jump = &l
		}
		if left := trustAfter - (l.ran - c.jump.ran); left > 0 {
			return fmt.Sprintf("it is %s ahead since %s, and is believed in %s",
				ahead.Round(time.Second), since, left.Round(time.Second))
		}
		expected = l.ledger
	}
	if l.ledger.Before(expected) {
		l.ledger = expected // a clock that went back and is corrected has not jumped
	}
	c.last, c.known, c.jump = l, true, nil
	return ""
}

// BelievedNow returns the accepted time, or ledger.ErrClock while the ledger's clock is in doubt, so that a sweep
// does nothing. It logs when a doubt begins and ends.
func (s *DB) BelievedNow(ctx context.Context) (now int64, err error) {
	var swept int64
	err = s.View(ctx, func(t *Tx) error {
		return t.Row(`SELECT {now}, swept FROM ledger_clock`).Scan(&now, &swept)
	})
	if err != nil {
		return 0, fmt.Errorf("read the ledger's clock: %w", err)
	}
	c := s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	l := clockReading{ledger: ledger.Clock(now), swept: ledger.Clock(swept), ran: c.ran()}
	if !s.Embedded() {
		l.node = c.node()
	}
	why := c.doubt(l)
	s.tellDoubt(why)
	if why != "" {
		return 0, fmt.Errorf("%w: %s", ledger.ErrClock, why)
	}
	if l.ledger.Sub(l.swept).Abs() < sweptEvery {
		return now, nil
	}
	return now, s.Update(ctx, func(t *Tx) error {
		_, err := t.Exec(`UPDATE ledger_clock SET swept = ?`, now)
		return err
	})
}

// tellDoubt logs the beginning and the end of a doubt. mu is held.
func (s *DB) tellDoubt(why string) {
	c := s.clock
	switch {
	case why != "" && !c.doubts:
		s.Log.Error("nothing is erased or expired: the ledger's clock is not trusted", "why", why)
	case why == "" && c.doubts:
		s.Log.Info("the ledger's clock is trusted again")
	}
	c.doubts = why != ""
	value := 0.0
	if c.doubts {
		value = 1
	}
	s.meters.doubted.Set(value)
}
