package ledgertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
)

var (
	which = flag.String("mutants", "", "break the source, one change at a time, and run the suites on it: "+
		"all; ci: those of files that differ from -base, at most 40, and a twentieth of the others")
	base = flag.String("base", "", "the commit that the source is compared with; \"\": no file counts as changed")
	seed = flag.Uint64("seed", 0, "draws those of others; 0: a new one, which is printed")
)

// root is the module's, from here.
const root = "../.."

// suite is what must find a mutant: the tests of one package, in stages. What
// finds most mutants in little time is in the first.
type suite struct {
	folder string
	stages [][]string // arguments of the test binary
	then   []suite    // in other folders
}

// engine is the folder of connections and transactions.
const engine = "./ledger/sqlstore/engine"

// suites are those that must find a mutant.
var suites = map[string]suite{
	// lives is the simulation, which runs package transitions and the states.
	"lives": {folder: "./ledger/ledgertest/simulation", stages: [][]string{
		{"-test.skip", "^TestASeedReplaysExactly$", "-seeds", "30"}, {"-test.run", "^TestEveryLife", "-seeds", "1000"}}},
	// books are the conformance suite, the simulation beside the embedded ledger and
	// the tests of its tables, which run the SQL too.
	"books": {folder: "./ledger/sqlstore", stages: [][]string{
		{"-test.run", "^TestConformance$/^sqlite$"},
		{"-test.run", "^(TestTheSchema.*|TestWhatTheTablesKeep)$/^sqlite$"},
		{"-test.run", "^TestEachTransaction.*$/^sqlite$"}}},
	// attempts are the tests of what a caller is told when the database fails.
	"attempts": {folder: engine, stages: [][]string{{"-test.run", "^(TestWhatTheCallerIsTold|TestErrorsAreToldApart|TestErrorsOfTheEmbedded.*)$"}}},
	// locks are the tests of who waits for whom, on PostgreSQL.
	"locks": {engine, [][]string{{"-test.run", "^(TestTheGate|TestOneIsAt|TestAFlood|TestATransactionOfA)"}}, []suite{
		{folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^(TestALocked|TestALeasePasses|TestWhatARun)"}}}, {folder: engine, stages: [][]string{{"-test.run", "^TestAReadingThat"}}}}},
	// sessions are the tests of connections and commits, on PostgreSQL and in CockroachDB's way.
	"sessions": {folder: engine, stages: [][]string{{"-test.run", "^(TestACommit|TestWhatEndsA|TestCockroach|TestAPanic|" +
		"TestAConnectionIsNot|TestACallThat|TestConnectionsSay|TestAFailedTransaction|TestLostConnections|TestAnAttemptEnds)"}}},
	// turns are the tests of package quota.
	"turns": {folder: "./ledger/quota", stages: [][]string{{}}},
	// disks are the tests of the reserve of disk.
	"disks": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^(TestAReserveOfDisk|TestWhatWasErased)"}}},
	// durable are the tests of what a database must not forget.
	"durable": {folder: "./ledger/sqlstore", stages: [][]string{
		{"-test.run", "^(TestPragmasThatForgetAreRefused|TestTheOtherLevels.*)$"},
		{"-test.run", "^TestAServerThatForgetsIsMended$"}}},
	// migrations are the tests of how the schema is changed.
	"migrations": {folder: engine, stages: [][]string{
		{"-test.run", "^(TestAMigrationIsTakenUp.*|TestASchemaChange.*)$"},
		{"-test.run", "^TestAMigration(Beside|GivesUp).*$"}}},
	// clocks are the tests of a clock that jumps.
	"clocks": {engine, [][]string{{"-test.run", "^TestWhichClocksAreBelieved$"}}, []suite{
		{folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^(TestAClockThatJumps.*|TestAfterAStandstill.*)$"}}}}},
	// renewals are the tests of a ledger that gets a new identity.
	"renewals": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestALedgerIsRenewed.*$/^sqlite$"}}},
	// looks are the tests of where looks for what is due begin.
	"looks": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^(TestALookFromABoundO|TestWhatIsOverlooked|TestWhatBecomesDue|TestWhatComesLate)"}}},
	// sweeps are the tests of what a sweep leaves, on disk too.
	"sweeps": {folder: "./ledger/sqlstore", stages: [][]string{
		{"-test.run", "^(TestASweep.*|TestRetentionLeaves.*)$"}}},
	// opened are the tests of how a ledger is opened, and of its connections.
	"opened": {"./ledger/sqlstore", [][]string{
		{"-test.run", "^(TestOpenRefuses.*|TestMigrateMakes.*|TestReadersBeside.*|TestAnOldSchema.*|TestAReopened.*|TestCloseFolds.*)$"},
		{"-test.run", "^(TestAServerIs.*|TestAServersLeases.*|TestAReader.*)$"}}, []suite{{folder: engine, stages: [][]string{
		{"-test.run", "^(TestAReader.*|TestATransactionIsSerializable.*|TestConnectionsSay.*|TestACommitThatFails.*|TestWhatEndsATransaction)$"}}}}},
	// corrections are the tests of what operators set right.
	"corrections": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^(TestAnAccountThat.*|TestWhatHappenedTo.*|TestWhatNoCorrection.*)$/^sqlite$"}}},
	// memories are the tests of what package transitions remembers of settlements.
	"memories": {folder: "./ledger/transitions", stages: [][]string{{}}},
	// unknowns are the exercises with faults: answers to commits are lost.
	"unknowns": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestConformance$/^postgresql$"}}},
	// onces are the tests of how many transactions a call takes.
	"onces": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestASettlementIsOne"}}},
	// cuts are the tests of pages that are cut.
	"cuts": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestAPageOfResults"}}},
	// words are the tests of package ledger itself.
	"words": {folder: "./ledger", stages: [][]string{{}}},
	// days are the tests of the sums of each day.
	"days": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^(TestDaysAddUp.*|TestAuditFindsWhatWasChanged.*)$"}}},
	// breakdowns are the tests of what a breakdown forgets.
	"breakdowns": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestABreakdownForgets"}}},
	// shown is the part of the conformance suite about what pages show.
	"shown": {folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestConformance$/^sqlite$/^(single|recent|statements|operators)"}}},
	// access are the tests of who may use which page of customers, and of forms that are sent by others or twice.
	"access": {folder: "./http/dashboard", stages: [][]string{
		{"-test.run", "^(TestEveryRoute|TestFormsOfOther|TestRefusedBodies|TestSigningIn|TestAKeyIsShown|TestEveryFormTwice)"}, {}}},
	// signingIn are the tests of package signin.
	"signingIn": {folder: "./http/dashboard/signin", stages: [][]string{{}}},
	// provided are the tests of signing in with a provider.
	"provided": {folder: "./http/dashboard", stages: [][]string{{"-test.run", "^(TestSomebodyInvited|TestTheProvider|TestAnAnswerBelongs|TestAnAccountWith)"}}},
	// factors are the tests of codes.
	"factors": {folder: "./http/dashboard", stages: [][]string{{"-test.run", "^Test.*Code"}}},
	// operating are the tests of the pages of operators.
	"operating": {folder: "./http/dashboard/operate", stages: [][]string{{}}},
}

// mutant is one change of one file.
type mutant struct {
	name     string
	file     string // below the root
	from, to string // from stands exactly once in the file
	suite    suite
}

// mutants reads testdata/mutants.txt.
func mutants(t *testing.T) (list []mutant) {
	t.Helper()
	file, unescape := "", strings.NewReplacer(`\n`, "\n", `\t`, "\t")
	for line := range strings.SplitSeq(string(effort.Must(os.ReadFile("testdata/mutants.txt"))(t)), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			file = strings.Trim(line, "[]")
			continue
		}
		head, change, _ := strings.Cut(line, "): ")
		name, of, _ := strings.Cut(head, " (")
		from, to, found := strings.Cut(unescape.Replace(change+" "), " => ") // what it becomes may be nothing
		found = found && suites[of].folder != ""
		effort.FatalIf(t, !found, "this is no mutant, or of no suite: %s", line)
		list = append(list, mutant{name, file, from, strings.TrimSuffix(to, " "), suites[of]})
	}
	return list
}

// TestEveryMutantIsFound builds each mutant and runs the suite that must find it,
// as many at once as there are processors.
func TestEveryMutantIsFound(t *testing.T) {
	if *which == "" {
		t.Skip("breaking the source takes minutes: run with -mutants all, or ci")
	}
	list := mutants(t)
	chosen := choose(t, list)
	begun := time.Now()
	var found, missed atomic.Int64
	t.Run("all", func(t *testing.T) {
		for _, m := range chosen {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				if m.mustFail(t); t.Failed() {
					missed.Add(1)
				} else {
					found.Add(1)
				}
			})
		}
	})
	t.Logf("mutants: %d found, %d missed, %d run of %d, seed %d, %.0f s", found.Load(), missed.Load(),
		found.Load()+missed.Load(), len(list), *seed, time.Since(begun).Seconds())
}

// choose gives the mutants of this run: those of changed files, and a twentieth of the others, which the seed draws.
func choose(t *testing.T, list []mutant) []mutant {
	t.Helper()
	if *which == "all" {
		return list
	}
	effort.MustBe(t, *which, "ci", "-mutants")
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	changed := changedFiles(t)
	var mine, others []mutant
	for _, m := range list {
		if slices.Contains(changed, m.file) {
			mine = append(mine, m)
		} else {
			others = append(others, m)
		}
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	random.Shuffle(len(mine), func(i, k int) { mine[i], mine[k] = mine[k], mine[i] })
	random.Shuffle(len(others), func(i, k int) { others[i], others[k] = others[k], others[i] })
	changes, rest := min(len(mine), changedMost), (len(others)+19)/20
	t.Logf("%d of %d mutants of changed files, and %d of %d others, by -seed %d", changes, len(mine), rest, len(others), *seed)
	return append(mine[:changes], others[:rest]...)
}

// changedMost is how many mutants of changed files a run of CI has: some seconds each. A change of the whole
// ledger is for `make prove`, which runs all of them.
const changedMost = 40

// changedFiles are those that differ from -base, committed or not; none without git, or without that commit.
func changedFiles(t *testing.T) []string {
	t.Helper()
	if *base == "" {
		return nil
	}
	git := exec.CommandContext(t.Context(), "git", "diff", "--name-only", *base, "--")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Logf("no file counts as changed: git diff %s: %v", *base, err)
		return nil
	}
	return strings.Fields(string(out))
}

// TestEveryMutantFits keeps the table in step with the source, without running anything: each mutant's words stand
// there once, and what it makes of them passes the type checker.
func TestEveryMutantFits(t *testing.T) {
	list, names := mutants(t), map[string]bool{}
	var packages types.Importer // nil: a short run starts no compiler
	if !testing.Short() {
		packages = importer.ForCompiler(token.NewFileSet(), "gc", compiled(t))
	}
	for _, m := range list {
		if text := m.source(t); strings.Count(text, m.from) != 1 || m.from == m.to {
			t.Errorf("%s: %q stands %d times in %s, want once", m.name, m.from, strings.Count(text, m.from), m.file)
		}
		effort.ErrorIf(t, names[m.name], "%s: there are two", m.name)
		names[m.name] = true
		if packages != nil {
			m.mustCompile(t, packages)
		}
	}
	effort.ErrorIf(t, len(list) < 200, "%d mutants, 200 were here", len(list))
}

// compiled opens what the compiler wrote of each package.
func compiled(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := quietly(t.Context(), root, "go", "list", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}",
		"./cmd/rollcall")
	effort.OK(t, err, string(out))
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// mustCompile type-checks the changed file of a mutant, with what the other files of its package declare.
func (m mutant) mustCompile(t *testing.T, packages types.Importer) {
	t.Helper()
	if filepath.Ext(m.file) != ".go" {
		return
	}
	set, path := token.NewFileSet(), filepath.Join(root, m.file)
	in := effort.Must(build.ImportDir(filepath.Dir(path), 0))(t)
	files := []*ast.File{effort.Must(parser.ParseFile(set, path, m.changed(t), parser.SkipObjectResolution))(t)}
	for _, name := range in.GoFiles {
		if name == filepath.Base(path) {
			continue
		}
		beside := effort.Must(parser.ParseFile(set, filepath.Join(in.Dir, name), nil, parser.SkipObjectResolution))(t)
		for _, one := range beside.Decls {
			if function, is := one.(*ast.FuncDecl); is {
				function.Body = nil
			}
		}
		files = append(files, beside)
	}
	config := types.Config{Importer: packages, Error: func(err error) {
		// A file without bodies doesn't use all that it imports.
		at, is := errors.AsType[types.Error](err)
		effort.ErrorIf(t, is && set.Position(at.Pos).Filename == path, "%s does not build: %v", m.name, err)
	}}
	_, _ = config.Check(in.ImportPath, set, files, nil)
}

// source reads the file that a mutant changes.
func (m mutant) source(t *testing.T) string {
	t.Helper()
	text := effort.Must(os.ReadFile(filepath.Join(root, m.file)))(t)
	return string(text)
}

// changed is the file with the mutant in it.
func (m mutant) changed(t *testing.T) string {
	t.Helper()
	return strings.Replace(m.source(t), m.from, m.to, 1)
}

// mustFail runs the suite over the changed source: it must build, and fail.
func (m mutant) mustFail(t *testing.T) {
	t.Helper()
	for _, in := range append([]suite{m.suite}, m.suite.then...) {
		if m.foundIn(t, in) {
			return
		}
	}
	t.Errorf("nobody noticed: %q became %q in %s", m.from, m.to, m.file)
}

// foundIn reports whether a suite finds the mutant.
func (m mutant) foundIn(t *testing.T, in suite) bool {
	t.Helper()
	binary := m.build(t, in.folder)
	for _, args := range in.stages {
		// A mutant that hangs is found by the time-out, which panics.
		args = append([]string{"-test.failfast", "-test.timeout", "3m"}, args...)
		out, err := quietly(t.Context(), filepath.Join(root, in.folder), binary, args...)
		switch text := string(out); {
		case strings.Contains(text, "no tests to run"):
			t.Fatalf("the suite is not there: %v", args)
		case err == nil:
			continue
		case !strings.Contains(text, "--- FAIL") && !strings.Contains(text, "panic:"):
			t.Fatalf("the mutant was not run: %v\n%s", err, text)
		default:
			t.Logf("found: %s", firstLine(text))
			return true
		}
	}
	return false
}

// build makes the test binary of a folder with the changed source.
func (m mutant) build(t *testing.T, of string) string {
	t.Helper()
	folder := t.TempDir()
	broken, binary := filepath.Join(folder, filepath.Base(m.file)), filepath.Join(folder, "suite.test")
	effort.OK(t, os.WriteFile(broken, []byte(m.changed(t)), 0o600))
	original := effort.Must(filepath.Abs(filepath.Join(root, m.file)))(t)
	overlay := effort.Must(json.Marshal(map[string]any{"Replace": map[string]string{original: broken}}))(t)
	config := filepath.Join(folder, "overlay.json")
	effort.OK(t, os.WriteFile(config, overlay, 0o600))
	// Without tables for debuggers linking takes half the time.
	out, err := quietly(t.Context(), root, "go", "test", "-c", "-o", binary, "-overlay", config, "-vet=off",
		"-ldflags", "-s -w", of)
	effort.OK(t, err, "it does not build", out)
	return binary
}

// quietly runs a program on one processor, beside the other mutants.
func quietly(ctx context.Context, folder, name string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	return command.CombinedOutput()
}

// firstLine gives the line in which a suite says what it found.
func firstLine(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") || strings.Contains(line, ".go:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}
