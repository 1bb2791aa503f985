package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/ledger/quota"
)

// AnswersMax bounds the refused connections that get an answer at the same time; further ones are closed without an
// answer. Guess: a number that costs next to nothing.
const AnswersMax = 32

// Classes are the values of the label class of metrics, by the first digit of a status.
var Classes = [...]string{"", "1xx", "2xx", "3xx", "4xx", "5xx"}

// The reasons why a connection is refused.
const (
	NoShare = "share" // its network address already has as many places as are still free
	NoPlace = "full"  // none is free
)

// ErrCrowded ends a connection because its client, which its proxy named, has too many connections.
var ErrCrowded = errors.New("listen: this network address has too many connections")

// Options are the options of a listener for its connections.
type Options struct {
	Max     int                        // places for connections
	Trusted Trusted                    // proxies whose PROXY headers are believed; their connections count for the clients
	TLS     *tls.Config                // nil: connections are not encrypted
	Stall   time.Duration              // bound of one write; 0: the server sets it
	Linger  time.Duration              // how long data is read and dropped after an early answer
	Drain   int64                      // how many bytes of it
	Answer  func(reason string) string // complete answer to a refused connection
	Metrics *Metrics
}

// Listener gives its places to connections by quota: a network address may hold no more places than are still free. A
// trusted proxy's connection counts for its client once the client is known, and for nobody before. Refused
// connections get a short answer, unless there are too many of them.
type Listener struct {
	net.Listener
	options Options
	alive   sync.WaitGroup // of open connections

	mu      sync.Mutex
	open    map[*Conn]struct{}  // guarded by mu
	places  *quota.Pool[string] // by address; proxies have the key proxied
	answers *quota.Pool[string] // places for answers to refused connections
}

// proxied is the key for connections of proxies, which have no quota.
const proxied = ""

// On binds an address. The TLS handshake is part of a connection's first Read, within the same deadline.
func On(address string, o Options) (*Listener, error) {
	bound, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	bound = behindProxies(bound, o.Trusted, o.Metrics.proxyRefused)
	if o.TLS != nil {
		bound = tls.NewListener(bound, o.TLS)
	}
	l := &Listener{Listener: bound, options: o, open: make(map[*Conn]struct{}),
		places: quota.New[string](int64(o.Max)), answers: quota.New[string](AnswersMax)}
	o.Metrics.now.Store(l)
	return l, nil
}

// Accept returns the next connection that gets a place.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: inner, listener: l}
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

