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

// dialect is all that differs between the databases.
type dialect struct {
	// name is for logs.
	name string
	// now is the database's clock as an expression: milliseconds since 1970.
	now string
	// lock ends a question that waits for those who change what it asks for, and keeps others from it.
	lock string
	// begin starts a transaction that writes, hurried one that waits for a lock for aloneTime
	// at most, and snapshot one that only reads and sees one moment of the ledger.
	begin, hurried, snapshot string
	// types turns the words in braces of a migration into this database's.
	types *strings.Replacer
	// numbered: arguments are written $1, $2 and not ?.
	numbered bool
	// driven: cockroach-go runs the transactions.
	inCRDB bool
	// restarts: the database can run a transaction again from a savepoint.
	restarts bool
	// apart: a change of the schema is always a transaction of its own, also inside another one.
	apart bool
	// oneMigrates keeps other migrations waiting until the transaction ends; "": it begins so.
	oneMigrates string
	// judge says what an error of an attempt means.
	judge func(failure) fault
	// control runs a statement that begins or ends a transaction, as it is.
	control func(ctx context.Context, conn *sql.Conn, statement string) error
	// lost reports whether a driver's connection has ended, failed whether its
	// transaction can only be rolled back; hangUp ends a connection without waiting
	// for the other side.
	lost, failed func(driverConn any) bool
	hangUp       func(driverConn any)
	// attempt bounds one run of a transaction or of a reading statement, ending
	// COMMIT or ROLLBACK, and lifetime the use of a connection; 0: nothing does.
	attempt, ending, lifetime time.Duration
}

// text turns a statement of this package into one for the database.
func (d dialect) text(statement string) string {
	statement = strings.ReplaceAll(statement, "{now}", d.now)
	statement = strings.ReplaceAll(statement, "{lock}", d.lock)
	if d.embedded() {
		// SQLite compiles a statement anew whenever the parameter of its LIMIT is bound, to plan for
		// that number, unless the limit is an expression.
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

// Text turns a statement into one for this database.
func (s *DB) Text(statement string) string { return s.dialect.text(statement) }

// sqliteDialect is the embedded ledger's. It has no deadlines of its own: there is
// no other side that could be away, and a disk that is slow is only waited for.
func sqliteDialect() dialect {
	return dialect{
		name: "sqlite",
		// The write lock is taken at once, so that no transaction fails half-way
		// for want of it.
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

// judgeSQLite tells the errors of the embedded database apart.
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
		// A sync that failed may have written all, or not.
		return fault{why: whyResources, passing: true, fresh: true, unknown: f.committing}
	}
	return fault{why: whyRefused}
}

// restartsMax bounds how often CockroachDB runs one attempt again from its
// savepoint, without a pause; 0 would be without end.
const restartsMax = 5

// inCRDB runs a transaction that has begun by way of cockroach-go. On PostgreSQL
// nothing goes back to a savepoint, since that would keep the snapshot in which
// the conflict is: there is none, and errors are kept from the library. On
// CockroachDB, RELEASE of the savepoint is the commit.
func (s *session) runInCRDB(ctx context.Context, run func() error) error {
	d := &cockroach{session: s}
	err := crdb.ExecuteInTx(crdb.WithMaxRetries(ctx, restartsMax), d, func() error {
		d.failed = run()
		if d.failed != nil && sqlState(d.failed) == "" && s.says(s.dialect.failed) {
			d.failed = errAborted // what was concluded without the statement that failed is worth nothing
		}
		if d.failed != nil && !s.dialect.restarts {
			return errKept
		}
		return d.failed
	})
	var ambiguous *crdb.AmbiguousCommitError
	switch {
	case errors.Is(err, errKept):
		return d.failed
	case errors.As(err, &ambiguous):
		return &commitError{err}
	case err == nil && d.ended != nil:
		return &commitError{d.ended} // the library does not look at it
	}
	return err
}

// errKept stands for an error that the library does not see.
var errKept = errors.New("failed")

// cockroach is the transaction of a session as cockroach-go wants it.
type cockroach struct {
	session *session
	failed  error // of the closure
	ended   error // of COMMIT
}

var _ crdb.Tx = (*cockroach)(nil)

// Exec runs the savepoint statements of the library where there are savepoints.
func (d *cockroach) Exec(ctx context.Context, statement string, _ ...any) error {
	if !d.session.dialect.restarts {
		return nil
	}
	return d.session.control(ctx, statement)
}

// Commit ends the transaction. A failure is kept: the library drops it.
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
	// apartMax is how much the clock of a server may differ from the node's before nothing is
	// erased any more. Time services keep both within milliseconds; 5 minutes are a fault. Guess.
	apartMax = 5 * time.Minute
	// jumpMax is by how much the ledger's clock may advance more than the time that a process ran. Above
	// the pauses of a virtual machine; what it erases too early, it erases an hour too early.
	jumpMax = time.Hour
	// standstillMax is how long nobody may have swept before a process began, as in a night
	// without nodes.
	standstillMax = 24 * time.Hour
	// trustAfter is how long a jump has to last before it is believed. Until then people have time to mend
	// the clock. After a long standstill the jump is real.
	trustAfter = 24 * time.Hour
	// sweptEvery is how exactly the time of the last sweep is kept.
	sweptEvery = time.Minute
)

// look is what the clocks said at one moment.
type look struct {
	ledger, swept time.Time     // by the ledger's clock: now, and at the last sweep
	node          time.Time     // of a ledger on a server: by this machine's clock; zero: they are one
	ran           time.Duration // of this process, by a clock that nobody can set
}

// clockWatch notices when the ledger's clock jumps ahead, by which all that is kept for a time
// would be over at once. A clock that is behind erases nothing.
type clockWatch struct {
	node func() time.Time
	ran  func() time.Duration

	mu     sync.Mutex
	last   look  // the last one that was believed; ledger is the latest time it can mean
	known  bool  // there was one
	jump   *look // the first look at a jump that stands; nil: none does
	doubts bool  // the last look was doubted
}

func newClockWatch() *clockWatch {
	began := time.Now()
	return &clockWatch{node: time.Now, ran: func() time.Duration { return time.Since(began) }}
}

// doubt says why a look is not believed; "": it is.
func (c *clockWatch) doubt(l look) string {
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
		l.ledger = expected // when a clock that went back is right again, that is no jump
	}
	c.last, c.known, c.jump = l, true, nil
	return ""
}

// BelievedNow keeps a sweep from what time demands while the ledger's clock is in doubt, and
// tells when that begins and ends. It gives the time that is believed. ledger.ErrClock.
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
	l := look{ledger: ledger.Clock(now), swept: ledger.Clock(swept), ran: c.ran()}
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
		s.Log.Error("nothing is erased or expired: the ledger's clock is not believed", "why", why)
	case why == "" && c.doubts:
		s.Log.Info("the ledger's clock is believed again")
	}
	c.doubts = why != ""
	value := 0.0
	if c.doubts {
		value = 1
	}
	s.meters.doubted.Set(value)
}
