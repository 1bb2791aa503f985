package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// writersMax bounds one node's concurrent transactions. More of them would conflict rather than use idle time. Guess.
	writersMax = 8
	// connectTime bounds making a connection: a database node that does not answer in this time is away. Guess.
	connectTime = 5 * time.Second
	// statementTime bounds a statement in the database. The longest, a page of settlements, takes tens of
	// milliseconds. Guess.
	statementTime = 10 * time.Second
	// lockTime bounds waiting for a row that another transaction changes. Ours hold a row for some milliseconds. Guess.
	lockTime = 500 * time.Millisecond
	// idleTime is the time after which the database ends a writing transaction whose node is silent: a paused node
	// keeps rows locked that others need. It is shorter than all attempts of a waiting transaction, attemptsMax
	// times lockTime, so that one of them succeeds. Guess.
	idleTime = 2 * time.Second
	// idleReading is idleTime for a transaction that only reads: no other one waits for it. Shorter than a lease.
	idleReading = 15 * time.Second
	// attemptTime bounds one attempt as seen by the node, so that a dead connection ends. It is above statementTime,
	// so that a slow database reports it first.
	attemptTime = 15 * time.Second
	// endingTime bounds COMMIT and ROLLBACK each, which continue after the caller has gone, so that fewer commits
	// are unknown. Guess.
	endingTime = 5 * time.Second
	// lifeTime bounds the use of a connection, so that all of the database's nodes are used again within it after a
	// change. Guess.
	lifeTime = 30 * time.Minute
	// keepAlive is the interval of the kernel's checks of idle connections. A connection that a firewall dropped is
	// closed within 45 s, before somebody waits for it.
	keepAlive = 15 * time.Second
	// hangUpTime bounds the end of a connection that may be dead.
	hangUpTime = time.Second
)

// beginServer starts a transaction on a server.
const beginServer = "BEGIN ISOLATION LEVEL SERIALIZABLE"

// postgresDialect is the common dialect of PostgreSQL 15 and CockroachDB, in PostgreSQL's form.
func postgresDialect() dialect {
	return dialect{
		name: "postgresql",
		// Sent each time: a role, a database or a cluster may have a lower default.
		begin:   beginServer,
		hurried: fmt.Sprintf("%s; SET LOCAL lock_timeout = %d", beginServer, aloneTime.Milliseconds()),
		// Deferrable: it is never aborted, and aborts no writer.
		snapshot: "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE; SET LOCAL statement_timeout = 0",
		lock:     "FOR UPDATE",
		// statement_timestamp is constant within a statement, so that an index can be used.
		now:         "CAST(floor(extract(epoch FROM statement_timestamp()) * 1000) AS BIGINT)",
		types:       strings.NewReplacer("{blob}", "BYTEA", "{int}", "BIGINT", "{strict}", "", "{keyed}", ""),
		oneMigrates: "LOCK TABLE schema_steps IN EXCLUSIVE MODE", // before the snapshot is taken
		numbered:    true,
		judge:       judgePostgres, control: controlPostgres,
		lost:   func(c any) bool { return c.(*stdlib.Conn).Conn().IsClosed() },
		failed: func(c any) bool { return c.(*stdlib.Conn).Conn().PgConn().TxStatus() == 'E' },
		hangUp: func(c any) {
			ctx, cancel := context.WithTimeout(context.Background(), hangUpTime)
			defer cancel()
			_ = c.(*stdlib.Conn).Conn().Close(ctx) // the server need not get it
		},
		attempt: attemptTime, ending: endingTime, lifetime: lifeTime,
	}
}

// cockroachDialect differs from postgresDialect in how it repeats transactions and changes the schema. From version
// 25.1 each schema change commits what came before it, and then itself (autocommit_before_ddl). In older versions
// COMMIT could fail when all except the schema change was committed (XXA00). There is no LOCK TABLE: two migrations
// may run a step twice.
func cockroachDialect() dialect {
	d := postgresDialect()
	d.name, d.restarts = "cockroachdb", true
	d.apart, d.oneMigrates = true, ""
	d.snapshot = "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY; SET LOCAL statement_timeout = 0"
	return d
}

