package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp/smtplab"
)

// These tests run the binary as people do: they build it once and check exit codes, lines and files.

// cliWait bounds one run of the binary in a test.
const cliWait = 3 * time.Minute

// binaryPlace is the folder for binaryFolder. binaryFolder holds the binary once a test has asked for it.
var binaryPlace, binaryFolder string

// binary builds rollcall once for all tests, without what only a debugger needs.
var binary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp(binaryPlace, "rollcall-test-")
	if err != nil {
		return "", err
	}
	binaryFolder = folder
	name := filepath.Join(folder, "rollcall")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", name, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return name, nil
})

// atATime is how many tests run beside each other, unless -parallel sets another number. However few processors there
// are, these tests wait nearly all the time.
const atATime = 16

func TestMain(m *testing.M) {
	effort.AtOnce(atATime)
	binaryPlace = os.TempDir()
	if memory := memoryFolder(); memory != "" && os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", memory); err != nil { // tests kill processes, but no machine
			fmt.Fprintln(os.Stderr, err)
		}
	}
	code := postgres.Main(m)
	if binaryFolder != "" {
		os.RemoveAll(binaryFolder)
	}
	os.Exit(code)
}

// cli is a folder in which the binary is run.
type cli struct {
	t       *testing.T
	folder  string
	environ []string
	binary  string // "": the binary of this tree
	here    bool   // runs are calls in this process
}

func newCLI(t *testing.T) *cli {
	t.Helper()
	effort.Children(t)
	effort.Unraced(t, "the binary is built without it")
	effort.Must(binary())(t)
	return &cli{t: t, folder: t.TempDir()}
}

// newHere is newCLI for tests that need no process of their own: a run is a call in this process, in the folder.
func newHere(t *testing.T) *cli {
	t.Helper()
	c := &cli{t: t, folder: t.TempDir(), here: true}
	t.Chdir(c.folder)
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "ROLLCALL_") {
			t.Setenv(name, "") // so that the old value is restored at the end
			effort.OK(t, os.Unsetenv(name))
		}
	}
	return c
}

// command prepares one run. It passes no ROLLCALL_ variable of the tester's environment on.
func (c *cli) command(ctx context.Context, args ...string) *exec.Cmd {
	name := effort.Must(binary())(c.t)
	if c.binary != "" {
		name = c.binary
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = c.folder
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "ROLLCALL_") {
			command.Env = append(command.Env, line)
		}
	}
	if !effort.Long() { // long runs measure
		command.Env = append(command.Env, "GOGC=400")
	}
	command.Env = append(command.Env, c.environ...)
	return command
}

// run runs the binary to its end.
func (c *cli) run(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), cliWait)
	defer cancel()
	var out, errs bytes.Buffer
	if c.here {
		for _, line := range c.environ {
			name, value, _ := strings.Cut(line, "=")
			c.t.Setenv(name, value)
		}
		return run(ctx, append([]string{}, args...), &out, &errs), out.String(), errs.String()
	}
	command := c.command(ctx, args...)
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	exit := (*exec.ExitError)(nil)
	effort.FatalIf(c.t, err != nil && !errors.As(err, &exit), "rollcall %q: %v", args, err)
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

// does runs a command that must succeed, and returns its standard output.
func (c *cli) does(args ...string) (stdout string) {
	c.t.Helper()
	code, stdout, stderr := c.run(args...)
	effort.FatalIf(c.t, code != exitDone, "rollcall %q: got code %d, %s%s", args, code, stdout, stderr)
	return stdout
}

// fails runs a command that must end with code, and returns all its output.
func (c *cli) fails(code int, args ...string) (said string) {
	c.t.Helper()
	got, stdout, stderr := c.run(args...)
	effort.Is(c.t, got, code, "rollcall", args, "code and", stdout+stderr)
	return stdout + stderr
}

// asks runs a command that must succeed, with --json, and decodes its answer.
func (c *cli) asks(into any, args ...string) {
	c.t.Helper()
	stdout := c.does(append(args, "--json")...)
	effort.OK(c.t, json.Unmarshal([]byte(stdout), into), "rollcall", args, stdout)
}

