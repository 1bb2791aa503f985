package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/config/effort"
)

// fullDisk is a device on which every write fails with "no space left".
const fullDisk = "/dev/full"

// TestHelpOnAFullDisk: every command that there is ends with exit 1 when its help can't
// be written.
func TestHelpOnAFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile(fullDisk, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	tried := 0
	var try func(c *cobra.Command)
	try = func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		var stderr bytes.Buffer
		code := run(t.Context(), args, full, &stderr)
		if tried++; code != exitFailed || !strings.Contains(stderr.String(), "rollcall: write the output: ") {
			t.Errorf("rollcall %q: got code %d and %q", args, code, stderr.String())
		}
		for _, sub := range c.Commands() {
			try(sub)
		}
	}
	try(newRoot(nil))
	if tried < 50 {
		t.Errorf("only %d commands were tried", tried)
	}
}

// TestOutputThatCannotBeWritten: commands that print end with exit 1 when standard output
// is a full disk or a pipe that nobody reads.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	effort.NotShort(t, "a whole node")
	c := newCLI(t)
	_, api := startDev(c)
	var dev client.Tenant
	text, err := os.ReadFile(c.folder + "/rollcall-data/dev.json")
	if err == nil {
		err = json.Unmarshal(text, &dev)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.environ = append(c.environ, "ROLLCALL_KEY="+dev.Key)
	c.write("list.csv", "email\na@nobody.invalid\n")
	c.write("throttle.toml", "[default]\nconnections = 2\n")
	c.write("node.toml", "data_dir = \"rollcall-data\"\n")
	ofWorkspace := func(args ...string) []string { return append(args, "--workspace", dev.Workspace) }
	for _, args := range [][]string{
		{"version"}, {"config", "show"}, {"config", "check", "node.toml"}, {"verdict", "list"},
		{"verdict", "judge", "550 5.1.1 no such user"}, {"throttle", "check", "throttle.toml"}, {"cluster", "cert", "init"},
		{"workspace", "create", "acme"}, {"workspace", "list"}, {"workspace", "list", "--json"},
		ofWorkspace("credits", "grant", "5", "--reason", "test"), ofWorkspace("credits", "show"), ofWorkspace("key",
			"create"),
		ofWorkspace("key", "list"), {"workspace", "weight", dev.Workspace, "2"},
		{"workspace", "limits", dev.Workspace}, {"log"}, {"audit"}, {"audit", "--json"},
		{"receivers"}, {"receivers", "--json"}, {"sources"}, {"throttle", "list"}, {"throttle", "explain", "example.com"},
		{"verify", "list.csv", "--api", api}, {"verify", "list.csv", "--api", api, "--json"},
		{"verify", "list.csv", "--api", api, "--spreadsheet"}, {"backup", "copy.db"},
	} {
		full, err := os.OpenFile(fullDisk, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		read, closed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = read.Close()
		for name, stdout := range map[string]*os.File{"full disk": full, "closed pipe": closed} {
			_ = os.RemoveAll(c.folder + "/copy.db")
			_ = os.Remove(c.folder + "/ca.crt")
			_ = os.Remove(c.folder + "/ca.key")
			_ = os.RemoveAll(c.folder + "/certs")
			code, stderr := withStdout(t, c, stdout, args...)
			if code != exitFailed || !strings.Contains(stderr, "rollcall: write the output: ") {
				t.Errorf("%s: rollcall %q: got code %d and %q", name, args, code, stderr)
			}
			_ = stdout.Close()
		}
	}
}

// withStdout runs the binary with a standard output.
func withStdout(t *testing.T, c *cli, stdout *os.File, args ...string) (code int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cliWait)
	defer cancel()
	command := c.command(ctx, args...)
	var errs bytes.Buffer
	command.Stdout, command.Stderr = stdout, &errs
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatalf("rollcall %q: %v", args, err)
	}
	return command.ProcessState.ExitCode(), errs.String()
}
