package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rollcall/ledger"
)

// storageFindings bounds what the embedded database tells about its own damage. Guess.
const storageFindings = 20

// storage has the embedded database check its pages, indexes and constraints;
// what it says names tables and pages and no values. A server does that on its own.
func (a *audit) storage(t *tx) error {
	if !t.session.dialect.embedded() {
		return nil
	}
	err := t.Each(func(rows *sql.Rows) error {
		var said string
		err := scan(rows, &said)
		if err == nil && said != "ok" {
			a.add(ledger.Violation{Invariant: ledger.Storage, Subject: "database", Detail: said})
		}
		return err
	}, fmt.Sprintf("PRAGMA integrity_check(%d)", storageFindings))
	if err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	return nil
}

// damaged says whether err means that what is stored cannot be read, and not that
// the database is away or busy.
func damaged(err error) bool {
	if errors.Is(err, errRow) {
		return true
	}
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		code := e.Code() & 0xff // the primary code of an extended one
		return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
	}
	e := (*pgconn.PgError)(nil)
	return errors.As(err, &e) && (e.Code == "XX001" || e.Code == "XX002") // data and index corrupted
}
