package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// People in a hurry copy blocks of shell commands from documents. A script runs the blocks of one document unchanged
// and in order, in a shell whose world is in the state that the document describes.

// script is a document, and the world in which its blocks run.
type script struct {
	document string // below docs
	mark     string // blocks between this mark and its end run; "": all blocks
	folder   string // in which the blocks run
	environ  []string
	// names replaces names in the document that cannot exist here, such as the address of a machine or an id. Nothing
	// else in a block changes.
	names map[string]string
	// before has calls that change the world before a block, by the first line of the block in the document.
	before map[string]func()
	// fails are the commands that must fail, as the document says, and their exit codes.
	fails map[string]int
	// types is what a person types at a terminal, by the output of a command after which the person types it.
	types map[string]string
	// standIns are shell lines in place of programs that do not exist here.
	standIns map[string]string
	// inside is a command that runs the shell elsewhere, with the binary in its folder. Empty: the shell runs here.
	inside []string
}

// block is a fenced block of shell commands, with the output that the document shows below it, and the mark above it
// if a test of its own runs it.
type block struct{ text, shown, mark string }

// first is the first line of a block, which names it.
func (b block) first() string {
	line, _, _ := strings.Cut(b.text, "\n")
	return line
}

// neverRun lists the blocks that no test runs, by document and first line, with the reason.
var neverRun = map[string]map[string]string{
	"README.md": {
		`go run ./cmd/rollcall verify --lab examples/contacts.csv   # the main job: one file, simulated receivers`: "continuous " +
			"integration runs these two commands last; a test can't run the tests",
		"go build -o rollcall ./cmd/rollcall": "the tour needs a node that runs beside it: the test starts one with this " +
			"binary",
	},
	"docs/start/database.md": {
		"COCKROACH_BINARY=/usr/local/bin/cockroach go test ./ledger/sqlstore -run '^TestConformanceOnCockroachDB$' " +
			"-count 1 -v": "needs CockroachDB",
	},
}

// scripted finds, in the tests, the documents that scripts run.
var scripted = regexp.MustCompile(`script\{document: "([^"]+)"`)

// TestEveryBlockOfTheDocumentsIsRun: a test runs each block of shell commands, or neverRun lists it. Every entry of
// neverRun exists.
func TestEveryBlockOfTheDocumentsIsRun(t *testing.T) {
	tests := effort.Must(filepath.Glob("*_test.go"))(t)
	run := map[string]bool{}
	for _, name := range tests {
		text := effort.Must(os.ReadFile(name))(t)
		for _, m := range scripted.FindAllStringSubmatch(string(text), -1) {
			run["docs/"+m[1]] = true
		}
	}
	documents := []string{"README.md"}
	for _, pattern := range []string{"docs/*/*.md", "docs/operators/runbooks/*.md"} {
		found := effort.Must(filepath.Glob(filepath.Join(HouseRoot, pattern)))(t)
		for _, name := range found {
			documents = append(documents, strings.TrimPrefix(filepath.ToSlash(name), HouseRoot+"/"))
		}
	}
	effort.ErrorIf(t, len(documents) < 30, "only %d documents were found", len(documents))
	reasons := maps.Clone(neverRun)
	for _, name := range documents {
		left := maps.Clone(reasons[name])
		delete(reasons, name)
		for _, b := range blocksOf(t, name) {
			if _, is := left[b.first()]; is {
				delete(left, b.first())
			} else if !run[name] && b.mark == "" {
				t.Errorf("%s: no test runs the block %q", name, b.first())
			}
		}
		for first := range left {
			t.Errorf("neverRun has a block of %s that does not exist: %q", name, first)
		}
	}
	for name := range reasons {
		t.Errorf("neverRun has a document that does not exist: %s", name)
	}
}

