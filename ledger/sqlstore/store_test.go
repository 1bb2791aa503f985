package sqlstore_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/testserver"
	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
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

// shelf returns the same ledger of a server each time; its owner empties it in between.
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

var cuts = flag.Int("cuts", cutsFew, "how many faults each exercise meets on a server, at most 7; with more than 2 they "+
	"are drawn anew, and the whole suite runs in the way of CockroachDB too")

// cutsFew is the number of faults of an exercise in a default run.
const cutsFew = 2

// throughProxy opens the ledger at url by way of a proxy that loses things.
func throughProxy(t testing.TB, url string) (*postgres.Proxy, *sqlstore.Store) {
	t.Helper()
	proxy := effort.Must(postgres.StartProxy(url))(t)
	t.Cleanup(func() { effort.OK(t, proxy.Close()) })
	database := effort.Must(pgx.ParseConfig(url))(t).Database
	return proxy, openWith(t, proxy.URL(database), sqlstore.Options{RetryWait: time.Millisecond})
}

// The faults of commits, and elsewhere of the other statements of writing transactions.
var (
	conflict = postgres.Act{Kind: postgres.FailUndone, Code: postgres.SerializationFailure}
	kept     = postgres.Act{Kind: postgres.FailDone, Code: postgres.CompletionUnknown}
	atCommit = []postgres.Act{{Kind: postgres.CutBefore}, {Kind: postgres.CutSent}, {Kind: postgres.CutExecuted},
		{Kind: postgres.CutAnswer}, conflict, {Kind: postgres.FailUndone, Code: postgres.CompletionUnknown}, kept}
	elsewhere = []postgres.Act{conflict, kept, {Kind: postgres.CutBefore}, {Kind: postgres.CutAnswer}}
)

// faults are those that the exercises of a suite meet, most at commits. Each is at another place: a statement after
// those before it in its transaction.
type faults struct {
	random *rand.Rand
	met    map[string]bool // places, with the fault of a commit
	left   int             // of this exercise
	within bool            // a writing transaction
	before string          // its texts so far
}

// plan implements postgres.Plan.
func (f *faults) plan(s postgres.Statement) postgres.Act {
	switch {
	case strings.HasPrefix(s.Text, "BEGIN") && !strings.Contains(s.Text, ";"):
		f.within, f.before = true, ""
		return postgres.Act{}
	case !f.within:
		return postgres.Act{}
	case s.Text == "COMMIT" || s.Text == "ROLLBACK":
		f.within = false
	}
	f.before += s.Text + "\n"
	act, place := elsewhere[f.random.IntN(len(elsewhere))], f.before
	if s.Commit {
		act = atCommit[f.random.IntN(len(atCommit))]
		place += string(act.Kind) + act.Code
	}
	due := s.Commit || f.random.IntN(8) == 0 // above all commits
	if f.left == 0 || f.met[place] || s.Text == "ROLLBACK" || !due {
		return postgres.Act{}
	}
	f.left--
	f.met[place] = true
	return act
}

// faultyShelf is shelf for a ledger whose commits are cut and whose statements fail, some in each exercise: what the
// suite expects is what is there without faults. The ledger gives up after eight runs of a transaction.
func faultyShelf(t *testing.T, owner, user string) func(t *testing.T) ledger.Book {
	t.Helper()
	proxy, store := throughProxy(t, user)
	f := &faults{random: rand.New(rand.NewPCG(1, 2)), met: map[string]bool{}}
	if *cuts > cutsFew {
		f.random = rand.New(rand.NewPCG(rand.Uint64(), 2))
	}
	t.Cleanup(func() {
		t.Logf("%v: %d faults", proxy.Counts(), proxy.Injected())
		effort.ErrorIf(t, proxy.Injected() == 0, "nothing was cut")
	})
	empty := shelf(t, owner, store)
	return func(t *testing.T) ledger.Book {
		t.Helper()
		proxy.SetPlan(nil)
		book := empty(t)
		f.left, f.within = *cuts, false
		if strings.Contains(t.Name(), "/races/") {
			f.left = 0 // histories cut what is done at once
		}
		proxy.SetPlan(f.plan)
		return book
	}
}

// imitation makes a PostgreSQL call itself CockroachDB, so that the ledger speaks
// to it in that way: with a savepoint, whose RELEASE commits.
const imitation = `
	CREATE FUNCTION public.version() RETURNS TEXT LANGUAGE SQL AS $$ SELECT 'CockroachDB, imitated'::TEXT $$;
	DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database());
	END $$`

// TestConformanceOnCockroachDB runs the suite on the binary that COCKROACH_BINARY
// names or PATH has. It downloads nothing: without a binary it is skipped.
func TestConformanceOnCockroachDB(t *testing.T) {
	binary := os.Getenv("COCKROACH_BINARY")
	if binary == "" {
		binary = "cockroach"
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		t.Skipf("skipped: no cockroachdb: %v (set COCKROACH_BINARY)", err)
	}
	server := effort.Must(testserver.NewTestServer(testserver.CockroachBinaryPathOpt(path)))(t)
	t.Cleanup(server.Stop)
	url := server.PGURL()
	conn := effort.Must(pgx.Connect(t.Context(), url.String()))(t)
	var version string
	effort.OK(t, conn.QueryRow(t.Context(), `SELECT version()`).Scan(&version))
	effort.Must(conn.Exec(t.Context(), `CREATE DATABASE book`))(t)
	effort.OK(t, conn.Close(t.Context()))
	url.Path = "/book"
	effort.OK(t, sqlstore.Migrate(t.Context(), url.String()))
	store, cases := shelf(t, url.String(), openAt(t, url.String())), 0
	effort.Is(t, sqlstore.DatabaseOf(t, url.String()), "cockroachdb", "taken for")
	ledgertest.Exercise(t, func(t *testing.T) ledger.Book {
		cases++
		return store(t)
	})
	t.Logf("%d cases of the conformance suite ran on %s", cases, version)
}
