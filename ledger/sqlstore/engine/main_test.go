package engine

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// soon is the wait of ledgers whose retries are tried, and not how long they take.
const soon = time.Millisecond

// book is the schema of a ledger.
var book = Schema{Files: os.DirFS("..").(fs.ReadDirFS), Folder: "migrations", Version: 1}

// newLedger gives the URL of an empty ledger on the server of this run.
func newLedger(t testing.TB) string {
	t.Helper()
	return postgres.Filled(t, func(ctx context.Context, url string) error { return Migrate(ctx, url, book) })
}

func addWorkspace(t *testing.T, db *DB, name string) uuid.UUID {
	t.Helper()
	id := uuid.New()
	effort.OK(t, db.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO workspaces (id, name, created) VALUES (?, ?, {now})`, id[:], name)
		return err
	}))
	return id
}

// grant adds a credit to a workspace.
func grant(ctx context.Context, db *DB, workspace uuid.UUID) error {
	return db.Update(ctx, func(tx *Tx) error {
		_, err := tx.Exec(`UPDATE workspaces SET granted = granted + 1, available = available + 1 WHERE id = ?`, workspace[:])
		return err
	})
}

// granted reads how many credits a workspace was granted.
func granted(ctx context.Context, db *DB, workspace uuid.UUID) (n int64, err error) {
	err = db.View(ctx, func(tx *Tx) error {
		return tx.Row(`SELECT granted FROM workspaces WHERE id = ?`, workspace[:]).Scan(&n)
	})
	return n, err
}

// audit and glance read one moment of the ledger.
func audit(ctx context.Context, db *DB) error { return db.Snapshot(ctx, count) }

func glance(ctx context.Context, db *DB) error { return db.Glance(ctx, count) }

func count(tx *Tx) error {
	var n int
	return tx.Row(`SELECT count(*) FROM workspaces`).Scan(&n)
}

// openForTest opens an embedded ledger with one workspace.
func openForTest(t *testing.T) (*DB, uuid.UUID) {
	t.Helper()
	db, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"), book, Options{RetryWait: soon})
	effort.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, addWorkspace(t, db, "desk")
}
