package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// unmigrated makes the ledger forget that it was migrated, so that each statement is run again.
const unmigrated = `DELETE FROM schema_versions`

// changesNothing takes the lock of a write.
const changesNothing = `UPDATE verifications SET filename = '' WHERE filename = 'never'`

// does runs a statement on the server at url.
func does(t *testing.T, url, statement string) {
	t.Helper()
	migratorAt(t, url, postgresDialect()).does(t, statement)
}

// migrateAtOnce migrates, and asks once only for a table that is in use.
func migrateAtOnce(t *testing.T, url string) error {
	t.Helper()
	s := migratorAt(t, url, postgresDialect())
	s.tableLocks = 0
	return s.migrate(t.Context())
}

// TestAMigrationBesideALongTransactionStopsNobody: somebody changed a row of a table that the
// migration needs, and does not commit. A node goes on to write to that table, the operator is told for
// whom the migration waits, and it ends when that transaction does.
func TestAMigrationBesideALongTransactionStopsNobody(t *testing.T) {
	t.Parallel()
	url := newLedger(t)
	node, err := Open(t.Context(), url, book, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	does(t, url, unmigrated)
	long := beginsLong(t, url)
	told, migrated := make(chan string, 100), make(chan error, 1)
	go func() { migrated <- Migrate(t.Context(), url, book, func(line string) { told <- line }) }()
	// A write that waited for the long transaction would fail, after the node's own bound.
	writes := 0
	for lines := 0; lines < 2; writes++ {
		if err := node.Update(t.Context(), func(tx *Tx) error {
			_, err := tx.Exec(changesNothing)
			return err
		}); err != nil {
			t.Fatalf("a write beside the migration, after %d others: %v", writes, err)
		}
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
	if writes < 3 {
		t.Errorf("%d writes", writes)
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
	for _, statement := range []string{`BEGIN`, changesNothing} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// TestAMigrationGivesUpWhenATransactionDoesNotEnd, names it, and comes to its end when it is called again.
func TestAMigrationGivesUpWhenATransactionDoesNotEnd(t *testing.T) {
	t.Parallel()
	url := newLedger(t)
	does(t, url, unmigrated)
	long := beginsLong(t, url)
	err := migrateAtOnce(t, url)
	if !errors.Is(err, ErrTableInUse) || !strings.Contains(err.Error(), `("by hand") uses verifications`) {
		t.Fatalf("got %v, want ErrTableInUse with who uses it", err)
	}
	if err := long.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := migrateAtOnce(t, url); err != nil {
		t.Fatal(err)
	}
}