// write puts a file into the folder and returns its name.
func (c *cli) write(name, text string) string {
	c.t.Helper()
	effort.OK(c.t, os.WriteFile(filepath.Join(c.folder, name), []byte(text), 0o600))
	return name
}

// example returns the path of a file in examples.
func example(t *testing.T, name string) string {
	t.Helper()
	return effort.Must(filepath.Abs(filepath.Join(HouseRoot, "examples", name)))(t)
}

// TestWrongCallsGetOneClearLineAndTheirCode: standard output stays empty.
func TestWrongCallsGetOneClearLineAndTheirCode(t *testing.T) {
	c := newHere(t)
	c.write("empty.csv", "")
	c.write("list.csv", "email\na@a.test\n")
	c.write("bad.toml", "[smtp]\nprot = 25\n")
	c.does("cluster", "cert", "init")
	c.does("cluster", "cert", "init", "--dir", "open")
	effort.OK(t, os.Chmod("open/ca.key", 0o644))
	const workspace = "00000000-0000-0000-0000-000000000000"
	c.environ = []string{"ROLLCALL_ADMIN=http://127.0.0.1:1"}
	for _, x := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, `rollcall: "rollcall" needs a command`},
		{"verfy", exitUsage, `unknown command "verfy" for "rollcall": did you mean verify?`},
		{"key creat", exitUsage, "did you mean create?"},
		{"foo", exitUsage, `unknown command "foo" for "rollcall"` + "\n"}, // no known command is similar
		{"help foo", exitUsage, `unknown command "foo" for "rollcall"`},
		{"help verfy", exitUsage, `unknown command "verfy" for "rollcall": did you mean verify?`},
		{"help throttle foo", exitUsage, `unknown command "foo" for "rollcall throttle"`},
		{"completion bush", exitUsage, `unknown command "bush" for "rollcall completion": did you mean`},
		{"audit --jsno", exitUsage, "unknown flag: --jsno"},
		{"verify x.csv --jsn", exitUsage, "did you mean --json?"},
		{"verify x.csv --labs", exitUsage, "did you mean --lab?"},
		{"verify x.csv -lab", exitUsage, "did you mean --lab?"},
		{"verify x.csv --nothing-near", exitUsage, "unknown flag: --nothing-near\n"},
		{"verify", exitUsage, "FILE is missing"},
		{"version x", exitUsage, `unexpected argument "x"`},
		{"key list", exitUsage, "--workspace is missing"},
		{"credits show --workspace x", exitFailed, "no node answers at http://127.0.0.1:1"},
		{"credits grant --workspace " + workspace + " 0", exitUsage, `"0" is not a number of credits`},
		{"verify list.csv --api http://127.0.0.1:1", exitUsage, "set ROLLCALL_KEY or give --key"},
		{"verify list.csv --api http://127.0.0.1:1 --key k --lab", exitUsage, "--lab and --api don't go together"},
		{"verify list.csv --key k", exitUsage, "--key needs --api URL"},
		{"verify x --api here --key k", exitUsage, `"here" is not a URL: write one such as http://127.0.0.1:8080`},
		{"audit --admin here", exitUsage, `--admin "here" is not a URL: write one such as http://127.0.0.1:8`},
		{"verify none.csv", exitFailed, "there is no file none.csv: check the path"},
		{"verify --lab empty.csv", exitFailed, "empty.csv is empty"},
		{"verify .", exitFailed, ". is not a regular file"},
		{"workspace list", exitFailed,
			"no node answers at http://127.0.0.1:1: start one with `rollcall serve`, or give --admin"},
		{"audit", exitFailed, "no node answers at http://127.0.0.1:1"},
		{"config check bad.toml", exitFailed, `bad.toml:2:1: unknown key "smtp.prot": did you mean "smtp.port"?`},
		{"serve --config bad.toml", exitFailed, `bad.toml:2:1: unknown key "smtp.prot"`},
		{"serve --config none.toml", exitFailed, "there is no file none.toml: check the path"},
		{"lab --network here", exitUsage, `--network "here" is not a network`},
		{"lab --network 192.0.2.0/24", exitUsage, "Network"}, // a public one
		{"lab --dns here", exitUsage, `--dns "here" is not an address and port`},
		{"lab --dns 192.0.2.1:53", exitUsage, "DNSListen"}, // elsewhere
		{"lab --network 10.77.0.0/16", exitFailed, "ip route add local"},
		{"lab --sheet 192.0.2.1:1", exitFailed, "--sheet"},
		{"cluster cert", exitUsage, "needs a command"},
		{"cluster cert node", exitUsage, "NAME is missing"},
		{"cluster cert node Node_1", exitUsage, "node-1.example.net"},
		{"cluster cert node ../a", exitUsage, "cannot be a node's name"},
		{"cluster cert node ca --renew", exitUsage, "cannot be a node's name"},
		{"cluster cert node a --days 0", exitUsage, "1 to 3650"},
		{"cluster cert node a --days 3651", exitUsage, "1 to 3650"}, // longer than the CA
		{"cluster cert node a --dir none", exitFailed, "cluster cert init"},
		{"cluster cert node a --dir open", exitFailed, "chmod 600"},
		{"cluster cert show none", exitFailed, "no such file"},
	} {
		code, stdout, stderr := c.run(strings.Fields(x.args)...)
		effort.Is(t, code, x.code, "rollcall", x.args)
		effort.Has(t, stderr, x.want, "rollcall", x.args)
		effort.ErrorIf(t, stdout != "" || x.code == exitFailed && strings.Count(lastLines(stderr), "\n") != 1,
			"rollcall %s: got %q and %q, want one line", x.args, stdout, stderr)
	}
}

