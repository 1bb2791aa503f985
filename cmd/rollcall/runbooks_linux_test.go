package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/smtp/smtplab"
)

// These tests run the blocks of documents about one node.

// scriptNode is a node with a folder etc for its files, whose log is a file.
type scriptNode struct {
	*rig
	dns *dnsFront
	log string
}

// newScriptNode starts a node, with simulated receivers behind a DNS that can be changed.
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

// submits has the customer submit addresses, so many at each domain, and gives the verification.
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

// atHome is how the folders of a machine are called in the folder of a test.
func atHome(more map[string]string) map[string]string {
	names := map[string]string{"/etc/rollcall/": "etc/", "/var/lib/rollcall": "rollcall-data", "/backups": "."}
	for name, here := range more {
		names[name] = here
	}
	return names
}

// TestTheRunbooksOfReceivers: one receiver has a long queue, another one closes every session.
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
		"rollcall verdict unknown --days 3": exitFailed}}) // it judges by that file
}

// TestTheRunbooksOfTheLedgersDisk: books that are off are corrected, a backup is made, and a
// workspace gets other limits; then the disk has less free than it must.
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

// TestTheRunbookOfSources: a source that receivers refuse rests.
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
	untilPrinted(n.cli, "resting", "sources")
	untilPrinted(n.cli, "fail     rest", "doctor", "--now")
	out := n.script(script{document: "operators/runbooks/sources.md", names: map[string]string{"192.0.2.10": "127.0.0.1"},
		fails: map[string]int{"rollcall doctor": exitFailed}})
	effort.Has(t, out[0], "resting", "no source rests")
	effort.Has(t, out[0], "fail     rest", "no source rests")
}

// TestTheRunbookOfIdentity: the address has no PTR and the SPF record refuses it; then both are mended.
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
	n.logs("node is fit to probe again")
}

// TestTheRunbookOfCertificates: one file of a pair is replaced, then the other one too.
func TestTheRunbookOfCertificates(t *testing.T) {
	t.Parallel()
	n := newScriptNode(t, "", nil)
	folder, next := filepath.Join(n.folder, "etc"), t.TempDir()
	certFile, keyFile, _ := effort.WriteCertificate(t, folder, time.Now().Add(time.Hour))
	effort.WriteCertificate(t, next, time.Now().Add(2*time.Hour))
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

// TestTheAdminListenerOfTheDocs: one node's admin listener speaks TLS, another one's is a unix socket.
func TestTheAdminListenerOfTheDocs(t *testing.T) {
	t.Parallel()
	encrypted, local := newScriptNode(t, "", nil), newScriptNode(t, "", nil)
	certFile, keyFile, _ := effort.WriteCertificate(t, filepath.Join(encrypted.folder, "etc"),
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
