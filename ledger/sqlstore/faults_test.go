package sqlstore_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/testserver"
	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/cutter"
	"rollcall/ledger/ledgertest/histories"
	"rollcall/ledger/sqlstore"
)

var cuts = flag.Int("cuts", 1, "cuts of each money transaction at each point of its commit; "+
	"from 100 on, faults also come at every statement in every way")

// thoroughCuts is the number of cuts from which on a run is a long one.
const thoroughCuts = 100

// points are where a commit is cut.
var points = []cutter.Kind{cutter.CutBefore, cutter.CutSent, cutter.CutExecuted, cutter.CutAnswer}

// failures are what else a statement can meet.
var failures = []cutter.Act{
	{Kind: cutter.FailUndone, Code: cutter.SerializationFailure},
	{Kind: cutter.FailUndone, Code: cutter.CompletionUnknown},
	{Kind: cutter.FailDone, Code: cutter.CompletionUnknown},
	{Kind: cutter.CutBefore},
	{Kind: cutter.CutAnswer},
}

// script is a plan that counts from the first BEGIN of a transaction on, so that
// the making of a connection before it is left alone. It belongs to the proxy
// while it is its plan.
type script struct {
	commit    int // act at this commit; 0: none
	statement int // act at this statement; 0: none
	act       cutter.Act
	later     map[int]cutter.Act // by how many statements after that
	then      cutter.Act         // at every other one after it

	begun, restarted, commits, statements int
	metAt                                 int
	met                                   bool
	faults                                int
}

// plan implements cutter.Plan.
func (p *script) plan(s cutter.Statement) cutter.Act {
	if strings.HasPrefix(s.Text, "BEGIN") && !strings.Contains(s.Text, ";") {
		p.begun++
	}
	if strings.HasPrefix(s.Text, "ROLLBACK TO SAVEPOINT") {
		p.restarted++
	}
	if p.begun == 0 {
		return cutter.Act{}
	}
	p.statements++
	if s.Commit {
		p.commits++
	}
	var act cutter.Act
	switch {
	case !p.met && (s.Commit && p.commits == p.commit || p.statements == p.statement):
		p.met, p.metAt, act = true, p.statements, p.act
	case p.met:
		var ok bool
		if act, ok = p.later[p.statements-p.metAt]; !ok {
			act = p.then
		}
	}
	if act.Kind != cutter.Pass {
		p.faults++
	}
	return act
}

// faultLine is a line of the table at the end of a long run.
type faultLine struct {
	way, move, fault                string
	runs, faults, rerun, violations int
	took                            time.Duration
}

// faultTable are the lines so far. Safe for concurrent use.
type faultTable struct {
	mu    sync.Mutex
	lines []faultLine // guarded by mu
}

// String is the table, with the sums.
func (l *faultTable) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortStableFunc(l.lines, func(a, b faultLine) int {
		return cmp.Or(strings.Compare(b.way, a.way), strings.Compare(a.move, b.move))
	})
	var b strings.Builder
	line := func(t faultLine) {
		fmt.Fprintf(&b, "%-11s %-31s %-26s %7d %7d %7d %7d %8.1f\n", t.way, t.move, t.fault, t.runs, t.faults,
			t.rerun, t.violations, t.took.Seconds())
	}
	fmt.Fprintf(&b, "%-11s %-31s %-26s %7s %7s %7s %7s %8s\n", "way", "transaction", "fault", "runs", "faults",
		"re-runs", "wrong", "seconds")
	cut, sum := faultLine{move: "all", fault: "all commit cuts"}, faultLine{move: "all"}
	for _, t := range l.lines {
		line(t)
		sum.add(t)
		if strings.Contains(t.fault, commitCut) {
			cut.add(t)
		}
	}
	line(cut)
	line(sum)
	return b.String()
}

// add sums two lines up.
func (t *faultLine) add(o faultLine) {
	t.runs, t.faults, t.rerun = t.runs+o.runs, t.faults+o.faults, t.rerun+o.rerun
	t.violations, t.took = t.violations+o.violations, t.took+o.took
}

// commitCut is in the name of each fault that cuts a commit.
const commitCut = "commit cut "

