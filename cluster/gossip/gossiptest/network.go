package gossiptest

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// queueMax bounds the packets and streams that wait at a node. Further ones are lost, as on a real network.
const queueMax = 1024

// Network connects transports. Safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	nodes map[string]*Transport // guarded by mu; by address
	cuts  map[direction]bool    // guarded by mu
}

type direction struct{ from, to string }

// New makes a network without nodes.
func New() *Network { return &Network{nodes: map[string]*Transport{}, cuts: map[direction]bool{}} }

// Transport adds a node at the next address, beginning with 10.7.0.1:7946, and returns its transport. At most 65,000.
func (n *Network) Transport() *Transport {
	n.mu.Lock()
	defer n.mu.Unlock()
	number := len(n.nodes) + 1
	t := &Transport{network: n, at: &net.TCPAddr{IP: net.IPv4(10, 7, byte(number>>8), byte(number)), Port: 7946},
		packets: make(chan *memberlist.Packet, queueMax), streams: make(chan net.Conn, queueMax),
		closed: make(chan struct{})}
	n.nodes[t.Address()] = t
	return t
}

// Cut stops traffic from one address to another, until Heal.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[direction{from, to}] = true
}

// Isolate cuts an address off from all others, in both directions.
func (n *Network) Isolate(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.nodes {
		if other != address {
			n.cuts[direction{address, other}], n.cuts[direction{other, address}] = true, true
		}
	}
}

// Heal ends all cuts.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// route returns the transport at an address and whether traffic arrives there.
func (n *Network) route(from, to string) (t *Transport, there, back bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[to], !n.cuts[direction{from, to}], !n.cuts[direction{to, from}]
}

// Transport connects one node with a Network: a memberlist.NodeAwareTransport.
type Transport struct {
	network *Network
	at      *net.TCPAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// Address returns the host:port of the node.
func (t *Transport) Address() string { return t.at.String() }

// Kill makes the node unreachable for good, as a killed process is.
func (t *Transport) Kill() { t.once.Do(func() { close(t.closed) }) }

func (t *Transport) dead() bool {
	select {
	case <-t.closed:
		return true
	default:
		return false
	}
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.at.IP, t.at.Port, nil
}

// PacketCh implements memberlist.Transport.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown implements memberlist.Transport.
func (t *Transport) Shutdown() error {
	t.Kill()
	return nil
}

// WriteTo implements memberlist.Transport.
func (t *Transport) WriteTo(b []byte, address string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: address})
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *Transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	now := time.Now()
	to, there, _ := t.network.route(t.Address(), a.Addr)
	if to == nil || !there || to.dead() || t.dead() {
		return now, nil // lost
	}
	from := &net.UDPAddr{IP: t.at.IP, Port: t.at.Port}
	select {
	case to.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: from, Timestamp: now}:
	default: // lost
	}
	return now, nil
}

// DialTimeout implements memberlist.Transport.
func (t *Transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: address}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. A cut in either direction makes it wait until the
// timeout.
func (t *Transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to, there, back := t.network.route(t.Address(), a.Addr)
	if to == nil || to.dead() || t.dead() {
		return nil, fmt.Errorf("dial %s: %w", a.Addr, syscall.ECONNREFUSED)
	}
	if !there || !back {
		select {
		case <-time.After(max(timeout, time.Millisecond)):
		case <-t.closed:
		}
		return nil, fmt.Errorf("dial %s: %w", a.Addr, os.ErrDeadlineExceeded)
	}
	near, far := net.Pipe()
	_ = near.SetDeadline(time.Now().Add(timeout))
	select {
	case to.streams <- conn{far, t.at}:
		return conn{near, to.at}, nil
	default:
		return nil, fmt.Errorf("dial %s: %w", a.Addr, syscall.ECONNREFUSED)
	}
}

// conn is a pipe that knows the address of its other end.
type conn struct {
	net.Conn
	remote net.Addr
}

// RemoteAddr implements net.Conn.
func (c conn) RemoteAddr() net.Addr { return c.remote }
