package sqlstore

import (
	"database/sql"
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

// CheckPragmas checks a connection to the file at path that was made with pragmas.
func CheckPragmas(t *testing.T, path string, pragmas []string) error {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path, pragmas, "rwc"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	return checkPragmas(t.Context(), db)
}
