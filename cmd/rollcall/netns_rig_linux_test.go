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
	outside  = "outside" // customers and operators are here
	labHome  = "lab"
	database = "db"
)

// netLimits are the limits of every receiver. They are small, so that a file takes half a minute. Two nodes that
// don't know of each other exceed them.
var netLimits = smtplab.Tally{SessionsAtOnce: 3, SessionsIn1s: 20, RcptsIn1s: 12, RcptsPerSession: 60}

// netSettings configure the nodes with netLimits.
//
//go:embed testdata/net_limits.toml
var netSettings string

const (
	netEvents   = 1_000_000        // more than a story makes
	serveWithin = 60 * time.Second // from a start, or the end of a cut, to the first answer
	netToken    = "token-of-every-node"
)

// netRig is a cluster of processes on separate networks, with its surroundings.
type netRig struct {
	*rig // for customers and operators; it reaches any healthy node
	hub  *hub
	// truth knows the right outcomes. The nodes never ask it.
	truth *smtplab.Lab
	book  *pgx.Conn // connection to the ledger that no cut affects
	nodes []*netNode

	mu sync.Mutex
	at int // index of the node that got the last request; guarded by mu
}

// netNode is one node through all its restarts.
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

// nodeState says what a node must do for customers.
type nodeState string

const (
	hurt       nodeState = "hurt"       // dead, stopped or cut off: it need not answer
	recovering nodeState = "recovering" // soon an answer
	well       nodeState = "well"       // every answer
)

// newNetRig makes networks, database, lab and nodes. The nodes do not run yet.
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
		r.mu.Lock() // the fronts, which read the nodes, run already
		r.nodes = append(r.nodes, n)
		r.mu.Unlock()
	}
	code, _, stderr := r.migrate(url)
	effort.FatalIf(t, code != exitDone, "migrate: got code %d and %s", code, stderr)
	return r
}

// netConfig is a node's configuration without [cluster].
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

// clusterConfig is a node's table [cluster].
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

// writeToken writes the operator's token, which all nodes share here, into a folder.
func (r *netRig) writeToken(c *cli) {
	r.t.Helper()
	effort.OK(r.t, os.Mkdir(filepath.Join(c.folder, "rollcall-data"), 0o700))
	c.write("rollcall-data/admin.token", netToken)
}

// startDatabase starts PostgreSQL in a network of its own, from which nodes reach it.
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

// passOn connects conn with an address of this machine. When either side ends, both end.
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

// migrate makes the tables, from the database's network.
func (r *netRig) migrate(url string) (code int, stdout, stderr string) {
	c := r.command(r.t.Context(), "migrate")
	c.Env = append(c.Env, "ROLLCALL_LEDGER_URL="+url)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	code = beside(r.t, c, r.hub.places[database].start).wait(cliWait)
	return code, out.String(), errs.String()
}

// startLab starts the lab in its network; every address there belongs to it.
func (r *netRig) startLab(t *testing.T) {
	t.Helper()
	home := r.hub.places[labHome]
	home.ip(t, "route add local "+labNetwork+" dev lo")
	r.hub.ip(t, "route add "+labNetwork+" via "+home.addr)
	c := r.command(context.Background(), "lab", "--json", "--network", labNetwork, "--dns", labDNS,
		"--smtp-port", "25", "--greylist-wait", "1s", "--events", fmt.Sprint(netEvents), "--sheet", home.addr+":8025")
	listened(t, c, home.start).waitFor("smtp_port")
}

// adminPort is the port of a node's admin listener, which only its own machine reaches.
const adminPort = 8081

// front returns a URL of this machine for a port of the nodes, like a load balancer. Healthy nodes get requests in
// turn, and a request ends when its node is no longer healthy.
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

// anyNode returns the healthy nodes in turn; nil if there is none. The channel is closed when the node's state
// changes.
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

// become changes the state. If the node was healthy, customers' open requests to it end, as at a load balancer.
func (n *netNode) become(s nodeState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = s
	close(n.changed)
	n.changed = make(chan struct{})
}

// look returns the state, and a channel that is closed when the state changes.
func (n *netNode) look() (nodeState, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state, n.changed
}

// start starts a node, and does not wait until it answers.
func (r *netRig) start(n *netNode) {
	r.t.Helper()
	log := effort.Must(os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(r.t)
	c := n.command(context.Background(), "serve", "--config", "node.toml")
	c.Stdout, c.Stderr = log, log
	n.life = beside(r.t, c, n.place.start)
	_ = log.Close() // it is the program's
	n.become(recovering)
}

// kill ends a node at once, as a power cut would.
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

// awaitWell waits until these nodes answer customers, or all nodes if none is named. A node that ends because a busy
// machine's ledger didn't answer in time is started again, as a supervisor would.
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

// lastWords returns the end of the node's log.
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

// sheet reads the lab's sheet. No cut affects this, because the way outside is never cut.
func (r *netRig) sheet() (s smtplab.Sheet) {
	r.t.Helper()
	r.fromLab("/sheet", func(d *json.Decoder) error { return d.Decode(&s) })
	return s
}

// events reads the lab's log of events after the first n.
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

// Networks of these tests are network namespaces without a name. They live only as long as somebody holds them, so
// nothing is left of them however the test ends, and they touch no address of the machine.

// forwardFile makes a namespace forward packets: the namespace of the thread that writes to it.
const forwardFile = "/proc/sys/net/ipv4/ip_forward"

// space is a network namespace.
type space struct {
	name  string
	using sync.RWMutex // an HTTP client may still dial when the test ends and closes the file
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

// onThread runs f on a thread of its own. The thread ends with f, because its namespace may have changed.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// in runs f on a thread inside the namespace. Sockets that f opens stay there.
func (s *space) in(f func() error) error {
	return onThread(func() error {
		if err := s.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the caller's thread, which the caller has locked, into the namespace.
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

// start is the starter of programs inside the namespace. They die with the test binary. The thread that starts a
// program lives as long as the program, because Pdeathsig is sent when that thread ends (prctl(2)).
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

// needSpaces skips the test if it may not make networks.
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

// rulesWork tries the rules of cuts in a namespace that is then thrown away.
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

// memoryLeast is how much free space these tests need in a folder in memory.
const memoryLeast = 4 << 30

// memoryFolder returns a folder for files in memory from which programs may run, or "" if none has enough space.
func memoryFolder() string {
	const folder = "/dev/shm"
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil || s.Type != unix.TMPFS_MAGIC || s.Flags&unix.ST_NOEXEC != 0 ||
		s.Bavail*uint64(s.Bsize) < memoryLeast {
		return ""
	}
	return folder
}

// The hub is a router with a wire to each place. A cut is a set of router rules that drop packets without an answer,
// as a broken switch does.

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
	rules []string // of the present cuts; guarded by mu
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

// cut drops all packets between a place and some others.
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
