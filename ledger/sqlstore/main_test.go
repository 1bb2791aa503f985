package sqlstore

import (
	"context"
	"os"
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

// NewFile gives the URL of an empty embedded ledger, a copy of the one of this run.
func NewFile(t testing.TB) string { return effort.Ledger(t, Migrate) }

// DatabaseOf says what the ledger takes the database at url for.
func DatabaseOf(t testing.TB, url string) string {
	t.Helper()
	s := effort.Must(Open(t.Context(), url, Options{}))(t)
	defer func() { _ = s.Close() }()
	return s.db.Name()
}
