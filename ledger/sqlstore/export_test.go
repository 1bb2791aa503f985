package sqlstore

import (
	"errors"
	"testing"
)

// AskDiskEachTime lets a ledger forget at once what it was told about its disk.
func AskDiskEachTime(s *Store) { s.disk.every = 0 }

// SynchronousCommitOf gives the setting of a connection that writes to the server at url.
func SynchronousCommitOf(t *testing.T, url string) (level string) {
	t.Helper()
	db, err := connector(url, access{})
	if err == nil {
		err = db.QueryRowContext(t.Context(), `SHOW synchronous_commit`).Scan(&level)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return level
}

// WithPragmas gives options that open an embedded ledger by a connection with these pragmas.
func WithPragmas(pragmas ...string) Options { return Options{pragmas: pragmas} }

// MigrateAtOnce migrates the ledger on the server at url, and asks for a table that somebody reads once only.
func MigrateAtOnce(t *testing.T, url string) error {
	t.Helper()
	s := migratorAt(t, url, postgresDialect())
	s.tableLocks = 0
	return s.migrate(t.Context())
}
