package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp/smtplab"
)

// These tests run the blocks of documents about a cluster.

// scriptCluster is a crowd whose ledger may go away.
type scriptCluster struct {
	*crowd
	ledger *postgres.Proxy
}

// newScriptCluster starts three nodes.
func newScriptCluster(t *testing.T) scriptCluster {
	t.Helper()
	database, direct := newDatabase(t)
	proxy := effort.Must(postgres.StartProxy(direct))(t)
	t.Cleanup(func() { effort.OK(t, proxy.Close()) })
	return scriptCluster{newCrowd(t, startLab(t, smtplab.Defaults()), proxy.URL(database), "", ""), proxy}
}

// works has a node work on a file. The one that gets a file looks for work first; when another was quicker, or
// the file is finished or waits before we have looked, the next one tells.
func (c scriptCluster) works(name string) {
	c.t.Helper()
	c.open(10_000)
	c.api = fmt.Sprintf("http://127.0.0.%s:%d", strings.TrimPrefix(name, "node-"), c.ports[0])
	at := regexp.MustCompile(`(?m)  ` + name + `  serving .* [1-9][0-9]* +[0-9,]+ +[0-9,]+$`)
	var submitted time.Time
	until(c.t, func() (bool, string) {
		if time.Since(submitted) > 5*time.Second {
			c.submits(100, "documents-clean.test", "documents-plain.test")
			submitted = time.Now()
		}
		out := c.shows("cluster", "members")
		return at.MatchString(out), name + " has a lease: " + out
	})
}

// script runs the blocks of a document where the certificates are.
func (c scriptCluster) script(s script) []string {
	c.t.Helper()
	s.folder, s.environ = c.folder, c.environ
	return s.run(c.t)
}

// wasCalled wants that a stand-in was called in this way, and no other one since.
func (c scriptCluster) wasCalled(line string) {
	c.t.Helper()
	called := filepath.Join(c.folder, "called")
	effort.Is(c.t, string(effort.Must(os.ReadFile(called))(c.t)), line+"\n", "called: and", line)
	effort.ErrIs(c.t, os.Remove(called), nil)
}

// TestTheRunbooksOfAClusterThatChanges: a node is upgraded, the drain before it being taken back once, keys change,
// and a node comes.
func TestTheRunbooksOfAClusterThatChanges(t *testing.T) {
	t.Parallel()
	c := newScriptCluster(t)
	systemctl := map[string]string{"systemctl": ""}
	const members = "rollcall cluster members"
	c.works("node-3")
	c.script(script{document: "operators/runbooks/rolling-upgrade.md", standIns: systemctl, before: map[string]func(){
		"systemctl restart rollcall": func() { // somebody thinks better of it first
			c.does("cluster", "undrain", "node-3", "--yes", "--wait")
			c.isSound()
			c.does("cluster", "drain", "node-3", "--yes", "--wait")
		},
		members: func() {
			c.wasCalled("systemctl restart rollcall")
			c.members["node-3"].stop(syscall.SIGTERM)
			c.serves("node-3")
			c.isSound()
		}}})
	_, keys, _ := c.run("cluster", "keys", "list")
	rows := strings.Split(keys, "\n")
	effort.FatalIf(t, len(rows) < 4 || len(strings.Fields(rows[1])) < 4, "got keys %q", keys)
	c.script(script{document: "operators/runbooks/key-rotation.md",
		names: map[string]string{"remove 0cdb2b46": "remove " + strings.Fields(rows[1])[3]}})
	c.script(script{document: "operators/runbooks/add-a-node.md", standIns: systemctl, names: atHome(map[string]string{
		"/etc/rollcall/": "node-4/"}), before: map[string]func(){
		"rollcall config check /etc/rollcall/rollcall.toml": func() {
			c.configures("node-4", c.ports[3])
			key := effort.Must(os.ReadFile(filepath.Join(c.folder, "node-1", "gossip.key")))(t)
			c.write("node-4/gossip.key", string(key))
		},
		members: func() {
			c.wasCalled("systemctl enable --now rollcall")
			c.serves("node-4")
			c.isSound()
		}}})
}

