package effort

import (
	"net"
	"sync"
)

// Proxy passes connections on to a listener. Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	through  func(toTarget bool, n int)

	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu
	gone  bool                  // guarded by mu; it accepts no connections
}

// StartProxy passes connections on to target until Close. If through is not nil, it is called before each piece of n
// bytes in either direction. Bytes of a connection that was cut meanwhile are lost.
func StartProxy(l net.Listener, target string, through func(toTarget bool, n int)) *Proxy {
	p := &Proxy{listener: l, target: target, through: through, conns: map[net.Conn]struct{}{}}
	go p.acceptAll()
	return p
}

// Addr is the host:port that it listens at.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) acceptAll() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.passOn(near)
	}
}

// passOn connects one connection to the target.
func (p *Proxy) passOn(near net.Conn) {
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = near.Close()
		return
	}
	if !p.keepConns(near, far) {
		return
	}
	go p.copyBytes(near, far, false)
	p.copyBytes(far, near, true)
}

// copyBytes passes bytes on in one direction. When one connection ends, it ends both.
func (p *Proxy) copyBytes(to, from net.Conn, toTarget bool) {
	defer p.endConns(to, from)
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && p.through != nil {
			p.through(toTarget, n)
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// keepConns notes connections, so that Cut can end them. If the proxy is gone, it closes them and returns false.
func (p *Proxy) keepConns(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.gone {
			_ = c.Close()
		} else {
			p.conns[c] = struct{}{}
		}
	}
	return !p.gone
}

func (p *Proxy) endConns(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// Cut resets every connection. With away, new connections are closed at once until Cut is called without it;
// otherwise they are passed on.
func (p *Proxy) Cut(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = away
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	clear(p.conns)
}

// Close refuses new connections and resets the open ones. It may be called twice.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Cut(true)
}
