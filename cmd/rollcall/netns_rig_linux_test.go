package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp/smtplab"
)

// Places beside the nodes.
const (
	outside  = "outside" // where customers and operators are
	labHome  = "lab"
	database = "db"
)

// netLimits are the allowance of every receiver. Small enough that a file is under
// way for half a minute, and that a node which does not know of another breaks it.
var netLimits = smtplab.Tally{SessionsAtOnce: 3, SessionsIn1s: 20, RcptsIn1s: 12, RcptsPerSession: 60}

// netSettings tell the nodes of netLimits.
//
//go:embed testdata/net_limits.toml
var netSettings string

const (
	netEvents   = 1_000_000        // more than a story makes
	serveWithin = 60 * time.Second // from a start, or a heal, to the first answer
	netToken    = "token-of-every-node"
)

// netRig is a cluster of processes on separate networks, with its surroundings.
type netRig struct {
	*rig // of customers and operators: they reach any node that is well
	hub  *hub
	// truth knows the right outcomes; nobody asks it anything else.
	truth *smtplab.Lab
	book  *pgx.Conn // into the ledger, past every cut
	nodes []*netNode

	mu sync.Mutex
	at int // of the node that the last customer got; guarded by mu
}

// netNode is one node, through all of its lives.
type netNode struct {
	*cli
	name  string
	place *place
	life  *background
	log   string // path

	mu      sync.Mutex
	state   nodeState     // guarded by mu
	changed chan struct{} // closed at the next change of state; guarded by mu
}

// nodeState is what a node owes to customers.
type nodeState string

const (
	hurt       nodeState = "hurt"       // dead, stopped or cut off: nothing
	recovering nodeState = "recovering" // soon an answer
	well       nodeState = "well"       // every answer
)

// newNetRig makes networks, database, lab and nodes, which do not run yet.
func newNetRig(t *testing.T, names ...string) *netRig {
	t.Helper()
	needSpaces(t)
	r := &netRig{rig: &rig{cli: newCLI(t)}, truth: startLab(t, smtplab.Defaults())}
	r.hub = newHub(t, append([]string{outside}, append(names, labHome, database)...)...)
	url := r.startDatabase(t)
	r.startLab(t)
	listOf := func(format string) string {
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprintf(format, r.hub.places[name].addr))
		}
		return strings.Join(all, ", ")
	}
	upload := r.front(t, 8082)
	r.api, r.admin = r.front(t, 8080), r.front(t, adminPort)
	r.environ = []string{"ROLLCALL_ADMIN=" + r.admin, "ROLLCALL_ADMIN_TOKEN=" + netToken}
	r.writeToken(r.cli)
	r.makeKeys(names)
	for _, name := range names {
		n := &netNode{cli: &cli{t: t, folder: t.TempDir()}, name: name, place: r.hub.places[name], state: hurt,
			changed: make(chan struct{})}
		n.log = filepath.Join(n.folder, "log")
		r.writeToken(n.cli)
		n.write("node.toml", netConfig(n, url, upload)+r.clusterConfig(n, listOf(`"%s:7946"`))+"\n"+netSettings)
		r.mu.Lock() // the fronts run already
		r.nodes = append(r.nodes, n)
		r.mu.Unlock()
	}
	code, _, stderr := r.migrate(url)
	effort.FatalIf(t, code != exitDone, "migrate: got code %d and %s", code, stderr)
	return r
}

// netConfig is what a node is told beside [cluster].
func netConfig(n *netNode, url, uploads string) string {
	return fmt.Sprintf(`
[http]
listen = "%[1]s:8080"
plain = true # nobody else is in these networks, and clients of tests trust no certificate
public_url = ""
reads_per_second = 10000
burst = 10000
creates_per_second = 1000
creates_burst = 1000
[upload]
listen = "%[1]s:8082"
public_url = %[2]q
[admin]
listen = "127.0.0.1:%[6]d"
[ledger]
url = %[3]q
[dns]
servers = [%[4]q]
[smtp]
port = 25
hello_name = "rollcall.example"
allow_networks = [%[5]q]
`, n.place.addr, uploads, url, labDNS, labNetwork, adminPort)
}

// clusterConfig is [cluster] of a node.
func (r *netRig) clusterConfig(n *netNode, join string) string {
	return fmt.Sprintf(`
[cluster]
name = "networks"
gossip_listen = "%[1]s:%[2]d"
actor_listen = "%[1]s:%[3]d"
join = [%[4]s]
gossip_key_file = "%[5]s/gossip.key"
tls_ca_file = "%[5]s/certs/ca.crt"
tls_cert_file = "%[5]s/certs/%[6]s.crt"
tls_key_file = "%[5]s/certs/%[6]s.key"
`, n.place.addr, gossipPort, actorPort, join, r.folder, n.name)
}

