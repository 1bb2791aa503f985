package main

import (
	"bytes"
	"context"
	"fmt"
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
	nodes []*member
}

// member is a node and its present life.
type member struct {
	*rig
	life *background
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
		m := &member{rig: newRig(t, rigOptions{dns: lab.DNSAddr(), smtpPort: lab.SMTPPort(), settings: fmt.Sprintf(`
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
	w.nodes[0].does("migrate", "--config", "node.toml")
	return w
}

// start begins a life of a node and waits until it is ready.
func (w *crowd) start(m *member) {
	w.t.Helper()
	m.life = m.serve()
	m.life.listen()
	await(w.t.Context(), w.t, "node is ready", func() bool { return isReady(m.admin) })
}

// stop stops the process of a node for a while.
func (w *crowd) stop(m *member, long time.Duration) {
	w.t.Helper()
	effort.OK(w.t, m.life.command.Process.Signal(syscall.SIGSTOP))
	_ = term.Sleep(w.t.Context(), long)
	effort.OK(w.t, m.life.command.Process.Signal(syscall.SIGCONT))
}

// agree reports whether nodes count on each other, and know that all do.
func (w *crowd) agree() bool {
	for _, m := range w.nodes {
		text := m.scrape(w.t.Context())
		members, _ := sumOf(text, "rollcall_cluster_view_members")
		if settled, _ := sumOf(text, "rollcall_cluster_settled"); members != float64(len(w.nodes)) || settled != 1 {
			return false
		}
	}
	return true
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
