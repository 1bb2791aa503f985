package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"rollcall/cmd/rollcall/client"
	"rollcall/http/api"
)

// newCustomerCLI starts a node with the lab and gives a folder whose environment has its URL and key.
func newCustomerCLI(t *testing.T, more ...string) (c *cli, service string, node *background) {
	t.Helper()
	c = newCLI(t)
	node, service = startDev(c, more...)
	text, err := os.ReadFile(filepath.Join(c.folder, "rollcall-data", "dev.json"))
	var dev client.Tenant
	if err == nil {
		err = json.Unmarshal(text, &dev)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.environ = append(c.environ, "ROLLCALL_KEY="+dev.Key, "ROLLCALL_API="+service)
	return c, service, node
}

// slowList is a file of some seconds: its receiver is asked 5 addresses a second.
func slowList(name string, rows int) string {
	list := "email\n"
	for i := range rows {
		list += fmt.Sprintf("%s%d@one-clean.test\n", name, i)
	}
	return list
}

// TestInterruptedTheServiceGoesOn: Ctrl-C names the verification and what ends it, and both
// that and the way back are true.
func TestInterruptedTheServiceGoesOn(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	c.write("list.csv", slowList("anna", 60))
	b := c.start("verify", "list.csv", "--api", service)
	b.waitFor("verifying")
	if err := b.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	line := b.waitFor("rollcall: stopped: the service goes on with verification ")
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(line)
	if !strings.Contains(line, "and charges for it") {
		t.Errorf("it does not say that it charges: %s", line)
	}
	b.waitFor("to come back to it, run the same command again")
	end := b.waitFor("to end it, run: rollcall cancel ")
	if err := <-b.ended; b.command.ProcessState.ExitCode() != exitStopped {
		t.Errorf("interrupted: %v, want exit code %d", err, exitStopped)
	}
	b = c.start("verify", "list.csv", "--api", service)
	b.waitFor("verifying")
	if code := b.stop(syscall.SIGTERM); code != exitStopped {
		t.Errorf("ended: got code %d, want %d", code, exitStopped)
	}
	_, command, _ := strings.Cut(end, "rollcall cancel ")
	code, stdout, stderr := c.run(append([]string{"cancel"}, strings.Fields(command)...)...)
	if code != exitDone || !strings.HasPrefix(stdout, id+" is cancel") {
		t.Fatalf("cancel: got code %d, %q and %q", code, stdout, stderr)
	}
	code, _, stderr = c.run("verify", "list.csv", "--api", service)
	if code != exitFailed || !strings.Contains(stderr, "verification was cancelled") ||
		!strings.Contains(stderr, "cancelled  ") {
		t.Errorf("the same command: got code %d and %q, want the verification that was cancelled", code, stderr)
	}
	var done api.Cancellation
	code, stdout, _ = c.run("cancel", id, "--json")
	if err := json.Unmarshal([]byte(stdout), &done); code != exitDone || err != nil || done.ID != id {
		t.Errorf("cancel twice: got code %d, %v and %q", code, err, stdout)
	}
}