// lastLines returns the lines that begin with the program's name, which leaves out notices.
func lastLines(stderr string) (lines string) {
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "rollcall: ") {
			lines += line
		}
	}
	return lines
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		effort.Has(t, c.does("completion", shell), "rollcall", shell)
	}
}

func TestAUsedPortIsToldInOneLine(t *testing.T) {
	t.Parallel()
	taken := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	c := newCLI(t)
	c.environ = []string{
		"ROLLCALL_HTTP_LISTEN=" + taken.Addr().String(),
		"ROLLCALL_UPLOAD_LISTEN=127.0.0.1:0", "ROLLCALL_ADMIN_LISTEN=127.0.0.1:0",
	}
	code, _, stderr := c.run("serve")
	effort.ErrorIf(t, code != exitFailed || strings.Count(lastLines(stderr), "\n") != 1 ||
		!strings.Contains(stderr, taken.Addr().String()) || !strings.Contains(stderr, "another port"),
		"got code %d and %q", code, stderr)
}

// background is a program that runs beside the test.
type background struct {
	t       *testing.T
	command *exec.Cmd
	lines   chan string   // of standard output and standard error; nil if the output goes elsewhere
	ended   chan struct{} // closed at its end
	err     error         // of the program's end; read it after ended
}

// starter starts a program that runs until a channel is closed.
type starter func(command *exec.Cmd, until <-chan struct{}) error

// startHere is the starter of programs that are in no network of their own.
func startHere(command *exec.Cmd, _ <-chan struct{}) error { return command.Start() }

// beside starts a program beside the test; it is killed when the test ends.
func beside(t *testing.T, command *exec.Cmd, start starter) *background {
	t.Helper()
	b := &background{t: t, command: command, ended: make(chan struct{})}
	effort.OK(t, start(command, b.ended))
	go func() {
		b.err = command.Wait()
		close(b.ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // fails if the program has ended, as it should
		<-b.ended
	})
	return b
}

// listened is beside for a program whose lines the test reads.
func listened(t *testing.T, command *exec.Cmd, start starter) *background {
	t.Helper()
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer
	b := beside(t, command, start)
	b.lines = make(chan string, 1000)
	go readLines(reader, b.lines)
	go func() {
		<-b.ended
		writer.Close()
	}()
	return b
}

// start starts the binary and collects its lines.
func (c *cli) start(args ...string) *background {
	c.t.Helper()
	return listened(c.t, c.command(context.Background(), args...), startHere)
}