// admit gives a connection a place. If it refuses one, it returns the reason, and whether to answer the connection.
func (l *Listener) admit(c *Conn) (reason string, answered bool) {
	address := l.addressOf(c.Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	reason, c.places = l.take(address), l.places
	if reason != "" {
		l.options.Metrics.refused.WithLabelValues(reason).Inc()
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

// take takes a place for an address, or returns the reason of the refusal.
func (l *Listener) take(address string) (reason string) {
	weight := 1
	if address == proxied {
		weight = l.options.Max + 1 // all that are free
	}
	switch {
	case l.places.Take(address, weight, 1):
		return ""
	case l.places.Used() < l.places.Size():
		return NoShare
	}
	return NoPlace
}

// addressOf returns the address for which a connection counts. For a proxy's connection it returns proxied, because
// the proxy brings many clients.
func (l *Listener) addressOf(c net.Conn) string {
	a := IPOf(c.RemoteAddr())
	if l.options.Trusted.Contains(a) {
		return proxied
	}
	return NetworkOf(a)
}

// proxyConn finds the connection that reads PROXY headers, or returns nil.
func proxyConn(c net.Conn) *proxiedConn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	below, _ := c.(*proxiedConn)
	return below
}

// known counts a connection for the client that its proxy named. ErrCrowded: that client has too many connections.
func (l *Listener) known(c *Conn) error {
	address := l.addressOf(c.Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; !open || c.places != l.places {
		return nil // it ends anyway
	}
	l.places.Return(c.address, 1)
	if reason := l.take(address); reason != "" {
		l.take(c.address) // until it is closed
		l.options.Metrics.refused.WithLabelValues(reason).Inc()
		return ErrCrowded
	}
	c.address = address
	return nil
}

// forget gives a connection's place back. A second call does nothing.
func (l *Listener) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; open {
		delete(l.open, c)
		c.places.Return(c.address, 1)
		l.alive.Done()
	}
}

// Wait returns when every connection is closed. If ctx ends first, it cuts the open ones.
func (l *Listener) Wait(ctx context.Context) {
	closed := make(chan struct{})
	go func() { l.alive.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-ctx.Done():
		l.each((*Conn).Cut)
		<-closed
	}
}

// CutSilent cuts connections that have never sent anything, such as those that clients open in advance.
func (l *Listener) CutSilent() {
	l.each(func(c *Conn) {
		if !c.heard.Load() {
			c.Cut()
		}
	})
}

// CutBusy cuts all connections except those that are closing.
func (l *Listener) CutBusy() {
	l.each(func(c *Conn) {
		if !c.closed.Load() {
			c.Cut()
		}
	})
}

// Interrupt ends every wait for bytes that is in progress.
func (l *Listener) Interrupt() {
	l.each(func(c *Conn) { _ = c.SetReadDeadline(time.Now()) })
}

func (l *Listener) each(do func(*Conn)) {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// Conn is a connection that can be cut from another goroutine. If it was answered before the end of the request's
// body, it reads and drops data for a while before it closes.
type Conn struct {
	net.Conn
	listener *Listener
	address  string              // guarded by the listener's mu
	places   *quota.Pool[string] // where it counts
	early    atomic.Bool         // an answer was given before the body's last byte
	heard    atomic.Bool         // the client has sent something
	closed   atomic.Bool
}

// Read also notes that the client has sent something.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

// Write writes, and fails if that takes longer than the listener's bound.
func (c *Conn) Write(b []byte) (int, error) {
	if c.listener.options.Stall > 0 {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.listener.options.Stall)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// Close closes the connection. After an early answer it first closes the sending side, and then reads for a moment
// what the client still sends. Closing with unread bytes would reset the connection, and the client could lose the
// answer (RFC 9112 §9.6).
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	defer c.listener.forget(c)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.early.Load() && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(c.listener.options.Linger))
		_, _ = io.CopyN(io.Discard, c.Conn, c.listener.options.Drain)
	}
	return c.Conn.Close()
}

// Cut ends the connection at once, even while Close still reads. Pending reads and writes get an error.
func (c *Conn) Cut() {
	c.closed.Store(true)
	_ = c.Conn.Close()
	c.listener.forget(c)
}

func (c *Conn) refuse(reason string) {
	_ = c.SetDeadline(time.Now().Add(c.listener.options.Linger)) // a handshake reads too
	_, _ = io.WriteString(c.Conn, c.listener.options.Answer(reason))
	c.early.Store(true)
	_ = c.Close()
}

// ConnOf returns the connection of a request.
func ConnOf(ctx *fasthttp.RequestCtx) *Conn {
	c, _ := ctx.Conn().(*Conn)
	return c
}

// CloseAfter ends the connection gently after this answer. Every answer before the end of the body needs it, because
// otherwise the rest of the body would be read as the next request.
func CloseAfter(ctx *fasthttp.RequestCtx) {
	ctx.SetConnectionClose()
	if c := ConnOf(ctx); c != nil {
		c.early.Store(true)
	}
}

// KeepOpen undoes CloseAfter, because the whole body was read.
func KeepOpen(ctx *fasthttp.RequestCtx) {
	if c := ConnOf(ctx); c != nil {
		c.early.Store(false)
	}
	ctx.Response.Header.ResetConnectionClose()
}

// Metrics are the counts of a listener's connections.
type Metrics struct {
	refused *prometheus.CounterVec // reason
	headers *prometheus.CounterVec // reason; of PROXY headers
	now     atomic.Pointer[Listener]
}

// NewMetrics registers the metrics of a listener, whose name is for people.
func NewMetrics(to prometheus.Registerer, prefix, name string) *Metrics {
	auto := promauto.With(to)
	m := &Metrics{
		refused: auto.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_connections_refused_total",
			Help: "Connections to the " + name + " that were refused, with an answer or just closed, by reason: share " +
				"(their network address had as many as were still free) or full (none was free).",
		}, []string{"reason"}),
		headers: auto.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_proxy_headers_refused_total",
			Help: "Connections to the " + name + " that were refused for their PROXY header, by reason: untrusted (the peer " +
				"is not in http.trusted_proxies), version (1 is not supported), malformed or timeout.",
		}, []string{"reason"}),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "_connections", Help: "Open connections to the " + name + ", busy or idle.",
	}, func() float64 {
		if l := m.now.Load(); l != nil {
			return float64(l.places.Used())
		}
		return 0
	})
	for _, reason := range []string{NoShare, NoPlace} {
		m.refused.WithLabelValues(reason)
	}
	for _, reason := range proxyReasons {
		m.headers.WithLabelValues(reason)
	}
	return m
}

func (m *Metrics) proxyRefused(reason string) { m.headers.WithLabelValues(reason).Inc() }

// FramingMark is a header that this package adds to a request with a Transfer-Encoding or a folded line. A client
// that sends this header itself is refused in the same way.
const FramingMark = "X-Framing-Refused"

// FoldedMark is the value of FramingMark for a folded line.
const FoldedMark = "folded"

// RefuseTransferEncoding prevents reading a chunked body: the handler answers 411 and the connection ends, so that
// the body is never taken for a request (RFC 9112 §6.3, §11.2). It checks the raw lines, because the library silently
// drops "identity".
func RefuseTransferEncoding(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	mark := ""
	switch raw := h.RawHeaders(); {
	case HasFoldedLine(raw):
		mark = FoldedMark
	case h.ContentLength() == -1 || HasHeader(raw, fasthttp.HeaderTransferEncoding):
		mark = "1"
	}
	if mark != "" {
		h.SetContentLength(0)
		h.Set(FramingMark, mark)
		h.SetConnectionClose()
	}
	return fasthttp.RequestConfig{}
}

