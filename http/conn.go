package http

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"rollcall/http/proxies"
)

const (
	// writeStall cuts a client that takes nothing for so long. It is counted per
	// write, so a long download over a slow line goes on.
	writeStall = 30 * time.Second
	// lingerTime and lingerBytes bound what is read and thrown away after an early
	// answer, so that the client reads the answer before its connection is reset.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// listener counts connections, in all and per network address, and closes at
// once what is over. It wraps each in a conn. Connections of trusted proxies count
// for the client's address, once it is known, and not for the proxy's.
type listener struct {
	net.Listener
	max, maxPerIP int
	trusted       proxies.Trusted

	mu    sync.Mutex
	open  map[*conn]struct{} // guarded by mu
	perIP map[string]int     // guarded by mu; no entry for none
}

func newListener(l net.Listener, most, mostPerIP int, trusted proxies.Trusted) *listener {
	return &listener{
		Listener: l, max: most, maxPerIP: mostPerIP, trusted: trusted,
		open: make(map[*conn]struct{}), perIP: make(map[string]int),
	}
}

// Accept gives the next connection that is within the bounds.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close()
	}
}

// admit counts a connection; nil when it is one too many.
func (l *listener) admit(c net.Conn) *conn {
	wrapped := &conn{Conn: c, listener: l}
	address, counts := l.counted(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.max || counts && !l.count(wrapped, address) {
		return nil
	}
	l.open[wrapped] = struct{}{}
	return wrapped
}

// counted gives the address that a connection counts for; false for a proxy's, which
// brings more than one client.
func (l *listener) counted(c net.Conn) (address string, counts bool) {
	a := proxies.AddrOf(c.RemoteAddr())
	return addressOf(a), !l.trusted.Contains(a)
}

// count counts a connection for an address; false when that has too many. mu is held.
func (l *listener) count(c *conn, address string) bool {
	if l.perIP[address] >= l.maxPerIP {
		return false
	}
	l.perIP[address]++
	c.address, c.counts = address, true
	return true
}

// known counts a connection whose client has become known; false when he has too many.
func (l *listener) known(c *conn) bool {
	address, counts := l.counted(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, open := l.open[c]
	return c.counts || !counts || open && l.count(c, address)
}

// forget takes a connection off the counts; the second time it does nothing.
func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; !open {
		return
	}
	delete(l.open, c)
	if !c.counts {
		return
	}
	if l.perIP[c.address]--; l.perIP[c.address] <= 0 {
		delete(l.perIP, c.address)
	}
}

// closeAll cuts what is still open.
func (l *listener) closeAll() { l.cut(func(*conn) bool { return true }) }

// closeSilent cuts connections that have never sent anything, such as those that
// clients open in advance.
func (l *listener) closeSilent() { l.cut(func(c *conn) bool { return !c.heard.Load() }) }

func (l *listener) cut(which func(*conn) bool) {
	l.mu.Lock()
	open := make([]*conn, 0, len(l.open))
	for c := range l.open {
		if which(c) {
			open = append(open, c)
		}
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Conn.Close()
	}
}

// conn is one connection, with a deadline for each write and an end that lets
// the last answer arrive.
type conn struct {
	net.Conn
	listener *listener
	address  string // guarded by the listener's mu, with counts
	counts   bool   // for address
	linger   atomic.Bool
	heard    atomic.Bool // it has sent something
}

// Read notes that the client has sent something, and ends a connection that turns out
// to be one too many of its client's.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard.Load() {
		if !c.listener.known(c) {
			return 0, io.EOF
		}
		c.heard.Store(true)
	}
	return n, err
}

// Write writes within writeStall.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeStall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close closes the connection. After an early answer it first says that
// nothing more comes and reads for a moment what the client still sends:
// closing over unread bytes would reset the connection and could take the
// answer away (RFC 9112 §9.6).
func (c *conn) Close() error {
	c.listener.forget(c)
	if c.linger.CompareAndSwap(true, false) {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
		}
	}
	return c.Conn.Close()
}

// closeAfter ends the connection after this answer, gently. Every answer that
// is given before the whole body was read needs it: otherwise the rest of the
// body would be taken for the next request.
func closeAfter(ctx *fasthttp.RequestCtx) {
	ctx.SetConnectionClose()
	if c, ok := ctx.Conn().(*conn); ok {
		c.linger.Store(true)
	}
}
