package sqlstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
)

// openStore opens a new embedded ledger that the test owns.
func openStore(t testing.TB) *sqlstore.Store {
	t.Helper()
	return openAt(t, sqlstore.NewFile(t))
}

func openAt(t testing.TB, url string) *sqlstore.Store {
	t.Helper()
	return openWith(t, url, sqlstore.Options{})
}

// openWith opens a ledger for a test as options say.
func openWith(t testing.TB, url string, o sqlstore.Options) *sqlstore.Store {
	t.Helper()
	s := effort.Must(sqlstore.Open(t.Context(), url, o))(t)
	t.Cleanup(func() { effort.OK(t, s.Close()) })
	return s
}

// borrowed is a ledger that stays open for the next test.
type borrowed struct{ *sqlstore.Store }

func (borrowed) Close() error { return nil }

// empties empties a ledger in one transaction.
var empties = `DELETE FROM ` + strings.Join([]string{"workspace_log", "credit_days", "sign_in_attempts", "links",
	"user_sessions", "memberships", "users", "operator_log", "secrets", "entries", "evidence", "parked_work",
	"settlements", "upload_chunks", "verifications", "api_keys", "workspace_weights", "workspace_limits",
	"throttle_overrides", "workspaces", "nodes", "receiver_facts"},
	`; DELETE FROM `) + `; UPDATE cluster_turn SET turn = 0`

// shelf gives the same ledger of a server again and again, emptied by its owner.
func shelf(t *testing.T, owner string, store *sqlstore.Store) func(t *testing.T) ledger.Book {
	t.Helper()
	conn := effort.Must(pgx.Connect(t.Context(), owner))(t)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return func(t *testing.T) ledger.Book {
		t.Helper()
		effort.Must(conn.Exec(t.Context(), empties))(t)
		return borrowed{store}
	}
}

// parts are those of the conformance suite that a run plays: all (nil); one of those that move credits in a short run;
// with the race detector those where goroutines meet, and one whose commits are cut, which races' are not.
func parts() []string {
	switch {
	case effort.Raced:
		return []string{"cancel", "races"}
	case testing.Short():
		return []string{"settlements"}
	}
	return nil
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		// Each statement of its transactions fails, and what is left of such a transaction would be seen.
		losses := sqlstore.NewLosses(t)
		ledgertest.Exercise(t, func(t *testing.T) ledger.Book { return losses.Open(t) }, parts()...)
		effort.Equal(t, losses.Overlooked(), nil, "statements that never failed")
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		owner := rightful(t) // with the rights of a node and no more
		ledgertest.Exercise(t, faultyShelf(t, owner, as(t, owner, nodeUser)), parts()...)
	})
	t.Run("cockroachdb's way", func(t *testing.T) {
		effort.Unraced(t, "the same goroutines as with PostgreSQL")
		t.Parallel()
		owner := sqlstore.NewLedger(t)
		run(t, owner, imitation)
		groups := []string{"intake", "settlements", "cancel"}
		if *cuts > cutsFew {
			groups = nil // all
		}
		ledgertest.Exercise(t, faultyShelf(t, owner, owner), groups...)
	})
}
