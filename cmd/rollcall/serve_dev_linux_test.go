package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeDevSpeaksToPeople: at a terminal there is no log between the lines for people, who are told how the program
// was started, a new link at each start, and of a name that no simulated receiver has that it has none, at once. Who
// started the node by systemd's protocol is told when it serves, that it runs, and when it drains.
func TestServeDevSpeaksToPeople(t *testing.T) {
	t.Parallel()
	c, service, first := newCustomerCLI(t)
	link := regexp.MustCompile(`http://\S+/link/\S+`)
	old := link.FindString(first.waitFor("/link/"))
	code, out, _ := c.run("check", "anna@gmial.com", "--api", service)
	if code != exitDone || !strings.Contains(out, "not_simulated") || !strings.Contains(out, "unknown") {
		t.Errorf("a name that is not simulated: got code %d and\n%s", code, out)
	}
	code, _, errs := c.run("throttle", "set", "gmail.com", "rcpt_rate=1000/s", "--for", "1h", "--reason", "a try")
	if code != exitFailed || !strings.Contains(errs, "could not be looked up") || !strings.Contains(errs, "--force") {
		t.Errorf("a limit of a receiver that is not simulated: got code %d and %s", code, errs)
	}
	if code := first.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}

	socket := filepath.Join(c.folder, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	hears := func(want string) {
		t.Helper()
		_ = manager.SetReadDeadline(time.Now().Add(cliWait))
		for text, buffer := "", make([]byte, 512); text != want; {
			n, err := manager.Read(buffer)
			if err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			text = string(buffer[:n])
		}
	}
	terminal := newTerminal(t, nil)
	screen, err := os.OpenFile(terminal.name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	c.environ = append(c.environ, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000")
	node := c.command(t.Context(), "serve", "--dev")
	node.Stdin, node.Stdout, node.Stderr = screen, screen, screen
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	hears("READY=1")
	hears("WATCHDOG=1")
	until(t, func() (bool, string) { return strings.Contains(terminal.shown(), "upload examples/"), terminal.shown() })
	if err := node.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	hears("STOPPING=1")
	if err := node.Wait(); err != nil {
		t.Error(err)
	}
	until(t, func() (bool, string) { return strings.Contains(terminal.shown(), "has stopped"), terminal.shown() })
	shown := terminal.shown()
	if strings.Contains(shown, "{") || strings.Contains(shown, "level=") ||
		!strings.Contains(shown, "  "+node.Path+" verify examples/") {
		t.Errorf("a person reads\n%s", shown)
	}
	if anew := link.FindString(shown); anew == "" || anew == old {
		t.Errorf("the link of the second start is %q, the first one's was %q", anew, old)
	}
}

func TestStartedAs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"./rollcall": "./rollcall", "rollcall": "rollcall",
		"/tmp/go-build123/b001/exe/rollcall": "go run ./cmd/rollcall"} {
		if got := startedAs(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
