package engine

import (
	"context"
	"errors"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
)

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
