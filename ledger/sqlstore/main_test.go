package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"rollcall/ledger/ledgertest/postgres"
)

// shared is the one PostgreSQL of a run of these tests, started when it is first
// asked for.
var shared = sync.OnceValues(func() (*postgres.Server, error) {
	return postgres.Start(context.Background(), postgres.Options{TCP: true})
})

// used says whether there is one to stop; databases counts those made on it.
var (
	used      atomic.Bool
	databases atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	if used.Load() {
		if s, err := shared(); err == nil {
			if err := s.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stop postgresql:", err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// SharedPostgres gives the server of this run. Without one on this machine the
// test is skipped, or fails when ROLLCALL_REQUIRE_POSTGRES is 1.
func SharedPostgres(t testing.TB) *postgres.Server {
	t.Helper()
	used.Store(true)
	s, err := shared()
	if errors.Is(err, postgres.ErrMissing) && os.Getenv("ROLLCALL_REQUIRE_POSTGRES") != "1" {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// NewDatabase gives the URL of an empty database on the server of this run.
func NewDatabase(t testing.TB) string {
	t.Helper()
	return SharedPostgres(t).NewDatabase(t, "empty"+strconv.FormatInt(databases.Add(1), 10), "")
}

// DatabaseOf says what the ledger takes the database at url for.
func DatabaseOf(t testing.TB, url string) string {
	t.Helper()
	s, err := Open(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	return s.dialect.name
}
