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

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp/smtplab"
)

// These tests run the blocks of documents about one node.

// scriptNode is a node with a folder "etc" for its files. Its log is a file.
type scriptNode struct {
	*rig
	dns *dnsFront
	log string
}

// newScriptNode starts a node with simulated receivers; the test can change their DNS.
func newScriptNode(t *testing.T, settings string, files map[string]string) *scriptNode {
	t.Helper()
	o := smtplab.Defaults()
	o.GreylistWait = time.Second
	lab := startLab(t, o)
	front := newFront(t, lab.DNSAddr())
	r := newRig(t, front.addr, lab.SMTPPort(), settings)
	effort.OK(t, os.Mkdir(filepath.Join(r.folder, "etc"), 0o700))
	for name, text := range files {
		r.write(name, text)
	}
	return &scriptNode{rig: r, dns: front, log: filepath.Join(r.folder, "log")}
}

// starts starts the node and waits until it serves.
func (n *scriptNode) starts(args ...string) {
	n.t.Helper()
	serveLogged(n.cli, n.log, append([]string{"serve", "--config", "node.toml"}, args...)...)
	n.logs("node started")
	n.open(10_000)
}

func (n *scriptNode) logs(text string) { n.t.Helper(); untilLogged(n.t, n.log, text) }

func untilLogged(t *testing.T, file, text string) {
	t.Helper()
	until(t, func() (bool, string) {
		found, err := os.ReadFile(file)
		return strings.Contains(string(found), text), fmt.Sprintf("%q in the log: %v\n%s", text, err, found)
	})
}

// untilPrinted runs a command until it prints a text.
func untilPrinted(c *cli, text string, args ...string) {
	c.t.Helper()
	until(c.t, func() (bool, string) {
		out := c.shows(args...)
		return strings.Contains(out, text), fmt.Sprintf("rollcall %q prints %q, not\n%s", args, text, out)
	})
}

// submits makes the customer submit this many addresses at each domain, and returns the verification.
func (r *rig) submits(addresses int, domains ...string) (id string) {
	r.t.Helper()
	text := "email\n"
	for _, domain := range domains {
		for i := range addresses {
			text += fmt.Sprintf("anna%d@%s\n", i, domain)
		}
	}
	return mustHandIn(r.t.Context(), r.t, r.client(), []byte(text))
}

// script runs the blocks of a document in the node's folder.
func (n *scriptNode) script(s script) []string {
	n.t.Helper()
	s.folder, s.environ = n.folder, n.environ
	return s.run(n.t)
}

// atHome maps folders of a machine, as documents name them, to folders of the test.
func atHome(more map[string]string) map[string]string {
	names := map[string]string{"/etc/rollcall/": "etc/", "/var/lib/rollcall": "rollcall-data", "/backups": "."}
	for name, here := range more {
		names[name] = here
	}
	return names
}

// TestTheRunbooksOfReceivers: one receiver has a long queue, another closes every session.
func TestTheRunbooksOfReceivers(t *testing.T) {
	t.Parallel()
	n := newScriptNode(t, "",
		map[string]string{"candidate.toml": "[receivers.\"documents-clean.test\"]\nrcpt_rate = \"10/s\"\n"})
	n.starts()
	id := n.submits(200, "documents-clean.test", "documents-closing.test")
	untilPrinted(n.cli, "allowance", "receivers")
	n.script(script{document: "operators/runbooks/receiver-throttled.md", names: map[string]string{
		"019b1d7c-0000-7000-8000-000000000001": id, "example.net": "documents-clean.test"}})
	untilPrinted(n.cli, "penalty", "receivers", "show", "documents-closing.test")
	out := n.script(script{document: "operators/runbooks/receiver-penalty.md",
		names: map[string]string{"example.net": "documents-closing.test"}})
	effort.Has(t, out[0], "penalty", "no penalty, or no reply")
	effort.Has(t, out[0], "421", "no penalty, or no reply")
	here := map[string]string{"/etc/rollcall/": ""}
	n.write("throttle.toml", "[default]\nrcpt_rat = 1\n")
	n.logs("throttle file not used")
	n.script(script{document: "operators/runbooks/throttle-file.md", names: here,
		fails: map[string]int{"rollcall throttle check throttle.toml": exitFailed},
		before: map[string]func(){"rollcall throttle list": func() {
			n.write("new.toml", "[default]\nconnections = 2\n")
			effort.OK(t, os.Rename(filepath.Join(n.folder, "new.toml"), filepath.Join(n.folder, "throttle.toml")))
			untilPrinted(n.cli, "throttle.toml is in use", "throttle", "list")
		}}})
	n.write("verdict.toml", "[[rule]]\nid = \"documents\"\n")
	n.logs("verdict file not used")
	n.script(script{document: "operators/runbooks/verdict-file.md", names: here,
		fails: map[string]int{"rollcall verdict check verdict.toml": exitFailed}})
	n.script(script{document: "operators/verdicts.md", fails: map[string]int{"rollcall verdict check " +
		"verdict.toml": exitFailed,
		"rollcall verdict unknown --days 3": exitFailed}}) // the command judges by that file
}

