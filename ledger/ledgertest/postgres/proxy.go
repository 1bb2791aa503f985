package postgres

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Proxy stands between clients and one server. Safe for concurrent use.
type Proxy struct {
	upstream *pgconn.Config
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex
	plan   Plan                     // nil: everything passes; guarded by mu
	refuse bool                     // guarded by mu
	hushed chan struct{}            // not nil: everything is silent until it is closed; guarded by mu
	open   map[*connection]struct{} // guarded by mu
	counts map[Kind]int             // guarded by mu
}

// StartProxy listens on a port of 127.0.0.1 for the server that a connection string
// names; TLS to that server is not spoken. The caller closes the proxy.
func StartProxy(upstream string) (*Proxy, error) {
	config, err := pgconn.ParseConfig(upstream)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{upstream: config, listener: l, ctx: ctx, cancel: cancel,
		open: map[*connection]struct{}{}, counts: map[Kind]int{}}
	p.running.Go(p.accept)
	return p, nil
}

// URL is the connection string of database by way of the proxy.
func (p *Proxy) URL(database string) string {
	u := url.URL{Scheme: "postgres", Host: p.listener.Addr().String(), Path: "/" + database,
		User: url.User(p.upstream.User), RawQuery: "sslmode=disable"}
	return u.String()
}

// SetPlan asks plan about each statement from now on; nil passes everything.
func (p *Proxy) SetPlan(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// Refuse closes each new connection at once until Heal.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
}

// Hush is a black hole: no statement passes any more, on old and new connections,
// which stay open until Heal cuts them. An answer that is under way still comes.
func (p *Proxy) Hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hushed == nil {
		p.hushed = make(chan struct{})
	}
}

// Heal ends Refuse and Hush.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	if p.hushed != nil {
		close(p.hushed)
		p.hushed = nil
	}
}

// Sever cuts all open connections, whatever they are doing, and says how many.
func (p *Proxy) Sever() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.cancel()
	}
	p.counts[severed] += len(p.open)
	return len(p.open)
}

// Counts says how often each kind was done, since the start.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Injected is the number of all faults since the start.
func (p *Proxy) Injected() int {
	n := 0
	for _, count := range p.Counts() {
		n += count
	}
	return n
}

// Close ends the proxy and its connections, and waits for them.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.running.Wait()
	return err
}

// accept takes connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.refuse || p.ctx.Err() != nil {
			p.counts[refused]++
			p.mu.Unlock()
			_ = client.Close()
			continue
		}
		c := newConnection(p, client)
		p.open[c] = struct{}{}
		p.mu.Unlock()
		p.running.Go(func() {
			c.serve()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.open, c)
		})
	}
}

// dial connects to the server.
func (p *Proxy) dial(ctx context.Context) (net.Conn, error) {
	at := net.JoinHostPort(p.upstream.Host, strconv.Itoa(int(p.upstream.Port)))
	return new(net.Dialer).DialContext(ctx, "tcp", at)
}

// decide asks the plan about statements that are sent in one go. The text is
// that of the one that decided, or of the last.
func (p *Proxy) decide(texts []string) (act Act, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text = range texts {
		if p.plan == nil {
			continue
		}
		if act = p.plan(Statement{Text: text, Commit: isCommit(text)}); act.Kind != Pass {
			p.counts[act.Kind]++
			return act, text
		}
	}
	return Act{}, text
}

// hush returns the end of the silence, or nil when there is none.
func (p *Proxy) hush() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hushed != nil {
		p.counts[silenced]++
	}
	return p.hushed
}

// bufferBytes is how much is written in one go. Guess.
const bufferBytes = 16 << 10

// frame is one whole message in wire form: type, length, body.
type frame []byte

// kind is the type of the message.
func (f frame) kind() byte { return f[0] }

// side is one end of a connection.
type side struct {
	net.Conn
	out *bufio.Writer
}

// newSide buffers a connection.
func newSide(c net.Conn) side { return side{Conn: c, out: bufio.NewWriterSize(c, bufferBytes)} }

// send writes whole messages and flushes them.
func (s side) send(frames ...frame) error {
	for _, f := range frames {
		if _, err := s.out.Write(f); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// request is a message of the client, with the text of the statement that it runs.
type request struct {
	frame
	text string
	runs bool
}

// statements are the texts of the prepared statements and portals of a connection.
type statements struct {
	prepared map[string]string
	portals  map[string]string
}

// note follows a message of the client; for one that runs a statement it gives the text.
func (s statements) note(m pgproto3.FrontendMessage) (text string, runs bool) {
	switch m := m.(type) {
	case *pgproto3.Query:
		return m.String, true
	case *pgproto3.Parse:
		s.prepared[m.Name] = m.Query
	case *pgproto3.Bind:
		s.portals[m.DestinationPortal] = s.prepared[m.PreparedStatement]
	case *pgproto3.Execute:
		return s.portals[m.Portal], true
	case *pgproto3.Close:
		if m.ObjectType == 'S' {
			delete(s.prepared, m.Name)
		}
	}
	return "", false
}

// failure is an error of the given code, as a server says it.
func failure(code string) (frame, error) {
	return (&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code,
		Message: "injected by a test"}).Encode(nil)
}