// readLines sends lines until the reader ends. It drops lines for which the channel has no room.
func readLines(from io.Reader, to chan<- string) {
	defer close(to)
	buffer, rest := make([]byte, 4096), ""
	for {
		n, err := from.Read(buffer)
		rest += string(buffer[:n])
		for {
			line, after, found := strings.Cut(rest, "\n")
			if !found {
				break
			}
			rest = after
			select {
			case to <- line:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// waitFor waits for a line that contains text and returns the line.
func (b *background) waitFor(text string) string {
	b.t.Helper()
	deadline := time.After(cliWait)
	var seen []string
	for {
		select {
		case line, ok := <-b.lines:
			effort.FatalIf(b.t, !ok, "it ended without %q; it said\n%s", text, strings.Join(seen, "\n"))
			seen = append(seen, line)
			if strings.Contains(line, text) {
				return line
			}
		case <-deadline:
			b.t.Fatalf("no %q within %v; it said\n%s", text, cliWait, strings.Join(seen, "\n"))
		}
	}
}

// stop sends a signal and returns the exit code.
func (b *background) stop(signal os.Signal) int {
	b.t.Helper()
	effort.OK(b.t, b.command.Process.Signal(signal))
	return b.wait(30 * time.Second) // a node has 30 s to end, as documented
}

// wait waits for the end and returns the exit code, or -1 after a signal.
func (b *background) wait(within time.Duration) int {
	b.t.Helper()
	select {
	case <-b.ended:
	case <-time.After(within):
		b.t.Fatalf("%s did not end within %v", b.command.Path, within)
	}
	return b.command.ProcessState.ExitCode()
}

// terminate ends a node by SIGTERM. The node must exit with 0.
func (b *background) terminate() {
	b.t.Helper()
	effort.Is(b.t, b.stop(syscall.SIGTERM), exitDone, "SIGTERM: got code")
}

func TestVerifyInTheLabGivesTheExpectedOutcomes(t *testing.T) {
	t.Parallel()
	expected := effort.Must(os.ReadFile(example(t, "contacts.expected.csv")))(t)
	c := newCLI(t)
	c.environ = hurried
	code, stdout, stderr := c.run("verify", "--lab", example(t, "contacts.csv"))
	effort.MustBe(t, code, exitDone, stderr)
	got := outcomes(stdout)
	for email, want := range outcomes(string(expected)) {
		effort.Is(t, got[email], want, email)
	}
	readme := effort.Must(os.ReadFile(filepath.Join(HouseRoot, "README.md")))(t)
	_, picture, _ := strings.Cut(string(readme), "--out results.csv\n")
	picture, _, _ = strings.Cut(picture, "```")
	took := regexp.MustCompile(`in [0-9.]+(ms|s):`) // the time differs from run to run
	if picture == "" || !strings.Contains(took.ReplaceAllString(stderr, ""), took.ReplaceAllString(picture, "")) {
		t.Errorf("README.md shows\n%s\nthe client prints\n%s", picture, stderr)
	}
}

// outcomes reads the first two columns of simple CSV lines below a header.
func outcomes(text string) map[string]string {
	found := map[string]string{}
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r", ""), "\n") {
		if fields := strings.SplitN(line, ",", 3); i > 0 && len(fields) >= 2 {
			found[fields[0]] = fields[1]
		}
	}
	return found
}

func TestStoppedHalfWayTheSameCommandGoesOn(t *testing.T) {
	t.Parallel()
	const rows = 20
	c := newCLI(t)
	c.environ = hurried
	c.write("list.csv", numbered("anna", "one-clean.test", rows)) // 4 s
	b := c.start("verify", "--lab", "list.csv", "--out", "r.csv")
	b.waitFor("verifying")
	effort.Is(t, b.stop(syscall.SIGINT), exitStopped, "interrupted: got code")
	c.does("verify", "--lab", "list.csv", "--out", "r.csv")
	results, err := os.ReadFile(filepath.Join(c.folder, "r.csv"))
	n := strings.Count(string(results), ",valid,")
	effort.ErrorIf(t, err != nil || n != rows, "got %d valid addresses and %v, want %d", n, err, rows)
	c.environ = []string{"ROLLCALL_LEDGER_URL=sqlite:rollcall-data/verify-lab/ledger.db"}
	var report struct{ Verifications, Outcomes int64 }
	c.asks(&report, "audit")
	effort.Is(t, report.Verifications, 1, report)
	effort.Is(t, report.Outcomes, rows, report)
}

// TestNothingIsServedInClearToOthers: a node and `config check` refuse a configuration that would serve others
// unencrypted, in the words of docs/start/network.md.
func TestNothingIsServedInClearToOthers(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	file := c.write("rollcall.toml", "[http]\nlisten = \"0.0.0.0:8080\"\n")
	document := effort.Must(os.ReadFile(filepath.Join(HouseRoot, "docs", "start", "network.md")))(t)
	for _, args := range [][]string{{"config", "check", file}, {"serve", "--config", file}} {
		code, _, stderr := c.run(args...)
		if code == exitDone || !strings.Contains(stderr, "http.plain = true") || !strings.Contains(string(document), stderr) {
			t.Errorf("rollcall %q: code %d, %q, want an error that docs/start/network.md has", args, code, stderr)
		}
	}
	_, err := os.Stat(filepath.Join(c.folder, "rollcall-data"))
	effort.ErrorIf(t, err == nil, "the node has begun to keep things")
}

func TestPreflight(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	lab := effort.Must(smtplab.Start(smtplab.Defaults()))(t)
	defer lab.Stop(t.Context())
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // a DNS server that never answers
	effort.OK(t, err)
	defer silent.Close()
	for _, x := range []struct {
		name, list string
		dns        string
		port       int
		seenAt     []string
		want       error
		text       string
	}{
		{"all is well", "a@one-clean.test\n", lab.DNSAddr(), lab.SMTPPort(), nil, nil, ""},
		{"one receiver of three is there", "a@x-unreachable.test\nb@y-nullmx.test\nc@z-clean.test\n",
			lab.DNSAddr(), lab.SMTPPort(), nil, nil, ""},
		{"nobody takes mail", "a@y-nullmx.test\n", lab.DNSAddr(), lab.SMTPPort(), nil, nil, ""},
		{"port closed", "a@one-clean.test\nb@two-clean.test\nc@three-clean.test\n", lab.DNSAddr(), 1,
			nil, errPortClosed, "port 25"},
		{"DNS silent", "a@one-clean.test\n", silent.LocalAddr().String(), lab.SMTPPort(), nil, errDNSAway, "[dns] servers"},
		{"file refused", "email\na@a.test\n\n", lab.DNSAddr(), lab.SMTPPort(), nil, nil, "csv_blank_record"},
		{"a name that receivers refuse", "a@one-clean.test\n", lab.DNSAddr(), lab.SMTPPort(), []string{"192.0.2.10"},
			errIneligible, "\nhello 192.0.2.10: \"short\" is no full host name. Set smtp.hello_name to"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := config.Default()
			c.Identity.PublicAddresses, c.SMTP.HelloName = x.seenAt, "short"
			c.DNS.Servers, c.DNS.Timeout.Duration = []string{x.dns}, time.Second
			c.SMTP.Port, c.SMTP.AllowNetworks = x.port, []string{lab.Network().String()}
			name := filepath.Join(t.TempDir(), "list.csv")
			effort.OK(t, os.WriteFile(name, []byte(x.list), 0o600))
			in := effort.Must(openInput(name))(t)
			defer in.Close()
			err := preflight(t.Context(), c, in)
			effort.ErrorIf(t, x.want != nil && !errors.Is(err, x.want) ||
				(err == nil) != (x.want == nil && x.text == ""), "got %v, want %v", err, x.want)
			effort.ErrorIf(t, err != nil && !strings.Contains(err.Error(), x.text),
				"got %v, want %q in it", err, x.text)
		})
	}
}

// TestErrorsNameCommands: errors that a node sends to a command name commands, not API calls.
func TestErrorsNameCommands(t *testing.T) {
	path := regexp.MustCompile(`(GET|POST|PUT|DELETE) /v1/[^ ;:,")` + "`" + `]*`)
	route := regexp.MustCompile(`^\tadd(\.unless\(.*\))?\("`) // an entry of the table of routes
	files, err := filepath.Glob(HouseRoot + "/http/admin/*.go")
	effort.FatalIf(t, err != nil || len(files) == 0, "%v", err)
	for _, name := range files {
		text := effort.Must(os.ReadFile(name))(t)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "//") || route.MatchString(line) || strings.HasSuffix(name, "_test.go") {
				continue
			}
			effort.Is(t, path.FindString(client.InCommands(line)), "", filepath.Base(name), "a person is told of")
		}
	}
}

