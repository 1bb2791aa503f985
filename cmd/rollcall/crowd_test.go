package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/smtp/smtplab"
)

// crowd is a cluster of processes on loopback: node-1 at 127.0.0.1, and so on.
type crowd struct {
	*rig     // node-1 as operators see it, and a customer of one of them
	lab      *smtplab.Lab
	url      string // of the ledger
	settings string // more TOML, of all
	ports    [5]int // of the API, uploads, the admin listener, gossip and actors, on all
	members  map[string]*background
}

// newCrowd starts three nodes of the binary at path with certificates and a gossip key.
func newCrowd(t *testing.T, lab *smtplab.Lab, url, settings, path string) *crowd {
	t.Helper()
	c := &crowd{rig: &rig{cli: newCLI(t)}, lab: lab, url: url, settings: settings, members: map[string]*background{}}
	c.binary = path
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
func (c *crowd) configures(name string, gossip int) {
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
join = ["127.0.0.1:%[6]d", "127.0.0.2:%[6]d", "127.0.0.3:%[6]d"]
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
source_addresses = [%[2]q]
%[11]s`, name, at, p[0], p[1], p[2], gossip, p[4], c.url, c.lab.DNSAddr(), c.lab.SMTPPort(), c.settings))
}

// serves starts a node and waits until it serves. A node whose ledger does not answer in time, as on a busy machine,
// ends: then it is started again, as systemd does.
func (c *crowd) serves(name string) {
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

// isSound waits until all nodes serve and nothing is said below the table.
func (c *crowd) isSound() {
	c.t.Helper()
	until(c.t, func() (bool, string) {
		out := c.shows("cluster", "members")
		_, table, _ := strings.Cut(out, "\n\n")
		return strings.Count(table, " serving ") >= 3 && !strings.Contains(table, "\n\n"), "a sound cluster: " + out
	})
}

// serveLogged starts the binary beside the test, with a file as its log.
func serveLogged(c *cli, log string, args ...string) *background {
	c.t.Helper()
	file := effort.Must(os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(c.t)
	defer file.Close()
	command := c.command(context.Background(), args...)
	command.Stdout, command.Stderr = file, file
	return beside(c.t, command, startHere)
}

// shows gives what a command prints. It runs in this process, since it is asked again and again.
func (c *cli) shows(args ...string) string {
	out, errs, err := runHere(c.t.Context(), false, c.ours(), "", args...)
	if err != nil {
		errs += err.Error()
	}
	return out + errs
}

// scriptWait bounds what a document waits for.
const scriptWait = time.Minute

// until waits for something that is looked at again and again.
func until(t *testing.T, look func() (is bool, what string)) {
	t.Helper()
	for end := time.Now().Add(scriptWait); ; {
		is, what := look()
		if is {
			return
		}
		effort.FatalIf(t, time.Now().After(end) || term.Sleep(t.Context(), 100*time.Millisecond) != nil,
			"still waiting for: %s", what)
	}
}