// errAborted means that the error of a failed statement was dropped, so that the database can only roll back.
var errAborted = errors.New("a statement of the transaction had failed")

// controlPostgres begins or ends a transaction. After a failed statement COMMIT succeeds as a rollback: errAborted.
func controlPostgres(ctx context.Context, conn *sql.Conn, statement string) error {
	return conn.Raw(func(c any) error {
		tag, err := c.(*stdlib.Conn).Conn().Exec(ctx, statement)
		if err == nil && statement == "COMMIT" && tag.String() != "COMMIT" {
			err = errAborted
		}
		return err
	})
}

// judgePostgres returns the meaning of an error of PostgreSQL or CockroachDB. Codes: PostgreSQL 15 manual, appendix A.
func judgePostgres(f failure) fault {
	if errors.Is(f.err, errAborted) {
		return fault{why: whyAborted, again: true, passing: true}
	}
	if code := sqlState(f.err); code != "" {
		return judgeState(code, f)
	}
	var network net.Error
	connecting := (*pgconn.ConnectError)(nil)
	switch {
	case errors.Is(f.err, context.DeadlineExceeded): // which is also a net.Error
		return fault{why: whyBusy, again: true, fresh: true, passing: true, unknown: f.committing}
	case f.lost, errors.As(f.err, &connecting), errors.As(f.err, &network),
		errors.Is(f.err, io.EOF), errors.Is(f.err, io.ErrUnexpectedEOF),
		errors.Is(f.err, sql.ErrConnDone), errors.Is(f.err, driver.ErrBadConn):
		return fault{why: whyConnection, again: true, fresh: true, passing: true, unknown: f.committing}
	case f.committing: // any other error
		return fault{why: whyUnknown, again: true, fresh: true, passing: true, unknown: true}
	}
	return fault{}
}

// SQLSTATEs that matter to a migration.
const (
	lockNotAvailable   = "55P03"
	schemaChangeFailed = "XXA00" // of CockroachDB: the transaction is committed without its schema change
)

// judgeState returns the meaning of a five-character SQLSTATE.
func judgeState(code string, f failure) fault {
	passing := func(why string, fresh bool) fault {
		return fault{why: why, again: true, fresh: fresh, passing: true, unknown: fresh && f.committing}
	}
	switch code {
	case "40001", "40P01": // serialization failure, deadlock: rolled back, also at COMMIT
		return passing(whyConflict, false)
	case "40003": // statement completion unknown
		return passing(whyUnknown, true)
	case "23505", "42P07", "42710", "42701":
		// Unique violation, duplicate table, type or column: another run sees the other transaction's row.
		return fault{why: whyDuplicate, again: true}
	case "25P02": // an earlier error was dropped
		return passing(whyAborted, false)
	case "25P03", "57P05": // idle for too long
		return passing(whyConnection, true)
	case "25006": // read only
		return passing(whyReadOnly, true)
	case "26000": // the prepared statement is gone: the connection leads to another server
		return passing(whyConnection, true)
	case lockNotAvailable:
		return passing(whyBusy, f.committing)
	case schemaChangeFailed: // the rest of its transaction is committed: another run does not help
		return fault{why: whyRefused}
	case "57014": // query cancelled, by statement_timeout
		return passing(whyBusy, f.committing)
	case "57P01", "57P02", "57P03": // shutdown, crash, starting up
		return passing(whyConnection, true)
	}
	switch code[:2] {
	case "08": // connection
		return passing(whyConnection, true)
	case "53": // disk full, memory, connections
		return passing(whyResources, true)
	case "58", "XX": // system, internal: an attempt on another server may succeed
		return passing(whyConnection, true)
	case "22", "23", "28", "3D", "42": // data, constraint, password, database, privilege and syntax
		return fault{why: whyRefused}
	}
	if f.committing {
		return passing(whyUnknown, true)
	}
	return fault{why: whyRefused}
}

// sqlState returns the SQLSTATE of an error of the database, or "".
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && len(e.Code) == 5 {
		return e.Code
	}
	return ""
}

