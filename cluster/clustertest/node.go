package clustertest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
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
)

// Options are the options of a node of a World.
type Options struct {
	cluster.Options
	Kinds      cluster.Kinds
	Answer     cluster.Answer // nil: it answers no queries
	Ineligible string         // why it may not probe when it starts; "": it may
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

// touch connects to the node's port and keeps the connection until the node joins, so that its goroutine is done with
// the transport's logger before the next port is opened.
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
	_, err = io.ReadFull(n.held, make([]byte, 9)) // the header of its first frame
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
	return effort.Sum(n.world.t, n.Metrics, name)
}