// blocksOf reads the blocks of a document. A block without a language right below another block is that block's
// output.
func blocksOf(t *testing.T, document string) (blocks []block) {
	t.Helper()
	text := effort.Must(os.ReadFile(filepath.Join(HouseRoot, document)))(t)
	open, language, indent, near, mark := false, "", "", false, ""
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		switch fence, is := strings.CutPrefix(trimmed, "```"); {
		case is && !open:
			open, language, indent = true, fence, line[:strings.Index(line, "`")]
			if language == "sh" {
				blocks = append(blocks, block{mark: mark})
			}
		case is:
			open, near = false, language == "sh"
		case open && language == "sh":
			blocks[len(blocks)-1].text += strings.TrimPrefix(line, indent)
		case open && language == "" && near:
			blocks[len(blocks)-1].shown += strings.TrimPrefix(line, indent)
		case strings.HasSuffix(trimmed, " end -->"):
			mark = ""
		case strings.HasPrefix(trimmed, "<!-- "):
			mark, _, _ = strings.Cut(strings.TrimPrefix(trimmed, "<!-- "), ":")
		case trimmed != "":
			near = false
		}
	}
	return blocks
}

// run runs the blocks and returns the output of each.
func (s script) run(t *testing.T) (printed []string) {
	t.Helper()
	name := "docs/" + s.document
	shell := s.start(t)
	seen := map[string]bool{}
	for i, b := range blocksOf(t, name) {
		if _, left := neverRun[name][b.first()]; left || s.mark != "" && s.mark != b.mark {
			continue
		}
		if prepare := s.before[b.first()]; prepare != nil {
			prepare()
			seen[b.first()] = true
		}
		out := shell.block(i, s.called(b.text))
		for line := range strings.Lines(s.called(b.shown)) {
			if !shape(line).MatchString(out) {
				t.Errorf("%s: the block %q does not print %q. It prints\n%s", name, b.first(), line, out)
			}
		}
		printed = append(printed, out)
	}
	for first := range s.before {
		effort.ErrorIf(t, !seen[first], "%s has no block that begins with %q", name, first)
	}
	effort.ErrorIf(t, printed == nil, "%s has no block %s", name, s.mark)
	shell.end()
	return printed
}

// tour runs the blocks of a document below a mark against a node with the lab, and returns their output. The test
// chooses ports and binary.
func tour(t *testing.T, document, mark string) string {
	t.Helper()
	c := newCLI(t)
	name := effort.Must(binary())(t)
	for link, target := range map[string]string{"rollcall": name, "examples": filepath.Dir(example(t,
		"contacts.csv"))} {
		effort.OK(t, os.Symlink(target, filepath.Join(c.folder, link)))
	}
	_, api := startDev(c)
	// The document waits until an override ends; the test uses a shorter override.
	return strings.Join(script{mark: mark, document: document, folder: c.folder, environ: c.environ,
		names: map[string]string{"http://127.0.0.1:8080": api, "--for 30s": "--for 12s"}}.run(t), "")
}

// TestReadmeTour runs the lines of the README's tour.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	holds(t, tour(t, "../README.md", "tour"), `{"credits":1000000}`, `"status":"uploading"`, "308\n", "ange: bytes=0-99",
		"200\n", "Retry-After: ", "email,result,message,checked_at", `"next_cursor":null`, `"status":"completed`,
		`"invalid_api_key"`, "openapi: ", "OUTCOME", "every invariant holds")
}

// TestAnEveningFromTheDocs runs the lines of the guide to throttles: why a file is slow, half the rate of a receiver
// for a while, a candidate tried, and the override's end.
func TestAnEveningFromTheDocs(t *testing.T) {
	t.Parallel()
	out := tour(t, "operators/receivers.md", "evening")
	holds(t, out, "400 addresses", "an hour at present", "FIELD ", "built in", "150/min",
		"postmaster asked us to go slower", "override", "candidate.toml can be used", "evening-clean.test", "throttle set")
	if last := out[strings.LastIndex(out, "rcpt_rate "):]; strings.Contains(last[:strings.Index(last, "\n")], "override") {
		t.Errorf("the override did not end:\n%s", out)
	}
}

// called replaces, in a text, names of the document by names of this world.
func (s script) called(text string) string {
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(s.names), longestFirst) {
		text = strings.ReplaceAll(text, name, s.names[name])
	}
	return text
}