// HasFoldedLine looks for a line that continues the one before (obs-fold, RFC 9112 §5.2): a server may refuse it, and a
// proxy before us may read it differently.
func HasFoldedLine(raw []byte) bool {
	for line := range bytes.Lines(raw) {
		if line[0] == ' ' || line[0] == '\t' {
			return true
		}
	}
	return false
}

// HasHeader looks for a header in the raw head, because the library hides a missing Content-Length and drops
// "Transfer-Encoding: identity".
func HasHeader(raw []byte, name string) bool {
	for line := range bytes.Lines(raw) {
		if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return true
		}
	}
	return false
}

// FramingIssue returns what is wrong with the framing of a request, and after how many seconds to repeat it; 0 means
// never.
func FramingIssue(err error) (code api.Code, retryAfter int) {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.Is(err, ErrCrowded):
		return api.RateLimited, Jitter(1, 9)
	case errors.As(err, &small):
		return api.HeadersTooLarge, 0
	case IsTimeout(err):
		return api.RequestTimeout, 0
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		return api.LengthRequired, 0
	}
	return api.BadRequest, 0
}

// IsTimeout reports whether a client was too slow.
func IsTimeout(err error) bool {
	timeout, is := errors.AsType[net.Error](err)
	return is && timeout.Timeout()
}

// warnEvery is how often one kind of warning about the ledger is logged: customers may send a thousand requests a
// second while it does not answer. Guess.
const warnEvery = 5 * time.Second

// Warning is a log line that many requests can cause. Safe for concurrent use.
type Warning struct {
	Log     *slog.Logger
	Message string

	mu   sync.Mutex
	next time.Time // when it may be logged again; guarded by mu
	held int       // not logged since the last one; guarded by mu
}

// Write logs the warning, unless it was logged a moment ago. "more" counts the omitted lines.
func (c *Warning) Write(now time.Time, args ...any) {
	c.mu.Lock()
	if now.Before(c.next) {
		c.held++
		c.mu.Unlock()
		return
	}
	held := c.held
	c.next, c.held = now.Add(warnEvery), 0
	c.mu.Unlock()
	c.Log.Log(context.Background(), slog.LevelWarn, c.Message, append(args, "more", held)...)
}

// Quiet logs fasthttp's own messages at debug level, without their text, which may contain bytes of a client.
type Quiet struct{ Log *slog.Logger }

// Printf drops the arguments, because they may contain raw request bytes.
func (l Quiet) Printf(format string, _ ...any) {
	l.Log.Debug("http library line", "format", strings.TrimSpace(format))
}

// ErrCertificateEnded: a new certificate has expired, or is not valid yet.
var ErrCertificateEnded = errors.New("listen: not valid now")

// Pair is a certificate with its key, read from two PEM files, which may change while a listener serves. Safe for
// concurrent use.
type Pair struct {
	certFile, keyFile string
	now               atomic.Pointer[loaded]
}

type loaded struct {
	certificate tls.Certificate
	from, to    time.Time // times between which the whole chain is valid
}

// LoadPair reads the files. It accepts an expired certificate, so that a node can start; see End. The error names the
// file that can't be used.
func LoadPair(certFile, keyFile string) (*Pair, error) {
	p := &Pair{certFile: certFile, keyFile: keyFile}
	l, err := p.read()
	if err != nil {
		return nil, err
	}
	p.now.Store(l)
	return p, nil
}

// Reload reads the files again. After an error, also ErrCertificateEnded, the pair stays as it was.
func (p *Pair) Reload(now time.Time) error {
	l, err := p.read()
	if err != nil {
		return err
	}
	if now.Before(l.from) || now.After(l.to) {
		return fmt.Errorf("%w: %s holds from %s to %s", ErrCertificateEnded, p.certFile, l.from.Format(time.RFC3339),
			l.to.Format(time.RFC3339))
	}
	p.now.Store(l)
	return nil
}

func (p *Pair) read() (*loaded, error) {
	c, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return nil, fmt.Errorf("listen: read %s and %s: %w", p.certFile, p.keyFile, err)
	}
	l := &loaded{certificate: c}
	for i, der := range c.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("listen: read number %d of %s: %w", i+1, p.certFile, err)
		}
		if parsed.NotBefore.After(l.from) {
			l.from = parsed.NotBefore
		}
		if l.to.IsZero() || parsed.NotAfter.Before(l.to) {
			l.to = parsed.NotAfter
		}
	}
	return l, nil
}

// End returns when the first certificate of the chain ends.
func (p *Pair) End() time.Time { return p.now.Load().to }

// Config returns the settings of a listener: TLS 1.2 and later, HTTP/1.1, and the certificate in use when a client
// connects.
func (p *Pair) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &p.now.Load().certificate, nil
		},
	}
}
