package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp/smtplab"
)

// crowd is a cluster of processes on PostgreSQL, with the lab in the test's process.
type crowd struct {
	t     *testing.T
	book  *pgx.Conn
	nodes []*measured
}

type measured struct {
	*rig
	life *exec.Cmd
}

// newCrowd makes n nodes that do not run yet, of the binary at path.
func newCrowd(t *testing.T, server *postgres.Server, lab *smtplab.Lab, settings string, n int, path string) *crowd {
	t.Helper()
	url := server.NewDatabase(t, "crowd"+strings.ReplaceAll(uuid.NewString(), "-", ""), "")
	w := &crowd{t: t, book: effort.Must(pgx.Connect(t.Context(), url))(t)}
	t.Cleanup(func() { _ = w.book.Close(context.WithoutCancel(t.Context())) })
	block := int(portsGiven.Add(1))%200 + 1 // of addresses
	gossip, actors := freePort(t), freePort(t)
	for i := range n {
		address := func(kind int) string { return fmt.Sprintf("127.%d.%d.%d", kind, block, i+1) }
		m := &measured{rig: newRig(t, rigOptions{dns: lab.DNSAddr(), smtpPort: lab.SMTPPort(), settings: fmt.Sprintf(`
source_addresses = [%q]
[ledger]
url = %q
[cluster]
node = "node-%d"
gossip_listen = "%s:%d"
actor_listen = "%s:%d"
advertise = "%s"
join = ["127.31.%d.1:%d"]
%s`, address(33), url, i, address(31), gossip, address(31), actors, address(31), block, gossip, settings)})}
		m.binary = path
		m.environ = []string{"ROLLCALL_ADMIN=" + m.admin} // and not the ports of a rig alone
		w.nodes = append(w.nodes, m)
	}
	if code, _, stderr := w.nodes[0].run("migrate", "--config", "node.toml"); code != exitDone {
		t.Fatalf("migrate: got code %d and %s", code, stderr)
	}
	return w
}

// start begins lives of nodes and waits until they are ready.
func (w *crowd) start(nodes ...*measured) {
	w.t.Helper()
	for _, m := range nodes {
		w.launch(m)
		w.await("node is ready", m.ready)
	}
}

// launch begins a life of a node.
func (w *crowd) launch(m *measured) {
	w.t.Helper()
	log := effort.Must(os.OpenFile(filepath.Join(m.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(w.t)
	defer log.Close()
	c := m.command(context.Background(), "serve", "--config", "node.toml")
	c.Stdout, c.Stderr = log, log
	effort.OK(w.t, c.Start())
	m.life = c
	w.t.Cleanup(func() {
		_ = c.Process.Kill() // fails when it has ended
		_ = c.Wait()
		if w.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			w.t.Logf("a node said:\n%s", text[max(0, len(text)-4000):])
		}
	})
}

// kill ends a node as kill -9 does.
func (w *crowd) kill(m *measured) {
	w.t.Helper()
	effort.OK(w.t, m.life.Process.Signal(syscall.SIGKILL))
	_ = m.life.Wait()
}

// stop stops the process of a node for a while.
func (w *crowd) stop(m *measured, long time.Duration) {
	w.t.Helper()
	effort.OK(w.t, m.life.Process.Signal(syscall.SIGSTOP))
	_ = term.Sleep(w.t.Context(), long)
	effort.OK(w.t, m.life.Process.Signal(syscall.SIGCONT))
}

func (m *measured) ready() bool { return isReady(m.admin) }

// seen gives the sum of a metric of a node over its labels; -1: it does not answer.
func (m *measured) seen(name string) float64 {
	answer, err := http.Get(m.admin + "/metrics")
	if err != nil {
		return -1
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	sum, _ := sumOf(string(text), name)
	return sum
}

// agreed reports whether nodes count on each other, and know that all do.
func agreed(nodes ...*measured) func() bool {
	return func() bool {
		for _, m := range nodes {
			if m.seen("rollcall_cluster_view_members") != float64(len(nodes)) || m.seen("rollcall_cluster_settled") != 1 {
				return false
			}
		}
		return true
	}
}

// await looks until ok.
func (w *crowd) await(what string, ok func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), loadWait)
	defer cancel()
	await(ctx, w.t, what, ok)
}

// submit hands a file to the first node and gives the verification.
func (w *crowd) submit(file []byte) uuid.UUID {
	w.t.Helper()
	first := w.nodes[0]
	first.open(int64(bytes.Count(file, []byte("\n"))))
	return uuid.MustParse(mustHandIn(w.t.Context(), w.t, first.client(), file))
}

// done reports whether a verification has its end.
func (w *crowd) done(id uuid.UUID) (done bool) {
	w.t.Helper()
	const ask = "SELECT completed > 0 FROM verifications WHERE id = $1"
	effort.OK(w.t, w.book.QueryRow(w.t.Context(), ask, id[:]).Scan(&done))
	return done
}
