package pagetest_test

import (
	"io"
	"net"
	"sync"
	"time"
)

// proxy stands before a listener. It passes all bytes on, until a test cuts it, slows it or takes it away.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	left  int64         // so many more bytes go to the target, then all is cut; below 0: no cut
	cuts  int           // how often it was cut
	gone  bool          // every connection is reset
	pause time.Duration // between two reads of what goes to the target
}

// newProxy stands before target.
func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}, left: -1}
	go p.serve()
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.pass(c)
	}
}

// keep remembers a connection; false when there must be none.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) pass(c net.Conn) {
	defer p.drop(c)
	if !p.keep(c) {
		return
	}
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(to)
	if !p.keep(to) {
		return
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(c, to)
		p.drop(c)
		close(done)
	}()
	p.forward(to, c)
	p.drop(to)
	<-done
}

// forward passes on what goes to the target.
func (p *proxy) forward(to, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			pause, cut := p.pause, p.left >= 0 && p.left < int64(n)
			if p.left >= 0 {
				p.left -= int64(n)
			}
			p.mu.Unlock()
			if cut {
				p.cut()
				return
			}
			if pause > 0 {
				<-time.After(pause)
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// drop closes a connection.
func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

// cut resets every connection; new ones are passed on again.
func (p *proxy) cut() {
	p.mu.Lock()
	p.left = -1
	p.cuts++
	var all []net.Conn
	for c := range p.conns {
		all = append(all, c)
	}
	p.conns = map[net.Conn]bool{}
	p.mu.Unlock()
	for _, c := range all {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// cutAfter cuts once so many more bytes have gone to the target.
func (p *proxy) cutAfter(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// wasCut says how often it was.
func (p *proxy) wasCut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// away resets every connection until it is back.
func (p *proxy) away(yes bool) {
	p.mu.Lock()
	p.gone = yes
	p.mu.Unlock()
	if yes {
		p.cut()
	}
}

// slow waits between two pieces of 16 KiB on their way to the target.
func (p *proxy) slow(pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = pause
}

func (p *proxy) stop() {
	_ = p.listener.Close()
	p.away(true)
}