// isServer reports whether url names a database server.
func isServer(url string) bool {
	return strings.HasPrefix(url, "postgresql://") || strings.HasPrefix(url, "postgres://")
}

// access is how a connection is used.
type access struct {
	readOnly bool
	patient  bool // statements have no time limit
}

// connector makes connections to url. Errors name no part of the URL that may be secret. ErrURL.
func connector(url string, a access) (*sql.DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		if file, is := errors.AsType[*fs.PathError](err); is { // such as that of a certificate
			return nil, fmt.Errorf("ledger url %q: %w: %w", redacted(url), ErrURL, file)
		}
		return nil, fmt.Errorf("ledger url %q: %w", redacted(url), ErrURL)
	}
	if strings.Contains(config.Host, "@") { // end of a password with an @ in it
		return nil, fmt.Errorf("ledger url %q: write %%40 for an @ in a password: %w", redacted(url), ErrURL)
	}
	if config.ConnectTimeout == 0 || config.ConnectTimeout > connectTime {
		config.ConnectTimeout = connectTime
	}
	config.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepAlive, Interval: keepAlive, Count: 2}}).DialContext
	milliseconds := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	settings := map[string]string{
		"application_name":                    "rollcall",
		"statement_timeout":                   milliseconds(statementTime),
		"lock_timeout":                        milliseconds(lockTime),
		"idle_in_transaction_session_timeout": milliseconds(idleTime),
	}
	if !a.readOnly && !a.patient {
		// PostgreSQL reads a small table sequentially instead of by index, and then every change of it is a
		// conflict: heartbeats of different nodes would be repeated once or twice each. All queries of writers have
		// an index. CockroachDB ignores the setting.
		settings["enable_seqscan"] = "off"
	}
	if a.readOnly {
		// A single statement is a transaction too: below serializable isolation it could see a later transaction, but
		// not an earlier one.
		settings["default_transaction_read_only"] = "on"
		settings["idle_in_transaction_session_timeout"] = milliseconds(idleReading)
		settings["default_transaction_isolation"] = "serializable"
	}
	if a.patient {
		settings["statement_timeout"], settings["lock_timeout"] = "0", milliseconds(tableLockTime)
	}
	for name, value := range settings {
		config.RuntimeParams[name] = value
	}
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		if err := checkIsolation(ctx, c, beginServer); err != nil || a.readOnly {
			return err
		}
		return checkDurable(ctx, c)
	})), nil
}

// checkIsolation refuses a connection with transactions below serializable, whatever lowers them. ErrIsolation.
func checkIsolation(ctx context.Context, c *pgx.Conn, begin string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	answers, err := c.PgConn().Exec(ctx, begin+"; SHOW transaction_isolation; ROLLBACK").ReadAll()
	if err != nil {
		return fmt.Errorf("ask for the isolation of transactions: %w", err)
	}
	level := ""
	if len(answers) == 3 && len(answers[1].Rows) == 1 {
		level = string(answers[1].Rows[0][0])
	}
	if level != "serializable" {
		return fmt.Errorf("%w: it says %q", ErrIsolation, level)
	}
	return nil
}

func serverDialect(ctx context.Context, db *sql.DB) (dialect, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	var version string
	if err := db.QueryRowContext(ctx, `SELECT version()`).Scan(&version); err != nil {
		return dialect{}, fmt.Errorf("ask for the database's version: %w", err)
	}
	return dialectOf(version), nil
}

// dialectOf returns the dialect for the answer of version(). On CockroachDB an audit reads a fixed moment in the
// past, so that another node's clock cannot make it restart, and no writer waits for it. A version without a number
// is from a PostgreSQL that a test calls CockroachDB; it cannot read the past.
func dialectOf(version string) dialect {
	if !strings.HasPrefix(version, "CockroachDB") {
		return postgresDialect()
	}
	d := cockroachDialect()
	if strings.Contains(version, " v") {
		d.snapshot = strings.Replace(d.snapshot, "READ ONLY", "READ ONLY, AS OF SYSTEM TIME '-1ms'", 1)
	}
	return d
}
