package http

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/proxies"
	"rollcall/ledger/quota"
)

const (
	// writeStall cuts a client of the API that takes nothing for so long. It is counted
	// per write, so a long download over a slow line goes on.
	writeStall = 30 * time.Second
	// lingerTime and lingerBytes bound what is read and thrown away after an early
	// answer of the API, so that the client reads the answer before its connection is reset.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
	// answersMax bounds the connections without a place that get an answer at the same
	// time; further ones are closed without a word. Guess: as many as cost next to nothing.
	answersMax = 32
)

// The reasons why a connection gets no place.
const (
	crowdedShare = "share" // its network address has as many as are still free
	crowdedFull  = "full"  // none is free
)

// errCrowded ends a connection whose client turns out to have too many.
var errCrowded = errors.New("http: this network address has too many connections")

// listening is how a listener deals with its connections.
type listening struct {
	max     int             // places for connections
	trusted proxies.Trusted // whose connections are their clients'
	stall   time.Duration   // of one write; 0: the server above bounds it
	linger  time.Duration   // how long a connection is drained after an early answer
	drain   int64           // how many bytes of it
	answer  func(reason string) string
	metrics *connMetrics
}

// listener gives its places to connections by quota: a network address may hold no more of
// them than are still free. Connections of trusted proxies count for the client's address once
// that is known, and until then for nobody. Those without a place get a short answer,
// if not too many of them want one.
type listener struct {
	net.Listener
	listening
	alive sync.WaitGroup // of open connections

	mu      sync.Mutex
	open    map[*conn]struct{}  // guarded by mu
	places  *quota.Pool[string] // by address; proxied is that of the proxies
	answers *quota.Pool[string] // of those without a place
}

// proxied stands for the connections of proxies, which have no share.
const proxied = ""

func newListener(l net.Listener, o listening) *listener {
	return &listener{Listener: l, listening: o, open: make(map[*conn]struct{}),
		places: quota.New[string](int64(o.max)), answers: quota.New[string](answersMax)}
}

// Accept gives the next connection that has a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, listener: l}
		reason, answered := l.admit(c)
		switch {
		case reason == "":
			return c, nil
		case answered:
			go c.refuse(reason)
		default:
			_ = inner.Close()
		}
	}
}

// admit gives a connection a place, or the reason why not, and whether it is to be told.
func (l *listener) admit(c *conn) (reason string, answered bool) {
	address := l.addressOf(c.Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	reason, c.places = l.take(address), l.places
	if reason != "" {
		l.metrics.refused.WithLabelValues(reason).Inc()
		c.places = l.answers
		if !l.answers.Take(address, 1, 1) {
			return reason, false
		}
	}
	c.address = address
	l.open[c] = struct{}{}
	l.alive.Add(1)
	if below := proxyConn(c.Conn); below != nil && address == proxied {
		below.OnClient(func() error { return l.known(c) })
	}
	return reason, true
}

// take takes a place for an address, or gives the reason why there is none.
func (l *listener) take(address string) (reason string) {
	weight := 1
	if address == proxied {
		weight = l.max + 1 // all that are free
	}
	switch {
	case l.places.Take(address, weight, 1):
		return ""
	case l.places.Used() < l.places.Size():
		return crowdedShare
	}
	return crowdedFull
}

// addressOf gives the address that a connection counts for: proxied for that of a proxy,
// which brings more than one client.
func (l *listener) addressOf(c net.Conn) string {
	a := proxies.AddrOf(c.RemoteAddr())
	if l.trusted.Contains(a) {
		return proxied
	}
	return addressOf(a)
}

// proxyConn finds the connection that reads PROXY headers; nil when there is none.
func proxyConn(c net.Conn) *proxies.Conn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	below, _ := c.(*proxies.Conn)
	return below
}

// known counts a connection for the client that its proxy has named; errCrowded when he
// has too many.
func (l *listener) known(c *conn) error {
	address := l.addressOf(c.Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; !open || c.places != l.places {
		return nil // it ends anyway
	}
	l.places.Return(c.address, 1)
	if reason := l.take(address); reason != "" {
		l.take(c.address) // until it is closed
		l.metrics.refused.WithLabelValues(reason).Inc()
		return errCrowded
	}
	c.address = address
	return nil
}

// forget gives a connection's place back; the second time it does nothing.
func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; open {
		delete(l.open, c)
		c.places.Return(c.address, 1)
		l.alive.Done()
	}
}

