package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
)

// TestServeDevSpeaksToPeople: at a terminal there is no log between the lines for people. They read how the program
// was started and, at each start, a new link. A check of a name without a simulated receiver says so at once. A
// systemd manager is notified when the node serves, that it runs, and when it drains.
func TestServeDevSpeaksToPeople(t *testing.T) {
	t.Parallel()
	c, service, first := newCustomerCLI(t)
	link := regexp.MustCompile(`http://\S+/link/\S+`)
	old := link.FindString(first.waitFor("/link/"))
	holds(t, c.does("check", "anna@gmial.com", "--api", service), "not_simulated", "unknown")
	holds(t, c.fails(exitFailed, "throttle", "set", "gmail.com", "rcpt_rate=1000/s", "--for", "1h", "--reason", "a try"),
		"could not be looked up", "--force")
	first.terminate()

	socket := filepath.Join(c.folder, "notify")
	manager := effort.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))(t)
	defer manager.Close()
	hears := func(want string) {
		t.Helper()
		_ = manager.SetReadDeadline(time.Now().Add(cliWait))
		for text, buffer := "", make([]byte, 512); text != want; {
			n, err := manager.Read(buffer)
			effort.OK(t, err, want)
			text = string(buffer[:n])
		}
	}
	terminal := newTerminal(t, nil)
	screen := effort.Must(os.OpenFile(terminal.name, os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	defer screen.Close()
	c.environ = append(c.environ, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000")
	node := c.command(t.Context(), "serve", "--dev")
	node.Stdin, node.Stdout, node.Stderr = screen, screen, screen
	effort.OK(t, node.Start())
	hears("READY=1")
	hears("WATCHDOG=1")
	until(t, func() (bool, string) { return strings.Contains(terminal.shown(), "upload examples/"), terminal.shown() })
	effort.OK(t, node.Process.Signal(syscall.SIGINT))
	hears("STOPPING=1")
	effort.OK(t, node.Wait())
	until(t, func() (bool, string) { return strings.Contains(terminal.shown(), "has stopped"), terminal.shown() })
	shown := terminal.shown()
	effort.ErrorIf(t, strings.Contains(shown, "{") || strings.Contains(shown, "level=") ||
		!strings.Contains(shown, "  "+node.Path+" verify examples/"), "a person reads\n%s", shown)
	if anew := link.FindString(shown); anew == "" || anew == old {
		t.Errorf("the link of the second start is %q, that of the first was %q", anew, old)
	}
}

func TestStartedAs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"./rollcall": "./rollcall", "rollcall": "rollcall",
		"/tmp/go-build123/b001/exe/rollcall": "go run ./cmd/rollcall"} {
		effort.Is(t, startedAs(name), want, name)
	}
}

// terminal is a terminal at which a simulated person answers questions.
type terminal struct {
	name string // of the device that programs open

	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// newTerminal makes a terminal of 80 columns. When a program shows a key of answers, the value is typed, once.
func newTerminal(t *testing.T, answers map[string]string) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: term.Columns})
	}
	effort.OK(t, err)
	m := &terminal{name: fmt.Sprint("/dev/pts/", number)}
	// While the test holds the terminal open, reading continues between programs.
	program := effort.Must(os.OpenFile(m.name, os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = program.Close() })
	go m.answer(person, answers)
	return m
}

// answer reads what programs show and types the answers.
func (m *terminal) answer(person *os.File, answers map[string]string) {
	buffer, typed := make([]byte, 4096), map[string]bool{}
	for {
		n, err := person.Read(buffer)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.text.Write(buffer[:n])
		text := m.text.String()
		m.mu.Unlock()
		for question, answer := range answers {
			if !typed[question] && strings.Contains(text, question) {
				typed[question] = true
				_, _ = person.WriteString(answer)
			}
		}
	}
}

// shown returns the output that a person has seen so far.
func (m *terminal) shown() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

// fullDisk is a device on which every write fails with "no space left".
const fullDisk = "/dev/full"

// TestHelpOnAFullDisk: every command ends with exit 1 if its help can't be written.
func TestHelpOnAFullDisk(t *testing.T) {
	t.Parallel()
	full := effort.Must(os.OpenFile(fullDisk, os.O_WRONLY, 0))(t)
	defer full.Close()
	tried := 0
	everyCommand(newRoot(nil), func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		var stderr bytes.Buffer
		code := run(t.Context(), args, full, &stderr)
		if tried++; code != exitFailed || !strings.Contains(stderr.String(), "rollcall: write the output: ") {
			t.Errorf("rollcall %q: got code %d and %q", args, code, stderr.String())
		}
	})
	effort.ErrorIf(t, tried < 50, "only %d commands were tried", tried)
}

// TestOutputThatCannotBeWritten: commands end with exit 1 if standard output is a full disk or a pipe that nobody
// reads. For such a pipe the system kills a process, unless the process ignores SIGPIPE.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.write("list.csv", "email\na@a.test\n")
	read, closed, err := os.Pipe()
	effort.OK(t, err)
	_ = read.Close()
	full := effort.Must(os.OpenFile(fullDisk, os.O_WRONLY, 0))(t)
	verify := []string{"verify", "list.csv", "--key", "k", "--api",
		service(t, "completed", strings.Replace(someResults, `"b,b"@a.test`, "b@a.test", 1)).Base}
	for _, x := range []struct {
		stdout *os.File
		args   []string
	}{
		{closed, []string{"version"}}, {full, []string{"config", "show"}}, {full, []string{"lab", "--list", "--json"}},
		{full, verify}, {full, append(verify, "--json")}, {full, append(verify, "--spreadsheet")},
	} {
		var stderr bytes.Buffer
		command := c.command(t.Context(), x.args...)
		command.Stdout, command.Stderr = x.stdout, &stderr
		_ = command.Run() // the exit code says how it ended
		effort.Is(t, command.ProcessState.ExitCode(), exitFailed, x.args)
		effort.Has(t, stderr.String(), "rollcall: write the output: ", x.args)
	}
}
