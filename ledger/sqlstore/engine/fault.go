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
	whyAborted    = "aborted"    // a statement failed and nobody looked
	whyRefused    = "refused"    // for good
	whyStopped    = "stopped"    // by the caller
)

// failure is the error of an attempt and what is known about its moment.
type failure struct {
	err        error
	committing bool // COMMIT, or what commits in its place, was asked for
	lost       bool // the connection has ended
}

// fault says what a failure means. The zero value: the error is not the database's.
type fault struct {
	why     string
	again   bool // worth another attempt at once
	fresh   bool // on a new connection
	passing bool // worth another call later
	unknown bool // the attempt may have been committed
}

// stopped is the end of the caller's context: at what statement it came is no news
// about the ledger.
var stopped = fault{why: whyStopped, passing: true}

// noSession is the fault of a caller that got no session: it gave up, or the ledger was closed.
func noSession(err error) fault {
	return fault{why: whyStopped, passing: !errors.Is(err, ErrClosed)}
}

// tell returns the error that the caller of a method sees: unknown says that some
// attempt may have been committed.
func (f fault) tell(err error, unknown bool) error {
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

// Damaged reports whether err means that what is stored cannot be read, and not that the database is away or busy.
func Damaged(err error) bool {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		code := e.Code() & 0xff // the primary code of an extended one
		return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
	}
	e := (*pgconn.PgError)(nil)
	return errors.As(err, &e) && (e.Code == "XX001" || e.Code == "XX002") // data and index corrupted
}