var (
	// varies are the parts of a line that differ from run to run, and patterns that match them.
	varies = []struct{ part, looks *regexp.Regexp }{
		{regexp.MustCompile(`^…$`), regexp.MustCompile(`.*`)},
		{regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z`),
			regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z`)},
		{regexp.MustCompile(`^[0-9]{2}:[0-9]{2}(:[0-9]{2})?Z`), regexp.MustCompile(`[0-9]{2}:[0-9]{2}(:[0-9]{2})?Z`)},
		{regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f-]{27})?`), regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f-]{27})?`)},
		{regexp.MustCompile(`^[0-9][0-9,.]*(ms|s|m|h|d)\b`), regexp.MustCompile(`[0-9][0-9,.]*(ms|s|m|h|d)`)},
		{regexp.MustCompile(`^[0-9][0-9,.]*`), regexp.MustCompile(`[0-9][0-9,.]*`)},
	}
	// portOf matches the port of an address.
	portOf = regexp.MustCompile(`:[0-9]{2,5}$`)
)

// shape returns a pattern for a line of a document's output in any run: words must be equal; ids, numbers and times
// may differ.
func shape(line string) *regexp.Regexp {
	var parts []string
	for _, word := range strings.Fields(line) {
		lead := word[:len(word)-len(strings.TrimLeft(word, "(\"'"))]
		word = word[len(lead):]
		looks := ""
		for _, v := range varies {
			if m := v.part.FindString(word); m != "" && looks == "" {
				looks, word = v.looks.String(), word[len(m):]
			}
		}
		if port := portOf.FindString(word); port != "" {
			looks, word = looks+regexp.QuoteMeta(strings.TrimSuffix(word, port))+":[0-9]+", ""
		}
		parts = append(parts, regexp.QuoteMeta(lead)+looks+regexp.QuoteMeta(word))
	}
	return regexp.MustCompile(`(?m)^[ \t]*` + strings.Join(parts, `[ \t]+`) + `[ \t\r]*$`)
}

// TestShapesOfLines: lines that differ only in numbers have the same shape; lines with other words don't.
func TestShapesOfLines(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		want           bool
	}{
		{"* d61f6bd5  node-1  serving  devel    15s         0", "* 01234567  node-1  serving  devel  2m   1,204\n", true},
		{"* d61f6bd5  node-1  serving  devel    15s         0", "* 01234567  node-2  serving  devel  2m   1,204\n", false},
		{"* d61f6bd5  node-1  serving  devel    15s         0", "* 01234567  node-1  lost  devel  2m   1,204\n", false},
		{"node-3 (ce876c93) has no leases", "node-3 (01234567) has no leases\n", true},
		{"node-3 (ce876c93) has no leases", "node-3 (01234567) has no leases left\n", false},
		{"what the node at http://127.0.0.1:8081 sees", "what the node at http://127.0.0.1:5012 sees", true},
		{"every invariant holds; read in 0.0 s", "every invariant holds; read in 1.2 s", true},
		{"…", "anything at all", true},
		{"begins … ends", "begins and then ends", true},
	} {
		effort.Is(t, shape(c.shown).MatchString(c.printed), c.want, fmt.Sprintf("%q, %q", c.shown, c.printed))
	}
}

// scriptShell is the shell that runs the blocks of a document one after the other.
type scriptShell struct {
	t       *testing.T
	script  script
	command *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Scanner
	failed  strings.Builder
}

// scriptPrelude runs before the first block. It makes the shell stop at the first command that fails although the
// document doesn't say so.
//
//go:embed testdata/prelude.sh
var scriptPrelude string

// watched runs the binary. If the command shows something until Ctrl-C, watched sends SIGINT after two seconds.
const watched = `#!/bin/sh
case " $* " in
*" --watch "*) exec timeout --preserve-status --signal INT 2 %[1]s "$@" ;;
esac
exec %[1]s "$@"
`

