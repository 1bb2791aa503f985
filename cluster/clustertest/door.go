package clustertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// door is the address at which others reach a node's actor traffic. It is another loopback address than the node's own,
// so that a test can hold traffic, and so that connections to a dead node are refused. Safe for concurrent use.
type door struct {
	listener net.Listener
	behind   string // host:port of the node itself

	mu     sync.Mutex
	open   chan struct{}         // guarded by mu; closed while bytes go through
	closed bool                  // guarded by mu
	conns  map[net.Conn]struct{} // guarded by mu
}

// newDoor makes a door at a free port of an address that probably no other test has.
func newDoor() (*door, error) {
	a, b := rand.IntN(250)+1, rand.IntN(250)+1
	l, err := net.Listen("tcp", fmt.Sprintf("127.21.%d.%d:0", a, b))
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	d := &door{listener: l, behind: fmt.Sprintf("127.22.%d.%d:%d", a, b, port), open: make(chan struct{}),
		conns: map[net.Conn]struct{}{}}
	close(d.open)
	go d.serve()
	return d, nil
}

// host is the host that others dial; the port is that of inside.
func (d *door) host() string {
	host, _, _ := net.SplitHostPort(d.listener.Addr().String())
	return host
}

// inside is where the node listens.
func (d *door) inside() string { return d.behind }

func (d *door) serve() {
	for {
		outer, err := d.listener.Accept()
		if err != nil {
			return
		}
		go d.lead(outer)
	}
}

// lead connects one connection to the node.
func (d *door) lead(outer net.Conn) {
	inner, err := net.Dial("tcp", d.behind)
	if err != nil {
		_ = outer.Close()
		return
	}
	if !d.keep(outer, inner) {
		return
	}
	go func() {
		d.copy(outer, inner)
		d.drop(outer, inner)
	}()
	d.copy(inner, outer)
	d.drop(outer, inner)
}

// copy passes bytes on while the door is open.
func (d *door) copy(to, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		d.mu.Lock()
		open, closed := d.open, d.closed
		d.mu.Unlock()
		if closed {
			return
		}
		<-open
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// keep notes connections that close ends; false: the door is closed already.
func (d *door) keep(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		if d.closed {
			_ = c.Close()
		} else {
			d.conns[c] = struct{}{}
		}
	}
	return !d.closed
}

func (d *door) drop(conns ...net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(d.conns, c)
	}
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

// close refuses new connections and ends the open ones. It may be called twice.
func (d *door) close() {
	d.release()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	_ = d.listener.Close()
	for c := range d.conns {
		_ = c.Close()
	}
}
