package sqlstore_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// engine is a database that a benchmark runs on.
type engine struct {
	name string
	// randomID and series are a random key, and a table of the numbers from 0 to
	// below the parameter $3, as i.
	randomID, series string
	// analyze lets the database look at what it has, as PostgreSQL does by itself in time; nothing does so for SQLite.
	analyze string
	start   func(b *testing.B) place
}

// place is a running engine, as durable as in production.
type place struct {
	// open makes an empty ledger, and a connection past its rules to the same database.
	open func(b *testing.B) (*sqlstore.Store, *sql.DB)
	// bare makes an empty table t (n, payload).
	bare func(b *testing.B) *sql.DB
}

// engines are those of the machine; one that is missing skips its benchmark.
func engines() []engine {
	return []engine{
		{"sqlite", "randomblob(16)", `(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n
			WHERE i < $3 - 1) SELECT i FROM n)`, "", startSQLite},
		{"postgresql", "uuid_send(gen_random_uuid())", `generate_series(0, CAST($3 AS BIGINT) - 1) AS n(i)`,
			"VACUUM ANALYZE", startPostgreSQL},
	}
}

func startSQLite(*testing.B) place {
	return place{
		open: func(b *testing.B) (*sqlstore.Store, *sql.DB) {
			path := filepath.Join(b.TempDir(), "ledger.db")
			book := openBook(b, "sqlite:"+path)
			// A large cache: filling a million rows by random keys is not what is measured.
			q := url.Values{"_pragma": {"cache_size(-400000)", "synchronous(OFF)"}}
			return book, connect(b, "sqlite", "file:"+path+"?"+q.Encode())
		},
		bare: func(b *testing.B) *sql.DB {
			q := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(4096)"}}
			db := connect(b, "sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+"?"+q.Encode())
			return bareTable(b, db, `CREATE TABLE t (n INTEGER PRIMARY KEY, payload BLOB)`)
		},
	}
}

func startPostgreSQL(b *testing.B) place {
	server := postgres.New(b, postgres.Options{Durable: true})
	made := 0
	database := func(b *testing.B) string {
		made++
		return server.NewDatabase(b, fmt.Sprintf("bench%d", made), "")
	}
	return place{
		open: func(b *testing.B) (*sqlstore.Store, *sql.DB) {
			url := database(b)
			if err := sqlstore.Migrate(b.Context(), url); err != nil {
				b.Fatal(err)
			}
			return openBook(b, url), connect(b, "pgx", url)
		},
		bare: func(b *testing.B) *sql.DB {
			return bareTable(b, connect(b, "pgx", database(b)),
				`CREATE TABLE t (n BIGINT PRIMARY KEY, payload BYTEA)`)
		},
	}
}

// openBook opens a ledger that ends with the benchmark.
func openBook(b *testing.B, url string) *sqlstore.Store {
	b.Helper()
	book, err := sqlstore.Open(b.Context(), url, sqlstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = book.Close() })
	return book
}

// connect opens one connection that ends with the benchmark.
func connect(b *testing.B, driver, name string) *sql.DB {
	b.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// bareTable makes the table of a bare database.
func bareTable(b *testing.B, db *sql.DB, statement string) *sql.DB {
	b.Helper()
	if _, err := db.ExecContext(b.Context(), statement); err != nil {
		b.Fatal(err)
	}
	return db
}