// makeKeys makes certificates and the gossip key, as an operator does.
func (r *netRig) makeKeys(names []string) {
	r.t.Helper()
	commands := [][]string{{"cluster", "keys", "new", "gossip.key"}, {"cluster", "cert", "init"}}
	for _, name := range names {
		commands = append(commands, []string{"cluster", "cert", "node", name})
	}
	for _, args := range commands {
		r.does(args...)
	}
}

// writeToken gives a folder the operator's token, which all nodes share here.
func (r *netRig) writeToken(c *cli) {
	r.t.Helper()
	effort.OK(r.t, os.Mkdir(filepath.Join(c.folder, "rollcall-data"), 0o700))
	c.write("rollcall-data/admin.token", netToken)
}

// startDatabase starts PostgreSQL, which nodes reach in a place of its own.
func (r *netRig) startDatabase(t *testing.T) (url string) {
	t.Helper()
	name, direct := newDatabase(t)
	r.book = effort.Must(pgx.Connect(t.Context(), direct))(t)
	t.Cleanup(func() { _ = r.book.Close(context.WithoutCancel(t.Context())) })
	home := r.hub.places[database]
	at := fmt.Sprintf("%s:%d", home.addr, ledgerPort)
	l := effort.Must(home.listen(at))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			node, err := l.Accept()
			if err != nil {
				return
			}
			go passOn(node, postgres.Shared(t).Address())
		}
	}()
	return "postgres://rollcall@" + at + "/" + name + "?sslmode=disable"
}

// passOn joins a connection with one to an address of this machine; the end of either is the end of both.
func passOn(conn net.Conn, to string) {
	defer conn.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
}

// migrate makes the tables, from the database's own place.
func (r *netRig) migrate(url string) (code int, stdout, stderr string) {
	c := r.command(r.t.Context(), "migrate")
	c.Env = append(c.Env, "ROLLCALL_LEDGER_URL="+url)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	code = beside(r.t, c, r.hub.places[database].start).wait(cliWait)
	return code, out.String(), errs.String()
}

// startLab starts the lab in its place, every address of whose network is its own.
func (r *netRig) startLab(t *testing.T) {
	t.Helper()
	home := r.hub.places[labHome]
	home.ip(t, "route add local "+labNetwork+" dev lo")
	r.hub.ip(t, "route add "+labNetwork+" via "+home.addr)
	c := r.command(context.Background(), "lab", "--json", "--network", labNetwork, "--dns", labDNS,
		"--smtp-port", "25", "--greylist-wait", "1s", "--events", fmt.Sprint(netEvents), "--sheet", home.addr+":8025")
	listened(t, c, home.start).waitFor("smtp_port")
}

// adminPort is where nodes listen for operators, of their own machine only.
const adminPort = 8081

// front returns a URL of this machine for a port of the nodes, as behind a load balancer: healthy nodes get requests
// in turn, and a request ends when its node is no longer healthy.
func (r *netRig) front(t *testing.T, port int) string {
	t.Helper()
	aborts := func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		n, changed := r.anyNode()
		if n == nil {
			aborts(w, asked, nil)
		}
		from, host := r.hub.places[outside].space, n.place.addr
		if port == adminPort {
			from, host = n.place.space, "127.0.0.1"
		}
		ctx, cancel := context.WithCancel(asked.Context())
		defer cancel()
		go func() {
			select {
			case <-changed:
				cancel()
			case <-ctx.Done():
			}
		}()
		proxy := httputil.ReverseProxy{Transport: from.transport(), ErrorHandler: aborts,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(&url.URL{Scheme: "http", Host: fmt.Sprint(host, ":", port)})
				p.Out.Host = p.In.Host
			}}
		proxy.ServeHTTP(w, asked.WithContext(ctx))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// anyNode returns the healthy nodes in turn; nil: there is none. The channel is closed when the node's state changes.
func (r *netRig) anyNode() (*netNode, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.nodes {
		r.at++
		n := r.nodes[r.at%len(r.nodes)]
		if state, changed := n.look(); state == well {
			return n, changed
		}
	}
	return nil, nil
}

// become changes the state. Open requests of customers to a node that was healthy end, as a load balancer ends them.
func (n *netNode) become(s nodeState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = s
	close(n.changed)
	n.changed = make(chan struct{})
}

// look returns the state, and a channel that is closed when it changes.
func (n *netNode) look() (nodeState, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state, n.changed
}

