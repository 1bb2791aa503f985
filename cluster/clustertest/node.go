package clustertest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/cluster/gossip/gossiptest"
	"rollcall/cluster/secure"
	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
)

// Options are the options of a node of a World.
type Options struct {
	cluster.Options
	Kinds      cluster.Kinds
	Answer     cluster.Answer // nil: the node answers no queries
	Ineligible string         // why the node may not probe when it starts; "": it may
}

// startNode makes the node a member.
func (o Options) startNode(ctx context.Context) (*cluster.Node, error) {
	n := cluster.New(o.Options)
	n.SetIneligible(o.Ineligible)
	if err := n.Serve(ctx, o.Kinds, o.Answer); err != nil {
		return nil, err
	}
	return n, nil
}

// Node is one node of a World. Use the methods of cluster.Node only after Join.
type Node struct {
	*cluster.Node
	Name    string
	ID      uuid.UUID
	Log     *effort.Log
	Metrics *prometheus.Registry

	world   *World
	wire    *gossiptest.Transport
	book    *book
	door    *door
	options Options
	held    net.Conn      // see touch
	gate    chan struct{} // closed by Join
	started chan struct{} // closed when Serve has returned
	err     error         // of Serve
	cancel  context.CancelFunc
	once    sync.Once
	ended   error
}

// open makes a node and opens its port of actor traffic.
func (w *World) open(i int, change func(i int, o *Options)) {
	w.t.Helper()
	n := &Node{world: w, Name: fmt.Sprintf("node-%d", i), Log: &effort.Log{}, Metrics: prometheus.NewRegistry(),
		wire: w.network.Transport(), gate: make(chan struct{}), started: make(chan struct{})}
	w.nodes = append(w.nodes, n)
	n.book = newBook(w.store, n.gate)
	n.door = effort.Must(newDoor())(w.t)
	log := slog.New(slog.NewTextHandler(n.Log, nil))
	identity := effort.Must(w.identity(n.Name, log))(w.t)
	n.options = Options{Kinds: w.Echo.kinds(i), Options: cluster.Options{Name: "test", Node: uuid.New(), Host: n.Name,
		Version: "v1.0.0", Wire: 1, Log: log, Registerer: n.Metrics, ApplyShares: w.Use.applyShares(i),
		Load: func() cluster.Load { return cluster.Load{} }, Times: Times(),
		Peers: &cluster.Peers{Book: n.book, Actors: n.door.inside, Advertise: n.door.host, Identity: identity, Traffic: traffic,
			Gossip: gossip.Options{Cluster: "test", Networks: networks, Timing: Gossip(), Log: log, Transport: n.wire}}}}
	if i > 0 {
		n.options.Peers.Gossip.Join = []string{w.nodes[0].wire.Address()}
	}
	if change != nil {
		change(i, &n.options)
	}
	n.ID = n.options.Node
	n.start()
}

// start runs the node until it waits at the gate, its port open.
func (n *Node) start() {
	n.world.t.Helper()
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(n.started)
		n.Node, n.err = n.options.startNode(ctx)
	}()
	select {
	case <-n.book.arrived:
	case <-n.started:
		n.world.t.Fatalf("%s: %v", n.Name, n.err)
	case <-time.After(patience):
		n.world.t.Fatalf("%s did not open its port in time", n.Name)
	}
	effort.OK(n.world.t, n.touch(), n.Name, "look at its port")
}

// http2 is what a client of the transport sends first (RFC 9113 §3.4): the preface and SETTINGS.
const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// touch connects to the node's port and keeps the connection until the node joins. So the port's goroutine is done
// with the transport's logger before the next port is opened.
func (n *Node) touch() error {
	if n.options.Peers.Identity == nil {
		return nil
	}
	pair, err := n.world.ca.Issue(n.Name, time.Now(), secure.NodeValidity)
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	n.held, err = tls.Dial("tcp", n.door.inside, &tls.Config{Certificates: []tls.Certificate{cert},
		InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // it is asked nothing
	if err != nil {
		return err
	}
	if _, err = io.WriteString(n.held, http2); err != nil {
		return err
	}
	_, err = io.ReadFull(n.held, make([]byte, 9)) // the header of the server's first frame
	return err
}

// end stops the node, whatever its state.
func (n *Node) end() {
	if n.held != nil {
		_ = n.held.Close()
	}
	if n.cancel != nil {
		n.cancel()
		<-n.started
	}
	_ = n.stop()
	n.door.close()
}

// stop stops the node, once.
func (n *Node) stop() error {
	n.once.Do(func() {
		if n.Node != nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			n.ended = n.Stop(ctx)
		}
	})
	return n.ended
}

// Metric returns the value of a gauge or the sum of a counter; 0 if there is none.
func (n *Node) Metric(name string) float64 {
	n.world.t.Helper()
	return nettest.Sum(n.world.t, n.Metrics, name)
}

// door is a proxy through which others reach a node's actor traffic. It has a loopback address of its own. So a test
// can hold traffic back, and connections to a dead node are refused. Safe for concurrent use.
type door struct {
	*effort.Proxy
	host   string // others dial this host, at the port of inside
	inside string // host:port of the node itself

	mu   sync.Mutex
	open chan struct{} // guarded by mu; closed while bytes go through
}

// newDoor makes a door at a free port of an address that probably no other test has.
func newDoor() (*door, error) {
	a, b := rand.IntN(250)+1, rand.IntN(250)+1
	host := fmt.Sprintf("127.21.%d.%d", a, b)
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return nil, err
	}
	d := &door{host: host, inside: fmt.Sprintf("127.22.%d.%d:%d", a, b, l.Addr().(*net.TCPAddr).Port),
		open: make(chan struct{})}
	close(d.open)
	d.Proxy = effort.StartProxy(l, d.inside, func(bool, int) { <-d.opened() })
	return d, nil
}

func (d *door) opened() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// hold keeps bytes back, as a network that loses them would.
func (d *door) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.open:
		d.open = make(chan struct{})
	default:
	}
}

// release lets bytes through again.
func (d *door) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.open:
	default:
		close(d.open)
	}
}

// close refuses new connections and ends the open ones; bytes that were held back are lost. It may be called twice.
func (d *door) close() {
	d.Close()
	d.release()
}
