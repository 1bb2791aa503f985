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
	"runtime"
	"slices"
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

// These are the figures of docs/developers/measured.md that need real processes, on PostgreSQL,
// with the lab in the test's process:
//
//	go test ./cmd/rollcall -run '^TestClusterFigures' -long -v -timeout 30m

const (
	// figureSlots is how many SMTP sessions a node of the throughput figure may have: few, so that latency is what
	// bounds a node, and not the processors that all nodes of one machine share. A node keeps half of the files beyond
	// filesKept for sessions.
	figureSlots = 100
	filesKept   = 1024 // as a node keeps them for everything else

	figureTurn   = 100 * time.Millisecond
	figureAddrs  = 48_000
	figureHomes  = 600
	figureRounds = 3
)

// crowd is a cluster of processes whose figures are taken.
type crowd struct {
	t     *testing.T
	lab   *smtplab.Lab
	url   string // of the ledger
	book  *pgx.Conn
	nodes []*measured
}

type measured struct {
	*rig
	source string // of its SMTP sessions
	files  int    // that it may have open; 0: as the system says
	life   *exec.Cmd
	id     []byte // its node in the ledger
}

// newCrowd makes n nodes that do not run yet, of the binary at path.
func newCrowd(t *testing.T, server *postgres.Server, lab *smtplab.Lab, settings string, n int, path string) *crowd {
	t.Helper()
	name := "figures" + strings.ReplaceAll(uuid.NewString(), "-", "")
	w := &crowd{t: t, lab: lab, url: server.NewDatabase(t, name, "")}
	w.book = effort.Must(pgx.Connect(t.Context(), w.url))(t)
	t.Cleanup(func() { _ = w.book.Close(context.WithoutCancel(t.Context())) })
	block := int(portsGiven.Add(1))%200 + 1 // of addresses
	gossip, actors := freePort(t), freePort(t)
	for i := range n {
		address := func(kind int) string { return fmt.Sprintf("127.%d.%d.%d", kind, block, i+1) }
		m := &measured{source: address(33)}
		m.rig = newRig(t, rigOptions{dns: lab.DNSAddr(), smtpPort: lab.SMTPPort(), settings: fmt.Sprintf(`
source_addresses = [%q]
[ledger]
url = %q
[cluster]
node = "node-%d"
gossip_listen = "%s:%d"
actor_listen = "%s:%d"
advertise = "%s"
join = ["127.31.%d.1:%d"]
%s`, m.source, w.url, i, address(31), gossip, address(31), actors, address(31), block, gossip, settings)})
		m.binary = path
		m.environ = []string{"ROLLCALL_ADMIN=" + m.admin} // and not the ports of a rig alone
		id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(fmt.Sprintf("node-%d", i)))
		m.id = id[:]
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
	if m.files > 0 {
		limited := m.command(context.Background())
		limited.Path, limited.Args = "/bin/sh", append([]string{"sh", "-c",
			fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, m.files)}, c.Args...)
		c = limited
	}
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
func (w *crowd) kill(m *measured) time.Time {
	w.t.Helper()
	at := time.Now()
	effort.OK(w.t, m.life.Process.Signal(syscall.SIGKILL))
	_ = m.life.Wait()
	return at
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

// speed gives the addresses a second of the middle half of a file: before and after
// it not all sessions have something to do.
func (w *crowd) speed() float64 {
	w.t.Helper()
	start := w.lab.Manners().Total.Rcpts
	reach := func(part float64) (int, time.Time) {
		n := 0
		w.await("the file is in work", func() bool {
			n = w.lab.Manners().Total.Rcpts - start
			return float64(n) >= part*figureAddrs
		})
		return n, time.Now()
	}
	first, began := reach(0.25)
	last, ended := reach(0.75)
	return float64(last-first) / ended.Sub(began).Seconds()
}

// standing is what the ledger knows of a verification.
type standing struct {
	node  []byte
	epoch int64
	done  bool
}

func (w *crowd) standing(id uuid.UUID) (s standing) {
	w.t.Helper()
	const ask = "SELECT lease_node, epoch, completed > 0 FROM verifications WHERE id = $1"
	effort.OK(w.t, w.book.QueryRow(w.t.Context(), ask, id[:]).Scan(&s.node, &s.epoch, &s.done))
	return s
}

// TestClusterFiguresOfThroughput measures how much faster more nodes are on receivers that are slow to answer.
func TestClusterFiguresOfThroughput(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	server := postgres.New(t, postgres.Options{})
	o := quickLab()
	o.Latency = figureTurn
	lab := startLab(t, o)
	settings := strings.Replace(wideOpen, "connections = 4", "connections = 2", 1)
	file := cleanFile(figureAddrs, figureHomes)
	var base float64
	for n := 1; n <= 3; n++ {
		w := newCrowd(t, server, lab, settings, n, "")
		for _, m := range w.nodes {
			m.files = filesKept + 2*figureSlots
		}
		w.start(w.nodes...)
		w.await("the nodes agree", agreed(w.nodes...))
		id := w.submit(file)
		speed := w.speed()
		w.await("the file is done", func() bool { return w.standing(id).done })
		if n == 1 {
			base = speed
		}
		var processor time.Duration
		for _, m := range w.nodes {
			p := effort.Must(processorOf(m.life.Process.Pid))(t)
			processor += p
			w.kill(m)
		}
		t.Logf("| %d nodes, %d processors | %.0f addresses/s | ratio %.2f | %.1f us of all nodes' processor each |", n,
			runtime.GOMAXPROCS(0), speed, speed/base, float64(processor.Microseconds())/figureAddrs)
	}
}

// TestClusterFiguresOfTakeover measures how soon a node that joins has work, and how
// soon others go on with what a killed one had.
func TestClusterFiguresOfTakeover(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	server := postgres.New(t, postgres.Options{})
	var joins, leases, receivers []time.Duration
	for range figureRounds {
		o := quickLab()
		o.EventsMax = 1 << 20
		lab := startLab(t, o)
		settings := strings.Replace(wideOpen, `rcpt_rate = "1000000/s"`, `rcpt_rate = "2/s"`, 1)
		w := newCrowd(t, server, lab, settings, 3, "")
		w.start(w.nodes[:2]...)
		w.await("the nodes agree", agreed(w.nodes[:2]...))
		id := w.submit(cleanFile(figureHomes/2*400, figureHomes/2)) // 200 s of work
		w.await("the file is in work", func() bool { return len(w.standing(id).node) > 0 })
		joins = append(joins, w.joins(w.nodes[2]))
		held := w.standing(id)
		idle := w.nodes[slices.IndexFunc(w.nodes, func(m *measured) bool { return !bytes.Equal(m.id, held.node) })]
		receivers = append(receivers, w.receiversAfter(idle)...)
		t.Logf("joined after %s; others spoke to its receivers after %s", spreadOf(joins), spreadOf(receivers))
		w.start(idle)
		held = w.standing(id)
		holder := w.nodes[slices.IndexFunc(w.nodes, func(m *measured) bool { return bytes.Equal(m.id, held.node) })]
		at := w.kill(holder)
		w.await("the lease is taken over", func() bool {
			now := w.standing(id)
			return now.epoch > held.epoch && len(now.node) > 0
		})
		leases = append(leases, time.Since(at))
		for _, m := range w.nodes {
			if m != holder {
				w.kill(m)
			}
		}
		stopLab(t, lab)
	}
	t.Logf("on %d processors, %d rounds, min/median/max:", runtime.GOMAXPROCS(0), figureRounds)
	t.Logf("| from the start of a process to its first RCPT | %s |", spreadOf(joins))
	t.Logf("| from kill -9 to the next owner of the verification | %s |", spreadOf(leases))
	t.Logf("| from kill -9 to the next RCPT at each of %d receivers | %s |", len(receivers), spreadOf(receivers))
}

// joins starts a node and gives the time to its first RCPT.
func (w *crowd) joins(m *measured) time.Duration {
	w.t.Helper()
	began := time.Now()
	w.launch(m)
	var first time.Time
	w.await("the node that joined works", func() bool {
		if m.seen("rollcall_probe_answers_total") < 1 {
			return false
		}
		for _, e := range w.lab.Events() {
			if e.Kind == "rcpt" && e.Client == m.source && e.At.After(began) {
				first = e.At
				return true
			}
		}
		return false
	})
	w.await("the nodes agree", agreed(w.nodes...))
	return first.Sub(began)
}

// receiversAfter kills a node and gives, for each receiver that it was the last to speak to, how soon another one does.
func (w *crowd) receiversAfter(m *measured) (took []time.Duration) {
	w.t.Helper()
	had := len(w.lab.Events())
	w.await("all receivers are in work", func() bool { return len(w.lab.Events()) > had+2000 })
	at := w.kill(m)
	mine := map[string]bool{} // the last client of a receiver was the killed one
	for _, e := range w.lab.Events() {
		if e.Kind == "rcpt" && e.At.Before(at) {
			mine[e.Host] = e.Client == m.source
		}
	}
	missing := map[string]bool{}
	for host, is := range mine {
		if is {
			missing[host] = true
		}
	}
	if len(missing) == 0 {
		w.t.Fatal("the killed node spoke to nobody")
	}
	seen := len(w.lab.Events())
	w.await("others speak to its receivers", func() bool {
		all := w.lab.Events()
		for _, e := range all[seen:] {
			if e.Kind == "rcpt" && missing[e.Host] && e.Client != m.source && e.At.After(at) {
				took = append(took, e.At.Sub(at))
				delete(missing, e.Host)
			}
		}
		seen = len(all)
		return len(missing) == 0
	})
	return took
}

// spreadOf shows the least, the middle and the most.
func spreadOf(d []time.Duration) string {
	d = slices.Sorted(slices.Values(d))
	if len(d) == 0 {
		return "none"
	}
	round := func(x time.Duration) string { return x.Round(10 * time.Millisecond).String() }
	return fmt.Sprintf("%s / %s / %s", round(d[0]), round(d[len(d)/2]), round(d[len(d)-1]))
}
