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

// stage is a part of a suite, which must find a mutant: tests of one package.
type stage struct {
	folder string
	args   []string // of the test binary
}

// suites reads testdata/suites.txt.
func suites(t *testing.T) map[string][]stage {
	t.Helper()
	found := map[string][]stage{}
	for line := range strings.Lines(string(effort.Must(os.ReadFile("testdata/suites.txt"))(t))) {
		if name, tests, is := strings.Cut(line, ": "); is && line[0] != '#' {
			words := strings.Fields(tests)
			found[name] = append(found[name], stage{"./" + words[0], words[1:]})
		}
	}
	return found
}

// mutant is one change of one file.
type mutant struct {
	name     string
	file     string // below the root
	from, to string // from stands exactly once in the file
	suite    []stage
}

// mutants reads testdata/mutants.txt.
func mutants(t *testing.T) (list []mutant) {
	t.Helper()
	all, file, unescape := suites(t), "", strings.NewReplacer(`\n`, "\n", `\t`, "\t")
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
		found = found && all[of] != nil
		effort.FatalIf(t, !found, "this is no mutant, or of no suite: %s", line)
		list = append(list, mutant{name, file, from, strings.TrimSuffix(to, " "), all[of]})
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

// choose returns the mutants of this run: those of changed files, and a twentieth of the others, which the seed draws.
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
	binary, of := "", ""
	for _, s := range m.suite {
		if s.folder != of {
			binary, of = m.build(t, s.folder), s.folder
		}
		// A mutant that hangs is found by the time-out, which panics.
		args := append([]string{"-test.failfast", "-test.timeout", "3m"}, s.args...)
		out, err := quietly(t.Context(), filepath.Join(root, s.folder), binary, args...)
		switch text := string(out); {
		case strings.Contains(text, "no tests to run"):
			t.Fatalf("the suite is not there: %v", args)
		case err == nil:
			continue
		case !strings.Contains(text, "--- FAIL") && !strings.Contains(text, "panic:"):
			t.Fatalf("the mutant was not run: %v\n%s", err, text)
		default:
			t.Logf("found: %s", firstLine(text))
			return
		}
	}
	t.Errorf("nobody noticed: %q became %q in %s", m.from, m.to, m.file)
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

// firstLine returns the line of a suite's output that names the failure.
func firstLine(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") || strings.Contains(line, ".go:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}