// wait returns when every connection is closed; those that are open when ctx ends are cut.
func (l *listener) wait(ctx context.Context) {
	closed := make(chan struct{})
	go func() { l.alive.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-ctx.Done():
		l.each((*conn).cut)
		<-closed
	}
}

// cutSilent cuts connections that have never sent anything, such as those that
// clients open in advance.
func (l *listener) cutSilent() {
	l.each(func(c *conn) {
		if !c.heard.Load() {
			c.cut()
		}
	})
}

// cutBusy cuts all but those that are being closed.
func (l *listener) cutBusy() {
	l.each(func(c *conn) {
		if !c.closed.Load() {
			c.cut()
		}
	})
}

// interrupt ends every wait for bytes that runs now.
func (l *listener) interrupt() {
	l.each(func(c *conn) { _ = c.SetReadDeadline(time.Now()) })
}

func (l *listener) each(do func(*conn)) {
	l.mu.Lock()
	conns := make([]*conn, 0, len(l.open))
	for c := range l.open {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// conn is a connection that can be cut from another goroutine, and that is drained before
// it closes when an answer overtook the request's body.
type conn struct {
	net.Conn
	listener *listener
	address  string              // guarded by the listener's mu
	places   *quota.Pool[string] // where it counts
	early    atomic.Bool         // an answer was given before the body's last byte
	heard    atomic.Bool         // it has sent something
	closed   atomic.Bool
}

// Read notes that the client has sent something.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

// Write writes within the listener's bound for a stall.
func (c *conn) Write(b []byte) (int, error) {
	if c.listener.stall > 0 {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.listener.stall)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// Close closes the connection. After an early answer it first says that
// nothing more comes and reads for a moment what the client still sends:
// closing over unread bytes would reset the connection and could take the
// answer away (RFC 9112 §9.6).
func (c *conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	defer c.listener.forget(c)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.early.Load() && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(c.listener.linger))
		_, _ = io.CopyN(io.Discard, c.Conn, c.listener.drain)
	}
	return c.Conn.Close()
}

// cut ends the connection at once, also one that is being drained. Whoever
// reads or writes it gets an error.
func (c *conn) cut() {
	c.closed.Store(true)
	_ = c.Conn.Close()
	c.listener.forget(c)
}

// refuse tells a connection that has no place, and ends it.
func (c *conn) refuse(reason string) {
	_ = c.SetDeadline(time.Now().Add(c.listener.linger)) // a handshake reads too
	_, _ = io.WriteString(c.Conn, c.listener.answer(reason))
	c.early.Store(true)
	_ = c.Close()
}

// connOf is the connection below a request.
func connOf(ctx *fasthttp.RequestCtx) *conn {
	c, _ := ctx.Conn().(*conn)
	return c
}

// closeAfter ends the connection after this answer, gently. Every answer that
// is given before the whole body was read needs it: otherwise the rest of the
// body would be taken for the next request.
func closeAfter(ctx *fasthttp.RequestCtx) {
	ctx.SetConnectionClose()
	if c := connOf(ctx); c != nil {
		c.early.Store(true)
	}
}

// refusalText is the whole answer to a connection that has no place.
func refusalText(code api.Code, retryAfter int) string {
	ctx := &fasthttp.RequestCtx{}
	writeIssue(ctx, code, retryAfter)
	ctx.SetConnectionClose()
	return ctx.Response.String()
}

// connMetrics are the counts of a listener's connections.
type connMetrics struct {
	open    prometheus.GaugeFunc
	refused *prometheus.CounterVec // reason
	now     atomic.Pointer[listener]
}

// newConnMetrics makes those of a listener, whose name is for people.
func newConnMetrics(prefix, name string) *connMetrics {
	m := &connMetrics{refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "_connections_refused_total",
		Help: "Connections to the " + name + " that got no place, whether they were told or just closed, by reason: share " +
			"(their network address had as many as were still free) or full (none was free).",
	}, []string{"reason"})}
	m.open = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "_connections", Help: "Open connections to the " + name + ", busy or idle.",
	}, func() float64 {
		if l := m.now.Load(); l != nil {
			return float64(l.places.Used())
		}
		return 0
	})
	for _, reason := range []string{crowdedShare, crowdedFull} {
		m.refused.WithLabelValues(reason)
	}
	return m
}