// TestTheRunbooksOfAClusterThatIsHurt: a node is cut from gossip, one is killed, and the
// ledger goes away and comes back.
func TestTheRunbooksOfAClusterThatIsHurt(t *testing.T) {
	t.Parallel()
	c := newScriptCluster(t)
	c.members["node-3"].stop(syscall.SIGTERM)
	c.configures("node-3", freePort(t))
	c.serves("node-3")
	untilPrinted(c.cli, "Unseen: ", "cluster", "members")
	c.script(script{document: "operators/runbooks/partition.md",
		names: map[string]string{"/etc/rollcall/node.crt": "certs/node-1.crt"}})
	c.members["node-3"].stop(syscall.SIGTERM)
	c.configures("node-3", c.ports[3])
	c.serves("node-3")
	c.isSound()
	effort.OK(t, c.members["node-3"].command.Process.Kill())
	untilPrinted(c.cli, "Lost: ", "cluster", "members")
	c.script(script{document: "operators/runbooks/lost-node.md", types: map[string]string{"[y/N] ": "y\n"}})
	c.serves("node-3")
	c.isSound()
	c.ledger.Refuse()
	c.ledger.Sever()
	untilPrinted(c.cli, "This node has not read the ledger for ", "cluster", "members")
	c.script(script{document: "operators/runbooks/ledger-slow.md", before: map[string]func(){"rollcall audit": func() {
		c.ledger.Heal()
		c.isSound()
	}}})
}

// nobody is the user that the walk-through runs as: PostgreSQL refuses root.
const nobody = 65534

// TestFirstClusterTour runs the lines of docs/start/first-cluster.md one after the other, on a network where all ports
// are free, and stops at the first that fails. What they start ends with them.
func TestFirstClusterTour(t *testing.T) {
	if !effort.Long() {
		t.Skip("runs with -long")
	}
	needTourTools(t)
	folder := tourFolder(t)
	out := script{document: "start/first-cluster.md", folder: folder, environ: []string{"HOME=" + folder},
		inside: []string{"unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
			fmt.Sprintf("ip link set lo up && exec setpriv --reuid=%[1]d --regid=%[1]d --clear-groups \"$0\"", nobody)}}.run(t)
	results, err := os.ReadFile(filepath.Join(folder, "results.csv"))
	lines := strings.Count(string(results), "\n")
	effort.ErrorIf(t, err != nil || lines != 2001, "got %d lines of results and %v, want 2001", lines, err)
	effort.Has(t, strings.Join(out, ""), "every invariant holds", "the walk-through")
}

// needTourTools skips the test where something is missing that the lines need.
func needTourTools(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: a network of its own needs root")
	}
	for _, name := range []string{"unshare", "setpriv", "ip", "bash", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("skipped: there is no %s", name)
		}
	}
	servers, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if _, missing := exec.LookPath("initdb"); missing != nil && (err != nil || len(servers) == 0) {
		t.Skip("skipped: there is no PostgreSQL")
	}
	out, err := exec.Command("unshare", "--net", "--pid", "--fork", "--mount-proc", "true").CombinedOutput()
	if err != nil {
		t.Skipf("skipped: namespaces may not be made: %v: %s", err, out)
	}
}

// tourFolder makes a folder of the user nobody with the binary.
func tourFolder(t *testing.T) string {
	t.Helper()
	name := effort.Must(binary())(t)
	program := effort.Must(os.ReadFile(name))(t)
	folder := t.TempDir()
	effort.OK(t, os.WriteFile(filepath.Join(folder, "rollcall"), program, 0o755))
	effort.OK(t, os.Chmod(filepath.Dir(folder), 0o755))
	effort.OK(t, os.Chown(folder, nobody, nobody))
	return folder
}
