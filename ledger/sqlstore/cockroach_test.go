package sqlstore_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/cockroachdb/cockroach-go/v2/testserver"
	"github.com/jackc/pgx/v5"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// TestConformanceOnCockroachDB runs the suite on the binary that COCKROACH_BINARY
// names or PATH has. Nothing is downloaded: without one it is skipped.
func TestConformanceOnCockroachDB(t *testing.T) {
	binary := os.Getenv("COCKROACH_BINARY")
	if binary == "" {
		binary = "cockroach"
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		t.Skipf("skipped: no cockroachdb: %v (set COCKROACH_BINARY)", err)
	}
	server, err := testserver.NewTestServer(testserver.CockroachBinaryPathOpt(path))
	if err != nil {
		t.Fatalf("start cockroachdb: %v", err)
	}
	t.Cleanup(server.Stop)
	url := server.PGURL()
	conn, err := pgx.Connect(t.Context(), url.String())
	if err != nil {
		t.Fatal(err)
	}
	var version string
	if err := conn.QueryRow(t.Context(), `SELECT version()`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `CREATE DATABASE book`); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	url.Path = "/book"
	if err := sqlstore.Migrate(t.Context(), url.String()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	store, cases := shelf(t, url.String(), url.String()), 0
	if name := sqlstore.DatabaseOf(t, url.String()); name != "cockroachdb" {
		t.Errorf("taken for %q", name)
	}
	conforms(t, 100, func(t *testing.T) ledger.Book {
		cases++
		return store(t)
	})
	t.Logf("%d cases of the conformance suite ran on %s", cases, version)
}