// TestTheRunbooksOfTheLedgersDisk: wrong accounts are corrected, a backup is made, and a workspace gets other limits.
// Then the disk has less free space than it needs.
func TestTheRunbooksOfTheLedgersDisk(t *testing.T) {
	t.Parallel()
	n := newScriptNode(t, "", nil)
	n.starts()
	names := atHome(map[string]string{"5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b": n.tenant.Workspace})
	const audit = "rollcall audit                                                    # the subject is the id below each " +
		"violation"
	n.spoilsTheBooks()
	out := n.script(script{document: "operators/operations.md", names: names,
		fails: map[string]int{"rollcall audit": exitFailed},
		before: map[string]func(){audit: func() {
			_, stdout, _ := n.run("audit")
			names["SUBJECT"] = report(t, stdout)
		}}})
	effort.Has(t, out[0], "every invariant holds", strings.Join(out, "\n"))
	effort.Has(t, out[2], "50 GiB", strings.Join(out, "\n"))
	out = n.script(script{document: "operators/runbooks/disk-full.md", names: names})
	effort.Has(t, out[0], "ledger.db-wal", strings.Join(out, "\n"))
	effort.Has(t, out[1], "stored bytes", strings.Join(out, "\n"))
}

// TestTheRunbookOfSources: a source is suspended because receivers refuse it.
func TestTheRunbookOfSources(t *testing.T) {
	t.Parallel()
	n := newScriptNode(t, "", nil)
	n.environ = append(n.environ, "ROLLCALL_SMTP_SOURCE_ADDRESSES=127.0.0.1")
	n.starts()
	var domains []string
	for i := range 12 {
		domains = append(domains, fmt.Sprintf("documents%d-blocked.test", i))
	}
	n.submits(1, domains...)
	untilPrinted(n.cli, "suspended", "sources")
	untilPrinted(n.cli, "fail     suspended", "doctor", "--now")
	out := n.script(script{document: "operators/runbooks/sources.md", names: map[string]string{"192.0.2.10": "127.0.0.1"},
		fails: map[string]int{"rollcall doctor": exitFailed}})
	effort.Has(t, out[0], "suspended", "no source is suspended")
	effort.Has(t, out[0], "fail     suspended", "no source is suspended")
}

// TestTheRunbookOfIdentity: the address has no PTR and the SPF record refuses it; then both are repaired.
func TestTheRunbookOfIdentity(t *testing.T) {
	t.Parallel()
	n := newScriptNode(t, "[identity]\npublic_addresses = [\"192.0.2.10\"]\n", nil)
	n.dns.set(t, reverse, dns.TypePTR)
	n.dns.set(t, "probe.example.com.", dns.TypeA, seenAt)
	n.dns.set(t, "probe.example.com.", dns.TypeAAAA)
	n.dns.set(t, "example.com.", dns.TypeMX, "10 mx.example.com.")
	n.dns.set(t, "mx.example.com.", dns.TypeA, seenAt)
	n.dns.set(t, "example.com.", dns.TypeTXT, `"v=spf1 -all"`)
	n.environ = append(n.environ, "ROLLCALL_SMTP_HELLO_NAME=probe.example.com",
		"ROLLCALL_SMTP_RETURN_PATH=bounce@example.com")
	config := effort.Must(os.ReadFile(filepath.Join(n.folder, "node.toml")))(t)
	n.write("etc/rollcall.toml", string(config))
	n.starts()
	n.script(script{document: "operators/runbooks/identity.md", names: atHome(nil),
		fails: map[string]int{"rollcall doctor": exitFailed, "rollcall doctor --config etc/rollcall.toml": exitFailed},
		before: map[string]func(){"rollcall doctor --now": func() {
			n.dns.set(t, reverse, dns.TypePTR, "probe.example.com.")
			n.dns.set(t, "example.com.", dns.TypeTXT, `"v=spf1 ip4:`+seenAt+` -all"`)
		}}})
	n.logs("node may probe again")
}