// everyCommand calls visit with each command of the tree.
func everyCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, below := range c.Commands() {
		everyCommand(below, visit)
	}
}

// TestHelpOfFlagsHasNoStrayQuotes: the library shows a text in back quotes as the flag's value.
func TestHelpOfFlagsHasNoStrayQuotes(t *testing.T) {
	flags := 0
	everyCommand(newRoot(nil), func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				flags++
				if name, _ := pflag.UnquoteUsage(f); strings.ContainsAny(name, " -.") {
					t.Errorf("%s: --%s has the value %q", c.CommandPath(), f.Name, name)
				}
			})
		}
	})
	effort.ErrorIf(t, flags < 100, "only %d flags were found", flags)
}

func TestHelpAndVersionAnswerWhatIsAsked(t *testing.T) {
	c := newHere(t)
	version := c.does("version")
	effort.Is(t, c.does("--version"), version)
	effort.Has(t, version, "rollcall ")
	var v node.Version
	c.asks(&v, "version")
	effort.Is(t, v.Interface, node.InterfaceVersion)
	for _, args := range []string{"help", "help verify", "help throttle set", "help completion bash"} {
		effort.Has(t, c.does(strings.Fields(args)...), "Usage:", args)
	}
}

// TestAHeaderThatLooksLikeAnAddressIsTold: the note comes before the upload, and the table shows that the file is
// accepted.
func TestAHeaderThatLooksLikeAnAddressIsTold(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.environ = hurried
	c.write("list.csv", "anna@@one-clean.test\nbert@nobody.invalid\n")
	code, _, stderr := c.run("verify", "--lab", "list.csv")
	told := strings.Index(stderr, `list.csv: row 1, "anna@@one-clean.test": The first row looks like an address, but`)
	table := strings.Index(stderr, "OUTCOME")
	effort.ErrorIf(t, code != exitDone || told < 0 || table < told ||
		!strings.Contains(stderr, ": 1 row, 0 duplicates;"), "got code %d and %q", code, stderr)
}