// lanes is how many ledgers there are for each way to speak to the database, so
// that a run with -parallel 6 uses the time in which they wait.
const lanes = 3

// TestFaultsLeaveTheBookAsItIs puts faults at each money transaction: its commit
// is cut at four points, its statements fail, its database is away for long. Once
// a call of it succeeds, every row of the book and the answer must be what they
// are without faults, and a further call must change nothing. It is done as with
// PostgreSQL and as with CockroachDB, both on PostgreSQL.
func TestFaultsLeaveTheBookAsItIs(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	table := &faultTable{}
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprintf("postgresql %d", lane), func(t *testing.T) {
				t.Parallel()
				newFaulty(t, false).each(lane, func(f *faulty, m move) {
					f.cuts(m, 1, *cuts, table)
					f.failures(m, table)
					f.givesUp(m, table)
				})
			})
			t.Run(fmt.Sprintf("cockroachdb %d", lane), func(t *testing.T) {
				t.Parallel()
				newFaulty(t, true).each(lane, func(f *faulty, m move) {
					fewer := (*cuts + 4) / 5
					f.cuts(m, 1, fewer, table) // RELEASE
					if f.only = cutter.CutExecuted; *cuts >= thoroughCuts {
						f.only = ""
					}
					f.cuts(m, 2, fewer, table) // and the COMMIT after it, which decides nothing
					f.only = ""
					if *cuts >= thoroughCuts {
						f.failures(m, table)
						f.givesUp(m, table)
					}
				})
			})
		}
	})
	t.Logf("faults at the ledger:\n%s", table)
}

// Each calls do for each move of a lane. Each book equals the one without faults, which was audited; the last one of
// a move is audited as well, for what is not compared.
func (f *faulty) each(lane int, do func(f *faulty, m move)) {
	all := slices.Concat(moves, movesOfPeople)
	for i := lane; i < len(all); i += lanes {
		f.t.Run(all[i].name, func(t *testing.T) {
			one := *f
			one.t, one.calm = t, map[int64]calm{}
			do(&one, all[i])
			if err := one.audits(); err != nil {
				t.Error(err)
			}
		})
	}
}

// counts runs a move under scripts, and counts.
func (f *faulty) counts(m move, fault string, table *faultTable, scripts []*script) {
	f.t.Helper()
	line, begin := faultLine{way: f.way, move: m.name, fault: fault}, time.Now()
	for i, under := range scripts {
		n := []int64{3, 7, 40}[i%3]
		if err := f.meets(m, n, under); err != nil {
			f.t.Errorf("%s, run %d with %d addresses, %+v: %v", fault, i, n, under.act, err)
			line.violations++
		}
		line.runs, line.faults = line.runs+1, line.faults+under.faults
		line.rerun += under.begun + under.restarted - 1
	}
	line.took = time.Since(begin)
	table.mu.Lock()
	defer table.mu.Unlock()
	table.lines = append(table.lines, line)
}

// cuts cuts the given commit of a transaction n times at each point; in two of
// three runs more faults may come after it, at statements drawn by a seed.
func (f *faulty) cuts(m move, commit, n int, table *faultTable) {
	for p, point := range points {
		if f.only != "" && f.only != point {
			continue
		}
		var scripts []*script
		for i := range n {
			r := rand.New(rand.NewPCG(uint64(p), uint64(i)))
			under := &script{commit: commit, act: cutter.Act{Kind: point}, later: map[int]cutter.Act{}}
			for range i % 3 * r.IntN(3) {
				under.later[1+r.IntN(20)] = failures[r.IntN(len(failures))]
			}
			scripts = append(scripts, under)
		}
		what := commitCut
		if commit > 1 {
			what = "2nd " + what
		}
		f.counts(m, what+string(point), table, scripts)
	}
}

