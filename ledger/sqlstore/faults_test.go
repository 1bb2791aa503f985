package sqlstore_test

import (
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
