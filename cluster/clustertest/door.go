package clustertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"

	"rollcall/config/effort"
)

// door is the address at which others reach a node's actor traffic. It is another loopback address than the node's own,
// so that a test can hold traffic, and so that connections to a dead node are refused. Safe for concurrent use.
type door struct {
	*effort.Proxy
	host   string // that others dial; the port is that of inside
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

// close refuses new connections and ends the open ones, with what was held. It may be called twice.
func (d *door) close() {
	d.Close()
	d.release()
}