// start begins a life of a node; it does not wait until it answers.
func (r *netRig) start(n *netNode) {
	r.t.Helper()
	log := effort.Must(os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(r.t)
	c := n.command(context.Background(), "serve", "--config", "node.toml")
	c.Stdout, c.Stderr = log, log
	n.life = beside(r.t, c, n.place.start)
	_ = log.Close() // it is the program's
	n.become(recovering)
}

// kill ends a node as a power cut of its process does.
func (r *netRig) kill(n *netNode) {
	r.t.Helper()
	n.become(hurt)
	n.life.kill()
}

// stop ends a node as an operator does.
func (r *netRig) stop(n *netNode) {
	r.t.Helper()
	n.become(hurt)
	n.life.terminate()
}

// awaitWell waits until nodes answer customers, all of them if none is named. A node that ends because a busy machine's
// ledger didn't answer in time is started again, as a supervisor does.
func (r *netRig) awaitWell(nodes ...*netNode) {
	r.t.Helper()
	if len(nodes) == 0 {
		nodes = r.nodes
	}
	deadline := time.After(serveWithin)
	for _, n := range nodes {
		for !n.answers() {
			select {
			case <-n.life.ended:
				if strings.Contains(n.lastWords(), engine.ErrUnavailable.Error()) {
					r.start(n)
					continue
				}
				r.t.Fatalf("%s ended: %v\n%s", n.name, n.life.err, n.lastWords())
			case <-deadline:
				r.t.Fatalf("%s is not ready after %v", n.name, serveWithin)
			case <-time.After(50 * time.Millisecond):
			}
		}
		n.become(well)
	}
}

// lastWords is the end of its log.
func (n *netNode) lastWords() string {
	text, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// answers reports whether the node says that it is ready.
func (n *netNode) answers() bool {
	client := http.Client{Timeout: 5 * time.Second, Transport: n.place.transport()}
	answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", adminPort))
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// sheet reads the lab's sheet, past every cut: the way outside is never cut.
func (r *netRig) sheet() (s smtplab.Sheet) {
	r.t.Helper()
	r.fromLab("/sheet", func(d *json.Decoder) error { return d.Decode(&s) })
	return s
}

// events reads the lab's log of events behind the first n.
func (r *netRig) events(n int) (all []smtplab.Event) {
	r.t.Helper()
	r.fromLab(fmt.Sprintf("/events?after=%d", n), func(d *json.Decoder) error {
		for d.More() {
			var e smtplab.Event
			if err := d.Decode(&e); err != nil {
				return err
			}
			all = append(all, e)
		}
		return nil
	})
	return all
}

func (r *netRig) fromLab(path string, read func(*json.Decoder) error) {
	r.t.Helper()
	client := http.Client{Transport: r.hub.places[labHome].transport(), Timeout: cliWait}
	answer, err := client.Get("http://" + r.hub.places[labHome].addr + ":8025" + path)
	if err == nil {
		defer answer.Body.Close()
		err = read(json.NewDecoder(answer.Body))
	}
	effort.OK(r.t, err, "the lab's", path)
}

// Networks of these tests are network namespaces without a name: they live as long as somebody holds them, so that
// nothing is left of them when the test ends in any way, and no address of the machine is touched.

// forwardFile lets a namespace pass packets on: that of the thread which writes.
const forwardFile = "/proc/sys/net/ipv4/ip_forward"

// space is a network namespace.
type space struct {
	name  string
	using sync.RWMutex // an HTTP client may still dial when the test ends, and then the file is closed
	file  *os.File
}

// newSpace makes a namespace whose loopback is up.
func newSpace(t *testing.T, name string) *space {
	t.Helper()
	s := &space{name: name}
	effort.OK(t, onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		var err error
		s.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		return err
	}))
	t.Cleanup(func() {
		s.using.Lock()
		defer s.using.Unlock()
		_ = s.file.Close()
	})
	s.ip(t, "link set lo up")
	return s
}

// onThread runs f on a thread of its own, which ends with it: its namespace may be anything then.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// in runs f on a thread inside the namespace. What f opens stays there.
func (s *space) in(f func() error) error {
	return onThread(func() error {
		if err := s.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the thread of the caller, who has locked it.
func (s *space) enter() error {
	s.using.RLock()
	defer s.using.RUnlock()
	if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of %s: %w", s.name, err)
	}
	return nil
}

// path names the namespace for ip, while this process lives.
func (s *space) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

// ip runs lines of ip(8) inside the namespace.
func (s *space) ip(t *testing.T, lines ...string) {
	t.Helper()
	effort.OK(t, s.in(func() error {
		command := exec.Command("ip", "-batch", "-")
		command.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		out, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip in %s: %w\n%s\n%s", s.name, err, strings.Join(lines, "\n"), out)
		}
		return nil
	}))
}

// dial connects from inside the namespace to an IP address and port.
func (s *space) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = s.in(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// transport is for requests from inside the namespace.
func (s *space) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: s.dial}
}

// listen listens inside the namespace.
func (s *space) listen(address string) (l net.Listener, err error) {
	err = s.in(func() error {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// start is the starter of programs inside the namespace, which die with the test binary. The thread that starts one
// stays for its whole life: the thread's end is the signal of Pdeathsig (prctl(2)).
func (s *space) start(command *exec.Cmd, until <-chan struct{}) error {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := s.enter()
		if err == nil {
			err = command.Start()
		}
		if started <- err; err == nil {
			<-until
		}
	}()
	return <-started
}

// needSpaces skips the test, with one line, where it may not make networks.
func needSpaces(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: no networks of their own for the nodes: there is no ip (iproute2)")
	}
	err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if err != nil {
		t.Skipf("skipped: no networks of their own for the nodes: namespaces may not be made (%v): run it as root", err)
	}
	if err := onThread(rulesWork); err != nil {
		t.Skipf("skipped: no networks of their own for the nodes: %v", err)
	}
}

// rulesWork tries what cuts are made of, in a namespace that is thrown away.
func rulesWork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	for _, args := range []string{"link add va type veth peer name vb",
		"rule add pref 1 from 10.0.0.1 ipproto udp dport 1 blackhole"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	if err := os.WriteFile(forwardFile, []byte("1"), 0); err != nil {
		return fmt.Errorf("forward packets: %w", err)
	}
	return nil
}

// memoryLeast is the space that these tests want of a folder in memory.
const memoryLeast = 4 << 30

// memoryFolder is where files lie in memory and programs may run; "" where there is none with room.
func memoryFolder() string {
	const folder = "/dev/shm"
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil || s.Type != unix.TMPFS_MAGIC || s.Flags&unix.ST_NOEXEC != 0 ||
		s.Bavail*uint64(s.Bsize) < memoryLeast {
		return ""
	}
	return folder
}

// The hub is a router with a wire to each place. A cut is a set of its rules
// that swallow packets without a word, as a broken switch does.

// Ports and networks of the places.
const (
	gossipPort   = 7946
	actorPort    = 7947
	ledgerPort   = 5432
	labNetwork   = "10.77.0.0/16"
	labDNS       = "10.77.0.1:53"
	wiresNetwork = "10.76.%d.%d"
)

type hub struct {
	*space
	t      *testing.T
	places map[string]*place

	mu    sync.Mutex
	rules []string // of the cuts that stand; guarded by mu
}

// place is a namespace with one wire to the hub.
type place struct {
	*space
	addr string
}

// newHub makes the router and a place for each name.
func newHub(t *testing.T, names ...string) *hub {
	t.Helper()
	h := &hub{space: newSpace(t, "hub"), t: t, places: map[string]*place{}}
	effort.OK(t, h.in(func() error { return os.WriteFile(forwardFile, []byte("1"), 0) }))
	for i, name := range names {
		p := &place{space: newSpace(t, name), addr: fmt.Sprintf(wiresNetwork, i+1, 1)}
		gate := fmt.Sprintf(wiresNetwork, i+1, 254)
		h.ip(t, fmt.Sprintf("link add w%d type veth peer name wire netns %s", i, p.path()),
			fmt.Sprintf("addr add %s/24 dev w%d", gate, i), fmt.Sprintf("link set w%d up", i))
		p.ip(t, fmt.Sprintf("addr add %s/24 dev wire", p.addr), "link set wire up", "route add default via "+gate)
		h.places[name] = p
	}
	return h
}

// cut swallows whatever goes between a place and some others.
func (h *hub) cut(name string, others ...string) {
	h.t.Helper()
	var rules, add []string
	for _, other := range others {
		one, two := h.places[name].addr, h.places[other].addr
		rules = append(rules, "from "+one+" to "+two, "from "+two+" to "+one)
	}
	for _, rule := range rules {
		add = append(add, "rule add pref 10 "+rule+" blackhole")
	}
	h.mu.Lock()
	h.rules = append(h.rules, rules...)
	h.mu.Unlock()
	h.ip(h.t, add...)
}

// heal ends every cut.
func (h *hub) heal() {
	h.t.Helper()
	h.mu.Lock()
	rules := h.rules
	h.rules = nil
	h.mu.Unlock()
	var remove []string
	for _, rule := range rules {
		remove = append(remove, "rule del pref 10 "+rule+" blackhole")
	}
	if len(remove) > 0 {
		h.ip(h.t, remove...)
	}
}
