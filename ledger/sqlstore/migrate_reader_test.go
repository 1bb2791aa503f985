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

// TestAMigrationBesideALongReaderStopsNobody: a dump has read a table which the migration
// changes, and does not end. Polls of a node go on meanwhile, the operator is told for whom
// the migration waits, and it comes to its end when the dump does.
func TestAMigrationBesideALongReaderStopsNobody(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	node := openAt(t, url)
	d := ledgertest.NewDesk(t, node, 9)
	v, _ := d.Prepares(3)
	// The node stands in for one of before, but asks for this column.
	changeAt(t, url, withoutClock+`; ALTER TABLE verifications ADD COLUMN made_by TEXT NOT NULL DEFAULT ''`)
	dump := dumps(t, url)
	told, migrated := make(chan string, 100), make(chan error, 1)
	go func() { migrated <- sqlstore.Migrate(t.Context(), url, func(line string) { told <- line }) }()
	// A poll that waited for the dump would fail, after the node's own bound.
	polls := 0
	for lines := 0; lines < 2; polls++ {
		if got, err := node.Verification(t.Context(), d.Workspace, v.ID); err != nil || got.ID != v.ID {
			t.Fatalf("a poll beside the migration, after %d others: %v", polls, err)
		}
		select {
		case line := <-told:
			if lines++; !strings.Contains(line, `("dump") reads verifications`) {
				t.Errorf("it does not say for whom it waits: %s", line)
			}
		case err := <-migrated:
			t.Fatalf("it did not wait for the dump: %v", err)
		default:
		}
	}
	if _, err := dump.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	if err := openAt(t, url).Ping(t.Context()); err != nil || polls < 3 {
		t.Errorf("after %d polls: %v", polls, err)
	}
}

// dumps begins to read the verifications of a ledger, as a dump does, and does not end.
func dumps(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	dump, err := pgx.Connect(t.Context(), url+"&application_name=dump")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dump.Close(context.WithoutCancel(t.Context())) })
	for _, statement := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM verifications`} {
		if _, err := dump.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return dump
}

// TestAMigrationGivesUpWhenAReaderDoesNotEnd, names it, and comes to its end when it is called again.
func TestAMigrationGivesUpWhenAReaderDoesNotEnd(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	changeAt(t, url, withoutClock)
	dump := dumps(t, url)
	err := sqlstore.MigrateAtOnce(t, url)
	if !errors.Is(err, sqlstore.ErrTableInUse) || !strings.Contains(err.Error(), `("dump") reads verifications`) {
		t.Fatalf("got %v, want ErrTableInUse with the reader", err)
	}
	if err := dump.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sqlstore.MigrateAtOnce(t, url); err != nil {
		t.Fatal(err)
	}
	if err := openAt(t, url).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
