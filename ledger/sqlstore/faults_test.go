package sqlstore_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/cockroach-go/v2/testserver"
	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

var cuts = flag.Int("cuts", 1, "cuts of each money transaction at each point of its commit; "+
	"from 100 on, faults also come at every statement in every way")

// thoroughCuts is the number of cuts from which on a run is a long one.
const thoroughCuts = 100

// points are where a commit is cut.
var points = []postgres.Kind{postgres.CutBefore, postgres.CutSent, postgres.CutExecuted, postgres.CutAnswer}

// failures are what else a statement can meet.
var failures = []postgres.Act{
	{Kind: postgres.FailUndone, Code: postgres.SerializationFailure},
	{Kind: postgres.FailUndone, Code: postgres.CompletionUnknown},
	{Kind: postgres.FailDone, Code: postgres.CompletionUnknown},
	{Kind: postgres.CutBefore},
	{Kind: postgres.CutAnswer},
}

// script is a plan that counts from the first BEGIN of a transaction on, so that the making of a connection before it
// is left alone. It belongs to the proxy while it is its plan.
type script struct {
	commit    int // act at this commit; 0: none
	statement int // act at this statement; 0: none
	act       postgres.Act
	later     map[int]postgres.Act // by how many statements after that
	then      postgres.Act         // at every other one after it

	begun, commits, statements int
	metAt                      int
	met                        bool
	faults                     int
}

// plan implements postgres.Plan.
func (p *script) plan(s postgres.Statement) postgres.Act {
	if strings.HasPrefix(s.Text, "BEGIN") && !strings.Contains(s.Text, ";") {
		p.begun++
	}
	if p.begun == 0 {
		return postgres.Act{}
	}
	p.statements++
	if s.Commit {
		p.commits++
	}
	var act postgres.Act
	switch {
	case !p.met && (s.Commit && p.commits == p.commit || p.statements == p.statement):
		p.met, p.metAt, act = true, p.statements, p.act
	case p.met:
		var ok bool
		if act, ok = p.later[p.statements-p.metAt]; !ok {
			act = p.then
		}
	}
	if act.Kind != postgres.Pass {
		p.faults++
	}
	return act
}

// lanes is how many ledgers a long run has for each way to speak to the database, so
// that a run with -parallel 6 uses the time in which they wait.
const lanes = 3

// sizes are the numbers of addresses of a move's file.
var sizes = []int64{3, 7, 40}

// TestFaultsLeaveTheBookAsItIs puts faults at each money transaction: its commit is cut at four points, its statements
// fail, its database is away for long. Once a call of it succeeds, every row of the book and the answer must be what
// they are without faults, and a further call must change nothing. It is done as with PostgreSQL and as with
// CockroachDB, both on PostgreSQL. How the two are spoken to is no matter of the move: in a default run each move is
// cut at one point of CockroachDB's two commits, in turns.
func TestFaultsLeaveTheBookAsItIs(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	t.Parallel()
	lanes := lanes
	if *cuts < thoroughCuts {
		lanes = 1
	}
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprintf("postgresql %d", lane), func(t *testing.T) {
				t.Parallel()
				newFaulty(t, false).each(lane, lanes, func(f *faulty, m move) {
					f.cuts(m, 1, *cuts, points...)
					f.failures(m)
					f.givesUp(m)
				})
			})
			t.Run(fmt.Sprintf("cockroachdb %d", lane), func(t *testing.T) {
				t.Parallel()
				newFaulty(t, true).each(lane, lanes, func(f *faulty, m move) {
					if *cuts < thoroughCuts {
						f.cuts(m, 1+f.at/len(points)%2, 1, points[f.at%len(points)])
						return
					}
					f.cuts(m, 1, *cuts/5, points...) // RELEASE
					f.cuts(m, 2, *cuts/5, points...) // and the COMMIT after it, which decides nothing
					f.failures(m)
					f.givesUp(m)
				})
			})
		}
	})
}

// Each calls do for each move of a lane. Each book equals the one without faults, which was audited; the last one of
// a move is audited as well, for what is not compared.
func (f *faulty) each(lane, lanes int, do func(f *faulty, m move)) {
	all := slices.Concat(moves, movesOfPeople)
	for i := lane; i < len(all); i += lanes {
		f.t.Run(all[i].name, func(t *testing.T) {
			one := *f
			one.t, one.at, one.calm = t, i, map[int64]calm{}
			do(&one, all[i])
			t.Logf("%d runs with %d faults", one.tried, one.faults)
			effort.ErrIs(t, one.audits(), nil)
		})
	}
}

// tries runs a move under scripts, and counts them. In a default run a move has one size.
func (f *faulty) tries(m move, fault string, scripts []*script) {
	f.t.Helper()
	for i, under := range scripts {
		n := sizes[f.at%len(sizes)]
		if *cuts >= thoroughCuts {
			n = sizes[i%len(sizes)]
		}
		if err := f.meets(m, n, under); err != nil {
			f.t.Errorf("%s, run %d with %d addresses, %+v: %v", fault, i, n, under.act, err)
		}
		f.tried, f.faults = f.tried+1, f.faults+under.faults
	}
}

// cuts cuts the given commit of a transaction n times at each of some points; in two of
// three runs more faults may come after it, at statements drawn by a seed.
func (f *faulty) cuts(m move, commit, n int, at ...postgres.Kind) {
	for p, point := range at {
		var scripts []*script
		for i := range n {
			r := rand.New(rand.NewPCG(uint64(p), uint64(i)))
			under := &script{commit: commit, act: postgres.Act{Kind: point}, later: map[int]postgres.Act{}}
			for range i % 3 * r.IntN(3) {
				under.later[1+r.IntN(20)] = failures[r.IntN(len(failures))]
			}
			scripts = append(scripts, under)
		}
		f.tries(m, fmt.Sprintf("cut of commit %d %s", commit, point), scripts)
	}
}

// failures makes each statement of the transaction fail.
func (f *faulty) failures(m move) {
	last := f.without(m, sizes[f.at%len(sizes)]).statements
	for i, act := range failures {
		var scripts []*script
		for n := 1; n <= last; n++ {
			// A default run meets each statement once, in turns, and the last one also with
			// a conflict and with a commit that nobody knows of.
			if *cuts >= thoroughCuts || n%len(failures) == i || n == last && (i == 0 || act.Kind == postgres.FailDone) {
				scripts = append(scripts, &script{statement: n, act: act})
			}
		}
		f.tries(m, fmt.Sprintf("%s %s", act.Kind, act.Code), scripts)
	}
}

// givesUp lets a fault at the commit be the first of so many that the ledger gives up, which takes it a second.
func (f *faulty) givesUp(m move) {
	if *cuts < thoroughCuts && m.name != "settle" {
		return
	}
	conflict, away := failures[0], postgres.Act{Kind: postgres.CutBefore}
	for _, c := range []struct {
		name      string
		act, then postgres.Act
	}{
		{"conflicts for long", conflict, conflict},
		{"away before the commit", away, away},
		{"away with the commit", postgres.Act{Kind: postgres.CutSent}, away},
		{"away after the commit", postgres.Act{Kind: postgres.CutExecuted}, away},
	} {
		f.tries(m, c.name, []*script{{commit: 1, act: c.act, then: c.then}})
	}
}

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
	store, cases := shelf(t, url.String(), url.String()), 0
	effort.Is(t, sqlstore.DatabaseOf(t, url.String()), "cockroachdb", "taken for")
	ledgertest.Exercise(t, func(t *testing.T) ledger.Book {
		cases++
		return store(t)
	})
	t.Logf("%d cases of the conformance suite ran on %s", cases, version)
}