// start starts the shell.
func (s script) start(t *testing.T) *scriptShell {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("the blocks are not run: there is no bash")
	}
	name := effort.Must(binary())(t)
	programs := t.TempDir()
	if len(s.inside) > 0 {
		name = filepath.Join(s.folder, "rollcall")
	}
	texts := map[string]string{"rollcall": fmt.Sprintf(watched, name)}
	for program, lines := range s.standIns {
		texts[program] = "#!/bin/sh\necho \"" + program + " $*\" >> called\n" + lines + "\n"
	}
	for program, text := range texts {
		effort.OK(t, os.WriteFile(filepath.Join(programs, program), []byte(text), 0o755))
	}
	prelude := scriptPrelude + "declare -A fails met\n"
	for command, code := range s.fails {
		prelude += fmt.Sprintf("fails[%s]=%d\n", quotedForShell(command), code)
	}
	inside := append(slices.Clone(s.inside), bash)
	h := &scriptShell{t: t, script: s, command: exec.CommandContext(t.Context(), inside[0], inside[1:]...)}
	h.command.Dir, h.command.WaitDelay = s.folder, time.Second
	h.command.Env = append((&cli{t: t, environ: s.environ}).command(t.Context()).Env,
		"PATH="+programs+":"+os.Getenv("PATH"))
	h.command.Stderr = &h.failed
	in := effort.Must(h.command.StdinPipe())(t)
	out := effort.Must(h.command.StdoutPipe())(t)
	effort.OK(t, h.command.Start())
	h.in, h.answers = in, bufio.NewScanner(out)
	t.Cleanup(func() { _ = in.Close(); _ = h.command.Wait() })
	h.tell(prelude)
	return h
}

// quotedForShell returns a text as one word of the shell.
func quotedForShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// tell sends lines to the shell.
func (h *scriptShell) tell(lines string) {
	h.t.Helper()
	_, err := io.WriteString(h.in, lines+"\n")
	effort.FatalIf(h.t, err != nil, "%v: %s", err, h.failed.String())
}

// block runs one block and returns its output.
func (h *scriptShell) block(number int, text string) string {
	h.t.Helper()
	folder := h.t.TempDir()
	commands, out := filepath.Join(folder, "block"), filepath.Join(folder, "out")
	err := os.WriteFile(commands, []byte(text+"\n:\n"), 0o644)
	if err == nil {
		err = os.Chmod(folder, 0o777) // the shell may run as another user
	}
	effort.OK(h.t, err)
	if len(h.script.types) > 0 {
		return h.atTerminal(number, commands)
	}
	h.tell(fmt.Sprintf(". %s < /dev/null > %s 2>&1; echo ended %d", commands, out, number))
	read := func() string {
		printed := effort.Must(os.ReadFile(out))(h.t)
		return string(printed)
	}
	h.wait(number, read)
	return read()
}

// atTerminal runs the commands of a file at a terminal and returns what a person sees there.
func (h *scriptShell) atTerminal(number int, commands string) string {
	h.t.Helper()
	const end = "\r\nend of the block\r\n"
	terminal := newTerminal(h.t, h.script.types)
	h.tell(fmt.Sprintf(". %s < %[2]s > %[2]s 2>&1; printf '\\nend of the block\\n' > %[2]s; echo ended %d", commands,
		terminal.name, number))
	h.wait(number, terminal.shown)
	until(h.t, func() (bool, string) { return strings.Contains(terminal.shown(), end), terminal.shown() })
	return strings.ReplaceAll(strings.TrimSuffix(terminal.shown(), end), "\r\n", "\n")
}

// wait waits for the end of a block.
func (h *scriptShell) wait(number int, printed func() string) {
	h.t.Helper()
	if !h.answers.Scan() || h.answers.Text() != fmt.Sprint("ended ", number) {
		h.t.Fatalf("docs/%s: block %d failed: %s%s", h.script.document, number+1, printed(), h.failed.String())
	}
}

// end checks that every command that had to fail has failed.
func (h *scriptShell) end() {
	h.t.Helper()
	h.tell("missed")
	for h.answers.Scan() && h.answers.Text() != "missed all" {
		h.t.Errorf("docs/%s: this had to fail, but did not, or does not exist: %s", h.script.document, h.answers.Text())
	}
	effort.ErrIs(h.t, h.in.Close(), nil)
}
