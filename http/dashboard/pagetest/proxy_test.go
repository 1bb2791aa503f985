package pagetest_test

import (
	"net"
	"sync"
	"time"

	"rollcall/config/effort"
)

// proxy stands before a listener. It passes all bytes on, until a test cuts it, slows it or takes it away.
type proxy struct {
	*effort.Proxy

	mu    sync.Mutex
	left  int64         // so many more bytes go to the target, then all is cut; below 0: no cut
	cuts  int           // how often it was cut
	pause time.Duration // before each piece of what goes to the target
}

// newProxy stands before target.
func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{left: -1}
	p.Proxy = effort.StartProxy(l, target, p.through)
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.Addr() }

func (p *proxy) through(toTarget bool, n int) {
	if !toTarget {
		return
	}
	p.mu.Lock()
	pause, cut := p.pause, p.left >= 0 && p.left < int64(n)
	switch {
	case cut:
		p.left, p.cuts = -1, p.cuts+1
	case p.left >= 0:
		p.left -= int64(n)
	}
	p.mu.Unlock()
	if cut {
		p.Cut(false)
	} else if pause > 0 {
		<-time.After(pause)
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

// slow waits between two pieces of 16 KiB on their way to the target.
func (p *proxy) slow(pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = pause
}