// TestMailboxFullIsExplained: results with this reason get an explanation, because it has two possible outcomes.
func TestMailboxFullIsExplained(t *testing.T) {
	const full = ",mailbox_full The receiver says that this mailbox is full.,2026-11-20T10:00:02.000Z\r\n"
	plainResults := strings.Replace(someResults, `"b,b"@a.test`, "b@a.test", 1)
	for results, want := range map[string]string{
		plainResults: "", plainResults + "d@a.test,invalid" + full: "here invalid 1.", plainResults + "d@a.test,invalid" +
			full + "e@a.test,unknown" + full: "here invalid 1, unknown 1.",
	} {
		r, _, stderr := newTestRun(t, service(t, "completed", results), verifyFlags{})
		effort.OK(t, r.run(t.Context()))
		explained := strings.Contains(stderr.String(), fullReason+": invalid if")
		effort.ErrorIf(t, explained != (want != "") || !strings.Contains(stderr.String(), want),
			"got\n%s\nwant %q", stderr, want)
	}
}

// TestOutIsTriedBeforeTheWork: a command refuses an unusable --out at once and says what to do. It makes no file and
// changes none.
func TestOutIsTriedBeforeTheWork(t *testing.T) {
	c := newHere(t)
	const list = "email\na@nobody.invalid\n"
	c.write("list.csv", list)
	c.write("old.csv", "old")
	in := func(name string) string { return filepath.Join(c.folder, name) }
	for _, err := range []error{os.Symlink("list.csv", in("link.csv")), os.Link(in("list.csv"), in("hard.csv")),
		os.Symlink("nothing.csv", in("dangling.csv")), os.Symlink("old.csv", in("toold.csv")), os.Mkdir(in("sub"), 0o700),
		os.Mkdir(in("closed"), 0o500)} {
		effort.OK(t, err)
	}
	before := treeOf(t, c.folder)
	const own, exists = "is the file to verify itself", "exists: give another --out, or --force"
	for _, x := range []struct{ out, want string }{
		{"old.csv", exists}, {"toold.csv", exists}, {"dangling.csv", exists}, {"list.csv", own}, {"./sub/../list.csv", own},
		{in("list.csv"), own}, {"link.csv", own}, {"hard.csv", own}, {"sub",
			"is a folder: name a file in it, such as sub/results.csv"},
		{"none/r.csv", "there is no folder none for --out none/r.csv: make it"}, {"none/", "is a folder that does not exist"},
		{"old.csv/r.csv", "give another --out"}, {os.DevNull, "is not a regular file"},
		{strings.Repeat("x", 300), "give another --out"}, {"closed/r.csv",
			"may not write into closed: give --out in another folder"},
	} {
		if strings.HasPrefix(x.out, "closed") && os.Getuid() == 0 {
			continue // root may write anywhere
		}
		for _, force := range []bool{false, true} {
			args := []string{"verify", "--lab", "list.csv", "--out", x.out}
			if force {
				args = append(args, "--force")
			}
			if force && x.want == exists {
				continue
			}
			code, stdout, stderr := c.run(args...)
			effort.ErrorIf(t, code != exitFailed || !strings.Contains(lastLines(stderr), x.want) || stdout != "",
				"rollcall %q: got code %d, %q and %q, want %q", args, code, stdout, stderr, x.want)
		}
	}
	effort.Is(t, treeOf(t, c.folder), before)
	appended := effort.Must(os.OpenFile(in("list.csv"), os.O_APPEND|os.O_WRONLY, 0))(t)
	defer appended.Close()
	code := run(t.Context(), []string{"verify", "--lab", "list.csv"}, appended, io.Discard)
	effort.Is(t, code, exitFailed, "appended to itself")
	effort.Is(t, treeOf(t, c.folder), before, "appended to itself")
}

