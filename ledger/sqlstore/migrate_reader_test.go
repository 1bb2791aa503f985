package sqlstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
)

// unmigrated makes the ledger forget that it was migrated, so that each statement is run again.
const unmigrated = `DELETE FROM schema_versions`

// TestAMigrationBesideALongTransactionStopsNobody: somebody changed a row of a table that the
// migration needs, and does not commit. A node goes on to write to that table, the operator is told for
// whom the migration waits, and it ends when that transaction does.
func TestAMigrationBesideALongTransactionStopsNobody(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	node := openAt(t, url)
	d := ledgertest.NewDesk(t, node, 9)
	changeAt(t, url, unmigrated)
	long := beginsLong(t, url)
	told, migrated := make(chan string, 100), make(chan error, 1)
	go func() { migrated <- sqlstore.Migrate(t.Context(), url, func(line string) { told <- line }) }()
	// A write that waited for the long transaction would fail, after the node's own bound.
	writes := 0
	for lines := 0; lines < 2; writes++ {
		d.Creates(1)
		select {
		case line := <-told:
			if lines++; !strings.Contains(line, `("by hand") uses verifications`) {
				t.Errorf("it does not say for whom it waits: %s", line)
			}
		case err := <-migrated:
			t.Fatalf("it did not wait for the long transaction: %v", err)
		default:
		}
	}
	if _, err := long.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	if err := openAt(t, url).Ping(t.Context()); err != nil || writes < 3 {
		t.Errorf("after %d writes: %v", writes, err)
	}
}

// beginsLong begins a transaction that changes verifications, and does not end.
func beginsLong(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url+"&application_name=by%20hand")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	for _, statement := range []string{`BEGIN`, `UPDATE verifications SET filename = '' WHERE filename = 'never'`} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// TestAMigrationGivesUpWhenATransactionDoesNotEnd, names it, and comes to its end when it is called again.
func TestAMigrationGivesUpWhenATransactionDoesNotEnd(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	changeAt(t, url, unmigrated)
	long := beginsLong(t, url)
	err := sqlstore.MigrateAtOnce(t, url)
	if !errors.Is(err, sqlstore.ErrTableInUse) || !strings.Contains(err.Error(), `("by hand") uses verifications`) {
		t.Fatalf("got %v, want ErrTableInUse with who uses it", err)
	}
	if err := long.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sqlstore.MigrateAtOnce(t, url); err != nil {
		t.Fatal(err)
	}
	if err := openAt(t, url).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
