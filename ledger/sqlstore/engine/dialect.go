package engine

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"
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