// treeOf returns every name below a folder with the file's content.
func treeOf(t *testing.T, folder string) (all string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			all += path + "\n"
			return err
		}
		text, _ := os.ReadFile(path) // a broken link has no content
		all += path + ": " + string(text) + "\n"
		return nil
	})
	effort.OK(t, err)
	return all
}

// TestForceReplacesAndNothingElseDoes: without --force even a file that appeared during the work is not replaced.
func TestForceReplacesAndNothingElseDoes(t *testing.T) {
	folder := t.TempDir()
	name, link := filepath.Join(folder, "r.csv"), filepath.Join(folder, "link.csv")
	fill := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	effort.OK(t, (term.OutFile{Name: name}).Check(nil, nil))
	effort.OK(t, os.WriteFile(name, []byte("meanwhile"), 0o600))
	effort.ErrHas(t, (term.OutFile{Name: name}).Write(fill("new")), "exists")
	effort.OK(t, os.Symlink("r.csv", link))
	want := "meanwhile"
	for _, x := range []struct{ name, text string }{{name, "one"}, {link, "two"}} {
		effort.Is(t, string(effort.Must(os.ReadFile(name))(t)), want)
		forced := term.OutFile{Name: x.name, Force: true}
		effort.OK(t, forced.Check(nil, nil))
		effort.OK(t, forced.Write(fill(x.text)))
		want = x.text
	}
	effort.Is(t, string(effort.Must(os.ReadFile(name))(t)), want, "through the link")
	entries := effort.Must(os.ReadDir(folder))(t)
	effort.Is(t, len(entries), 2, "the file and its link")
}
