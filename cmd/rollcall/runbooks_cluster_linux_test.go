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

	"rollcall/cmd/rollcall/client"
	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp/smtplab"
)

// These tests run the blocks of documents about a cluster.

// scriptCluster is a cluster of processes on loopback: node-1 at 127.0.0.1, and so on.
type scriptCluster struct {
	*rig    // node-1 as operators see it, and a customer of the node that works
	lab     *smtplab.Lab
	ledger  *postgres.Proxy
	url     string
	ports   [5]int // of the API, uploads, the admin listener, gossip and actors, on all
	members map[string]*background
}

// newScriptCluster starts three nodes with certificates and a gossip key.
func newScriptCluster(t *testing.T) *scriptCluster {
	t.Helper()
	c := &scriptCluster{rig: &rig{cli: newCLI(t)}, lab: startLab(t, smtplab.Defaults()), members: map[string]*background{}}
	database, direct := newDatabase(t)
	proxy := effort.Must(postgres.StartProxy(direct))(t)
	t.Cleanup(func() { effort.OK(t, proxy.Close()) })
	c.ledger, c.url = proxy, proxy.URL(database)
	for i := range c.ports {
		c.ports[i] = freePort(t)
	}
	c.api, c.admin = fmt.Sprintf("http://127.0.0.1:%d", c.ports[0]), fmt.Sprintf("http://127.0.0.1:%d", c.ports[2])
	c.does("cluster", "cert", "init")
	c.does("cluster", "keys", "new", "gossip.key")
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		c.does("cluster", "cert", "node", name)
		c.configures(name, c.ports[3])
	}
	c.does("migrate", "--config", "node-1/rollcall.toml")
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		c.serves(name)
	}
	token := effort.Must(os.ReadFile(filepath.Join(c.folder, "node-1", "data", "admin.token")))(t)
	c.environ = []string{"ROLLCALL_ADMIN=" + c.admin, "ROLLCALL_ADMIN_TOKEN=" + strings.TrimSpace(string(token))}
	c.isSound()
	return c
}

// configures writes the configuration of a node. With another gossip port than that of the
// others neither side finds the other.
func (c *scriptCluster) configures(name string, gossip int) {
	c.t.Helper()
	key, err := os.ReadFile(filepath.Join(c.folder, "gossip.key"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(c.folder, name), 0o700)
	}
	effort.OK(c.t, err)
	if _, err := os.Stat(filepath.Join(c.folder, name, "gossip.key")); err != nil {
		c.write(name+"/gossip.key", string(key))
	}
	at, p := "127.0.0."+strings.TrimPrefix(name, "node-"), c.ports
	c.write(name+"/rollcall.toml", fmt.Sprintf(`
data_dir = "%[1]s/data"
[http]
listen = "%[2]s:%[3]d"
[upload]
listen = "%[2]s:%[4]d"
[admin]
listen = "%[2]s:%[5]d"
[ledger]
url = %[8]q
[cluster]
gossip_listen = "%[2]s:%[6]d"
actor_listen = "%[2]s:%[7]d"
join = ["127.0.0.1:%[11]d", "127.0.0.2:%[11]d", "127.0.0.3:%[11]d"]
gossip_key_file = "%[1]s/gossip.key"
tls_ca_file = "certs/ca.crt"
tls_cert_file = "certs/%[1]s.crt"
tls_key_file = "certs/%[1]s.key"
[dns]
servers = [%[9]q]
[smtp]
port = %[10]d
hello_name = "rollcall.example"
allow_networks = ["127.0.0.0/8"]
`, name, at, p[0], p[1], p[2], gossip, p[4], c.url, c.lab.DNSAddr(), c.lab.SMTPPort(), gossip))
}

// serves starts a node and waits until it serves. A node whose ledger does not answer in time, as on a busy machine,
// ends: then it is started again, as systemd does.
func (c *scriptCluster) serves(name string) {
	c.t.Helper()
	log := filepath.Join(c.folder, name, "log")
	err := os.Remove(log)
	effort.FatalIf(c.t, err != nil && !os.IsNotExist(err), "%v", err)
	starts := func() { c.members[name] = serveLogged(c.cli, log, "serve", "--config", name+"/rollcall.toml") }
	starts()
	until(c.t, func() (bool, string) {
		select {
		case <-c.members[name].ended:
			starts()
		default:
		}
		found, err := os.ReadFile(log)
		return strings.Contains(string(found), "node started"), fmt.Sprintf("%s has started: %v\n%s", name, err, found)
	})
}

func (c *scriptCluster) ends(name string, signal os.Signal) {
	c.t.Helper()
	c.members[name].stop(signal)
}

// isSound waits until all nodes serve and nothing is said below the table.
func (c *scriptCluster) isSound() {
	c.t.Helper()
	until(c.t, func() (bool, string) {
		out := c.shows("cluster", "members")
		_, table, _ := strings.Cut(out, "\n\n")
		return strings.Count(table, " serving ") >= 3 && !strings.Contains(table, "\n\n"), "a sound cluster: " + out
	})
}

// works has a node work on a file. The one that gets a file looks for work first; when another was quicker, or
// the file is finished or waits before we have looked, the next one tells.
func (c *scriptCluster) works(name string) {
	c.t.Helper()
	_, token, _ := strings.Cut(c.environ[1], "=")
	c.tenant = effort.Must(client.OpenTenant(c.t.Context(), client.NewAdmin(c.admin, token), client.TenantOptions{
		File: filepath.Join(c.folder, "tenant.json"), Workspace: "documents", Credits: 10_000}))(c.t)
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
func (c *scriptCluster) script(s script) []string {
	c.t.Helper()
	s.folder, s.environ = c.folder, c.environ
	return s.run(c.t)
}

// wasCalled wants that a stand-in was called in this way, and no other one since.
func (c *scriptCluster) wasCalled(line string) {
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
			c.ends("node-3", syscall.SIGTERM)
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
	c.ends("node-3", syscall.SIGTERM)
	c.configures("node-3", freePort(t))
	c.serves("node-3")
	untilPrinted(c.cli, "Unseen: ", "cluster", "members")
	c.script(script{document: "operators/runbooks/partition.md",
		names: map[string]string{"/etc/rollcall/node.crt": "certs/node-1.crt"}})
	c.ends("node-3", syscall.SIGTERM)
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
