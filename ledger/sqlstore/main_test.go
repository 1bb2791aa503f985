package sqlstore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
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

// memory is where a Linux machine has files in memory.
const memory = "/dev/shm"

func TestMain(m *testing.M) {
	flag.Parse()
	measures := flag.Lookup("test.bench").Value.String() != "" // disks too
	if info, err := os.Stat(memory); err == nil && info.IsDir() && !measures && os.Getenv("TMPDIR") == "" {
		// No test here is about the disk: a process may die, and not the machine.
		if err := os.Setenv("TMPDIR", memory); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
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

// soon is the wait of ledgers whose retries are tried, and not how long they take.
const soon = time.Millisecond

// SharedPostgres gives the server of this run. Without one on this machine the
// test is skipped, or fails when ROLLCALL_REQUIRE_POSTGRES is 1.
func SharedPostgres(t testing.TB) *postgres.Server {
	t.Helper()
	effort.Children(t)
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

// migrated is a database that a ledger was made in, for copies.
var migrated = sync.OnceValues(func() (string, error) {
	s, err := shared()
	if err != nil {
		return "", err
	}
	const name = "migrated"
	if err := s.Create(context.Background(), name, ""); err != nil {
		return "", err
	}
	return name, Migrate(context.Background(), s.URL(name))
})

// NewLedger gives the URL of an empty ledger on the server of this run.
func NewLedger(t testing.TB) string {
	t.Helper()
	s := SharedPostgres(t)
	template, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	return s.NewDatabase(t, "ledger"+strconv.FormatInt(databases.Add(1), 10), template)
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
