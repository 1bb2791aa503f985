package mutants

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var run = flag.Bool("mutants", false, "break the source, one change at a time, and run the suites on it")

// root is the module's, from here.
const root = "../../.."

// The suites that must find a mutant.
var (
	// lives is the simulation, which runs package rules and the states.
	lives = []string{"./ledger/ledgertest/simulation", "-run", "^TestEveryLife", "-seeds", "1000"}
	// books are the conformance suite, the simulation beside the embedded ledger and
	// the tests of its tables, which run the SQL too.
	books = []string{"./ledger/sqlstore", "-run", "^(TestConformance|TestEachStatement.*|TestTheSchema.*|" +
		"TestWhatTheTablesKeep|TestNoFailedStatement.*)$/^(sqlite|[^p].*)$"}
	// words are the tests of package ledger itself.
	words = []string{"./ledger"}
)

// mutant is one change of one file.
type mutant struct {
	name     string
	file     string // below the root
	from, to string // from stands exactly once in the file
	suite    []string
}

// TestEveryMutantIsFound builds each mutant and runs the suite that must find it.
func TestEveryMutantIsFound(t *testing.T) {
	if !*run {
		t.Skip("breaking the source takes minutes: run with -mutants")
	}
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) { m.mustFail(t) })
	}
}

// TestEveryMutantFits keeps the table in step with the source, without running anything.
func TestEveryMutantFits(t *testing.T) {
	for _, m := range list {
		if text := m.source(t); strings.Count(text, m.from) != 1 || m.from == m.to {
			t.Errorf("%s: %q stands %d times in %s, want once", m.name, m.from,
				strings.Count(text, m.from), m.file)
		}
	}
	if len(list) < 24 {
		t.Errorf("%d mutants, 24 were wanted", len(list))
	}
}

// source reads the file that a mutant changes.
func (m mutant) source(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mustFail runs the suite over the changed source: it must build, and fail.
func (m mutant) mustFail(t *testing.T) {
	t.Helper()
	broken := filepath.Join(t.TempDir(), filepath.Base(m.file))
	text := strings.Replace(m.source(t), m.from, m.to, 1)
	if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: broken}})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(config, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"test", "-overlay", config, "-vet=off", "-failfast"}, m.suite...)
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = root
	out, err := command.CombinedOutput()
	switch {
	case strings.Contains(string(out), "no tests to run"):
		t.Errorf("the suite is not there: %v", m.suite)
	case err == nil:
		t.Errorf("nobody noticed: %q became %q in %s", m.from, m.to, m.file)
	case !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "panic:"):
		t.Errorf("the mutant was not run: %v\n%s", err, out)
	default:
		t.Logf("found: %s", firstLine(string(out)))
	}
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
