package engine

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Why an attempt failed: the label of rollcall_ledger_retries_total and a word of the log.
const (
	whyConflict   = "conflict"   // with another transaction
	whyDuplicate  = "duplicate"  // another transaction made the same row first
	whyConnection = "connection" // there is none, or no longer
	whyBusy       = "busy"       // a lock or a statement took too long
	whyResources  = "resources"  // disk, memory, or connections of the database
	whyUnknown    = "unknown"    // the database does not know whether it committed
	whyReadOnly   = "read_only"  // the node of the database does not take writes
	whyAborted    = "aborted"    // a statement failed and its error was dropped
	whyRefused    = "refused"    // permanently
	whyStopped    = "stopped"    // by the caller
)

// failure is the error of an attempt and what is known about its moment.
type failure struct {
	err        error
	committing bool // COMMIT, or its replacement, was sent
	lost       bool // the connection has ended
}

// fault is the meaning of a failure. The zero value: the error is not from the database.
type fault struct {
	why     string
	again   bool // try again at once
	fresh   bool // on a new connection
	passing bool // a later call may succeed
	unknown bool // the attempt may have been committed
}

// stopped is the end of the caller's context, at whatever statement: it says nothing about the ledger.
var stopped = fault{why: whyStopped, passing: true}

// noSession is the fault when a caller got no session: it gave up, or the ledger was closed.
func noSession(err error) fault {
	return fault{why: whyStopped, passing: !errors.Is(err, ErrClosed)}
}

// callerError returns the error for the caller of a method; unknown says that some attempt may have been committed.
func (f fault) callerError(err error, unknown bool) error {
	switch {
	case unknown && f.why != "":
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case f.passing:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// commitError is a failure of COMMIT, or of the RELEASE that commits on CockroachDB.
type commitError struct{ err error }

func (e *commitError) Error() string { return "commit: " + e.err.Error() }

func (e *commitError) Unwrap() error { return e.err }

// Damaged reports whether err means that stored data cannot be read, not that the database is away or busy.
func Damaged(err error) bool {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		code := e.Code() & 0xff // the primary code of an extended one
		return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
	}
	e := (*pgconn.PgError)(nil)
	return errors.As(err, &e) && (e.Code == "XX001" || e.Code == "XX002") // data and index corrupted
}

// Why a ledger cannot be opened or written.
var (
	// ErrURL means that the ledger's URL names no database this program knows.
	ErrURL = errors.New("unknown ledger url: write sqlite:path/to/ledger.db " +
		"or postgresql://user@host:26257/rollcall?sslmode=verify-full")
	// ErrInUse means that another process owns this embedded ledger.
	ErrInUse = errors.New("another rollcall process owns this ledger: stop it, or give this one another data_dir")
	// ErrNoLedger means that there is no ledger at the given place.
	ErrNoLedger = errors.New("there is no ledger here: check ledger.url, or make one with `rollcall migrate`")
	// ErrSchemaOld means that the schema lacks migrations of this program.
	ErrSchemaOld = errors.New("the ledger's schema is too old: run `rollcall migrate`")
	// ErrSchemaNew means that a newer program migrated this ledger.
	ErrSchemaNew = errors.New("the ledger's schema is newer than this program: use the newer rollcall")
	// ErrTableInUse means that a table could not be changed because somebody read it for too long.
	ErrTableInUse = errors.New("a table could not be changed, because somebody reads it: " +
		"end that, such as a dump, and run `rollcall migrate` again")
	// ErrSchemaChange means that CockroachDB accepted a schema change and then failed to make it.
	ErrSchemaChange = errors.New("CockroachDB could not finish a change of the schema: " +
		"see what failed with `SHOW JOBS`, mend it, and run `rollcall migrate` again")
	// ErrIsolation means that the database does not run serialisable transactions although it was asked to.
	ErrIsolation = errors.New("the database's transactions are not serializable: " +
		"connect to it without a proxy that changes them")
	// ErrDurability means that the database could lose what it committed.
	ErrDurability = errors.New("the database can lose what it has committed")
	// ErrReadOnly means that a ledger opened for reading was asked to write.
	ErrReadOnly = errors.New("the ledger is open for reading only")
	// ErrClosed means that the ledger was closed.
	ErrClosed = errors.New("the ledger is closed")
	// ErrNotEmbedded means that the ledger is no file that this program can copy.
	ErrNotEmbedded = errors.New("the ledger is a database server: back it up with its own tools, " +
		"BACKUP INTO of CockroachDB or pg_dump of PostgreSQL; see docs/operators/operations.md")
	// ErrBackupExists means that a backup would overwrite a file.
	ErrBackupExists = errors.New("there is a file of this name already: choose another one")
	// ErrBackupRoom means that a backup would fill the disk.
	ErrBackupRoom = errors.New("too little space for a backup: make room, or back up to another disk")
	// ErrBackupDamaged means that a file is no ledger, or not a whole one.
	ErrBackupDamaged = errors.New("not a sound backup of a ledger: make a new one")
)

// Errors of a Store's methods when the database did not let them finish. Call again after a while.
var (
	// ErrUnavailable means that the call changed nothing.
	ErrUnavailable = errors.New("the ledger is not available now, nothing was changed")
	// ErrUnknown means that the call may have changed everything or nothing. The same call again finds out, and
	// changes it at most once.
	ErrUnknown = errors.New("the ledger did not say whether the change was committed")
)