// TestTheRunbookOfCertificates: first one file of a pair is replaced, then the other.
func TestTheRunbookOfCertificates(t *testing.T) {
	t.Parallel()
	n := newScriptNode(t, "", nil)
	folder, next := filepath.Join(n.folder, "etc"), t.TempDir()
	certFile, keyFile, _ := nettest.WriteCertificate(t, folder, time.Now().Add(time.Hour))
	nettest.WriteCertificate(t, next, time.Now().Add(2*time.Hour))
	n.environ = append(n.environ, "ROLLCALL_HTTP_TLS_CERT="+certFile, "ROLLCALL_HTTP_TLS_KEY="+keyFile)
	n.starts()
	replace := func(name string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(next, name))
		if err == nil {
			n.write("etc/"+name+".next", string(text))
			err = os.Rename(filepath.Join(folder, name+".next"), filepath.Join(folder, name))
		}
		effort.OK(t, err)
	}
	replace("tls.key")
	n.logs("new certificate refused, the old one stays in use")
	out := n.script(script{document: "operators/runbooks/certificate.md", names: atHome(map[string]string{
		"/etc/rollcall/api.crt": "etc/tls.crt"}), standIns: map[string]string{"journalctl": "cat log"}})
	effort.Has(t, out[0], "new certificate refused", "no refusal, or no end")
	effort.Has(t, out[0], "notAfter=", "no refusal, or no end")
	replace("tls.crt")
	n.logs("new certificate in force")
}

// TestTheAdminListenerOfTheDocs: one node's admin listener uses TLS, another one's is a unix socket.
func TestTheAdminListenerOfTheDocs(t *testing.T) {
	t.Parallel()
	encrypted, local := newScriptNode(t, "", nil), newScriptNode(t, "", nil)
	certFile, keyFile, _ := nettest.WriteCertificate(t, filepath.Join(encrypted.folder, "etc"),
		time.Now().Add(time.Hour))
	socket := filepath.Join(t.TempDir(), "admin.sock")
	const token = "token-of-both-nodes"
	for n, environ := range map[*scriptNode][]string{
		encrypted: {"ROLLCALL_ADMIN_TLS_CERT=" + certFile, "ROLLCALL_ADMIN_TLS_KEY=" + keyFile},
		local:     {"ROLLCALL_ADMIN_LISTEN=unix:" + socket},
	} {
		effort.OK(t, os.Mkdir(filepath.Join(n.folder, "rollcall-data"), 0o700))
		n.write("rollcall-data/admin.token", token)
		n.environ = append(n.environ, environ...)
		serveLogged(n.cli, n.log, "serve", "--config", "node.toml")
		n.logs("node started")
	}
	out := encrypted.script(script{document: "start/network.md", names: map[string]string{"/etc/rollcall/ca.crt": certFile,
		"https://node-1:8081":      strings.Replace(encrypted.admin, "http:", "https:", 1),
		"/run/rollcall/admin.sock": socket}})
	effort.Is(t, strings.Count(out[0], " serving "), 2, "two nodes do not answer in", out[0])
}

// These tests run the blocks of documents about a cluster.

// scriptCluster is a crowd whose ledger can be taken away.
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

// works makes a node work on a file. The node that gets a file looks for work first. If another node is quicker, or
// if the file is finished or waits before the test looks, the test tries another file.
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

// script runs the blocks of a document in the folder with the certificates.
func (c scriptCluster) script(s script) []string {
	c.t.Helper()
	s.folder, s.environ = c.folder, c.environ
	return s.run(c.t)
}

// wasCalled checks that the last call of a stand-in was this one.
func (c scriptCluster) wasCalled(line string) {
	c.t.Helper()
	called := filepath.Join(c.folder, "called")
	effort.Is(c.t, string(effort.Must(os.ReadFile(called))(c.t)), line+"\n", "called: and", line)
	effort.ErrIs(c.t, os.Remove(called), nil)
}

// TestTheRunbooksOfAClusterThatChanges: a node is upgraded after its first drain was taken back, keys change, and a
// node joins.
func TestTheRunbooksOfAClusterThatChanges(t *testing.T) {
	t.Parallel()
	c := newScriptCluster(t)
	systemctl := map[string]string{"systemctl": ""}
	const members = "rollcall cluster members"
	c.works("node-3")
	c.script(script{document: "operators/runbooks/rolling-upgrade.md", standIns: systemctl, before: map[string]func(){
		"systemctl restart rollcall": func() { // somebody takes the drain back before that
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

// TestTheRunbooksOfAClusterThatIsHurt: a node is cut off from gossip, one is killed, and the ledger goes away and
// comes back.
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

// TestFirstClusterTour runs the lines of docs/start/first-cluster.md one after the other, on a network where all
// ports are free, and stops at the first that fails. Programs that the lines start end with the test.
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

// needTourTools skips the test if a program that the lines need is missing.
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

// tourFolder makes a folder with the binary that belongs to the user nobody.
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
