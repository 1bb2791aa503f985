package engine

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

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