// failures makes each statement of the transaction fail.
func (f *faulty) failures(m move, table *faultTable) {
	last := f.without(m, 3).statements
	for i, act := range failures {
		var scripts []*script
		for n := 1; n <= last; n++ {
			// A default run meets each statement once, in turns, and the last one also with
			// a conflict and with a commit that nobody knows of.
			if *cuts >= thoroughCuts || n%len(failures) == i || n == last && (i == 0 || act.Kind == cutter.FailDone) {
				scripts = append(scripts, &script{statement: n, act: act})
			}
		}
		f.counts(m, fmt.Sprintf("%s %s", act.Kind, act.Code), table, scripts)
	}
}

// givesUp lets a fault at the commit be the first of so many that the ledger gives
// up, which takes it a second.
func (f *faulty) givesUp(m move, table *faultTable) {
	if *cuts < thoroughCuts && m.name != "settle" {
		return
	}
	conflict, away := failures[0], cutter.Act{Kind: cutter.CutBefore}
	for _, c := range []struct {
		name      string
		act, then cutter.Act
	}{
		{"conflicts for long", conflict, conflict},
		{"away before the commit", away, away},
		{"away with the commit", cutter.Act{Kind: cutter.CutSent}, away},
		{"away after the commit", cutter.Act{Kind: cutter.CutExecuted}, away},
	} {
		f.counts(m, c.name, table, []*script{{commit: 1, act: c.act, then: c.then}})
	}
}

// faultEvery is how many statements pass for one that meets a fault: few enough
// that many transactions meet one, and so many that none meets eight in a row.
const faultEvery = 100

// atRandom is a plan of faults that the ledger must get over by itself. An answer
// that was begun is not cut, since what a caller has read cannot be read again.
func atRandom(seed uint64) cutter.Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	anywhere := []cutter.Act{
		{Kind: cutter.CutBefore},
		{Kind: cutter.FailUndone, Code: cutter.SerializationFailure},
		{Kind: cutter.FailUndone, Code: cutter.CompletionUnknown},
	}
	atCommit := append([]cutter.Act{
		{Kind: cutter.CutSent}, {Kind: cutter.CutExecuted}, {Kind: cutter.CutAnswer},
		{Kind: cutter.FailDone, Code: cutter.CompletionUnknown},
	}, anywhere...)
	return func(s cutter.Statement) cutter.Act {
		acts, every := anywhere, faultEvery
		if s.Commit {
			acts, every = atCommit, faultEvery/10
		}
		if r.IntN(every) > 0 {
			return cutter.Act{}
		}
		return acts[r.IntN(len(acts))]
	}
}

// seenWhole is a ledger whose faults do not meet an audit, a list of entries and a statement,
// which are one reading each that is not begun again.
type seenWhole struct {
	*sqlstore.Store
	past *sqlstore.Store
}

func (s seenWhole) Audit(ctx context.Context) (ledger.AuditReport, error) { return s.past.Audit(ctx) }

func (s seenWhole) Entries(ctx context.Context, q ledger.EntriesQuery) (ledger.Statement, error) {
	return s.past.Entries(ctx, q)
}

func (s seenWhole) Statement(ctx context.Context, q ledger.StatementQuery) (ledger.WorkspaceStatement, error) {
	return s.past.Statement(ctx, q)
}

func (s seenWhole) Close() error { return nil } // it is used again

// TestConformanceUnderFaults runs the whole suite while one statement in a hundred
// and one commit in ten meet a fault: nobody who uses the ledger may notice.
func TestConformanceUnderFaults(t *testing.T) {
	if *cuts < thoroughCuts {
		t.Skipf("skipped: it takes half a minute; run with -cuts %d", thoroughCuts)
	}
	for name, cockroach := range map[string]bool{"postgresql": false, "cockroachdb": true} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, cockroach)
			plan := atRandom(1)
			open := func(t *testing.T) ledger.Book {
				f.proxy.SetPlan(nil)
				f.t = t
				f.sql(`DELETE FROM secrets; DELETE FROM api_keys;` + emptied())
				f.proxy.SetPlan(plan)
				return seenWhole{f.through, f.past}
			}
			ledgertest.Exercise(t, open)
			t.Run("random operations against the model", func(t *testing.T) { histories.Walk(t, 100, open) })
			if t.Logf("%v", f.proxy.Counts()); f.proxy.Injected() == 0 {
				t.Error("there were no faults")
			}
		})
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
