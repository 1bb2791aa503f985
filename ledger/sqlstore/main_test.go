package sqlstore

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore/engine"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// soon is the wait of ledgers whose retries are tried, and not how long they take.
const soon = time.Millisecond

// NewLedger returns the URL of an empty ledger on the server of this run.
func NewLedger(t testing.TB) string {
	t.Helper()
	return postgres.Filled(t, func(ctx context.Context, url string) error { return Migrate(ctx, url) })
}

// NewFile returns the URL of an empty embedded ledger, a copy of the one of this run.
func NewFile(t testing.TB) string { return effort.Ledger(t, Migrate) }

// DatabaseOf returns the kind of database that the ledger detects at url.
func DatabaseOf(t testing.TB, url string) string {
	t.Helper()
	s := effort.Must(Open(t.Context(), url, Options{}))(t)
	defer func() { _ = s.Close() }()
	return s.db.Name()
}

// server is a ledger on PostgreSQL with two workspaces, spoken to as PostgreSQL or
// in the way of CockroachDB: with savepoints.
type server struct {
	*Store
	url     string
	a, b    uuid.UUID
	aside   *pgx.Conn // another client
	metrics *prometheus.Registry
}

// onServer runs a test in both ways.
func onServer(t *testing.T, test func(t *testing.T, s *server)) {
	for name, cockroach := range map[string]bool{"postgresql's way": false, "cockroachdb's way": true} {
		t.Run(name, func(t *testing.T) { test(t, newServer(t, engine.Seams{Cockroach: cockroach})) })
	}
}

func newServer(t *testing.T, seams engine.Seams) *server {
	t.Helper()
	s := &server{url: NewLedger(t), a: uuid.New(), b: uuid.New(), metrics: prometheus.NewRegistry()}
	s.Store = effort.Must(Open(t.Context(), s.url, Options{Registerer: s.metrics, RetryWait: soon, Seams: seams}))(t)
	t.Cleanup(func() { effort.OK(t, s.Close()) })
	for _, id := range []uuid.UUID{s.a, s.b} {
		effort.Must(s.CreateWorkspace(t.Context(), id, "named"))(t)
	}
	s.aside = effort.Must(pgx.Connect(t.Context(), s.url))(t)
	t.Cleanup(func() { _ = s.aside.Close(context.WithoutCancel(t.Context())) })
	return s
}

// does runs statements as the other client.
func (s *server) does(t *testing.T, statements string) {
	t.Helper()
	_, err := s.aside.PgConn().Exec(t.Context(), statements).ReadAll()
	effort.FatalIf(t, err != nil, "%s: %v", statements, err)
}

// waited returns how many transactions ran again because a lock was not free in time.
func (s *server) waited(t *testing.T) float64 {
	t.Helper()
	return nettest.Metric(t, s.metrics, "rollcall_ledger_retries_total", "why=busy")
}

func hex(id uuid.UUID) string { return strings.ReplaceAll(id.String(), "-", "") }
