package sqlstore

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// soon is the wait of ledgers whose retries are tried, and not how long they take.
const soon = time.Millisecond

// NewLedger gives the URL of an empty ledger on the server of this run.
func NewLedger(t testing.TB) string {
	t.Helper()
	return postgres.Filled(t, func(ctx context.Context, url string) error { return Migrate(ctx, url) })
}

// emptyFile is the file of an embedded ledger that was made once in this run.
var emptyFile = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "ledger")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "ledger.db")
	s, err := Open(context.Background(), "sqlite:"+path, Options{})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// NewFile gives the URL of an empty embedded ledger, a copy of the one of this run.
func NewFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(effort.Folder(t), "ledger.db")
	content, err := emptyFile()
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// DatabaseOf says what the ledger takes the database at url for.
func DatabaseOf(t testing.TB, url string) string {
	t.Helper()
	s, err := Open(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	return s.db.Name()
}
