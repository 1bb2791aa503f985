package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// aheadMax bounds the messages of a client that are read while an earlier one is at work, so that its end is noticed
// behind them. More than a client sends after it gave up: a Terminate. Guess.
const aheadMax = 64

// connection is one client and its server. Its loop passes on the client's messages
// up to a Sync, and then the server's answer up to ReadyForQuery.
type connection struct {
	proxy  *Proxy
	ctx    context.Context // ends when either side goes, or by Sever
	cancel context.CancelFunc
	client side
	server side
	asks   *pgproto3.Backend  // reads what the client sends
	says   *pgproto3.Frontend // reads what the server sends
	known  statements         // of listen

	requests chan request // what the client sent
}

// newConnection is a connection of a client, without its server.
func newConnection(p *Proxy, client net.Conn) *connection {
	c := &connection{proxy: p, client: newSide(client), asks: pgproto3.NewBackend(client, client),
		requests: make(chan request, aheadMax),
		known:    statements{prepared: map[string]string{}, portals: map[string]string{}}}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	return c
}

// serve runs the connection to its end. Errors are its end and nothing more: the client sees them as a cut.
func (c *connection) serve() {
	defer c.cancel()
	defer context.AfterFunc(c.ctx, func() { _ = c.client.Close() })()
	defer c.client.Close()
	if hushed := c.proxy.hush(); hushed != nil {
		c.swallow(hushed)
		return
	}
	if !c.begin() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.cancel() // the client is gone, whatever the server does
		c.listen()
	}()
	defer func() { <-done }()
	defer c.cancel()
	defer c.server.Close()
	for c.exchange() == nil {
	}
}

// listen reads the client's messages.
func (c *connection) listen() {
	for {
		m, err := c.asks.Receive()
		if err != nil {
			return
		}
		var r request
		r.text, r.runs = c.known.note(m)
		if r.frame, err = m.Encode(nil); err != nil {
			return
		}
		select {
		case c.requests <- r:
		case <-c.ctx.Done():
			return
		}
	}
}

// read reads a message of the server.
func (c *connection) read() (frame, error) {
	m, err := c.says.Receive()
	if err != nil {
		return nil, err
	}
	return m.Encode(nil)
}

// swallow says nothing until the silence ends or the client gives up: pgx says Terminate then, and waits for the end of
// the connection.
func (c *connection) swallow(hushed <-chan struct{}) {
	for {
		select {
		case f := <-c.requests:
			if f.kind() == 'X' {
				return
			}
		case <-hushed:
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// begin passes the beginning of a connection on, until the server is ready; false: that was all. No server of this
// package asks for a password.
func (c *connection) begin() bool {
	first, err := c.asks.ReceiveStartupMessage()
	for err == nil && !passes(first) {
		if err = c.client.send(frame("N")); err == nil { // not spoken: go on in clear
			first, err = c.asks.ReceiveStartupMessage()
		}
	}
	if err != nil {
		return false
	}
	server, err := c.proxy.dial(c.ctx)
	if err != nil {
		return false
	}
	context.AfterFunc(c.ctx, func() { _ = server.Close() })
	c.server, c.says = newSide(server), pgproto3.NewFrontend(server, server)
	_, cancels := first.(*pgproto3.CancelRequest)
	if f, err := first.Encode(nil); err != nil || c.server.send(f) != nil || cancels {
		return false
	}
	return c.answer() == nil
}

// passes reports whether a first message is for the server, and not about encryption.
func passes(first pgproto3.FrontendMessage) bool {
	switch first.(type) {
	case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
		return false
	}
	return true
}

// exchange handles what the client sends up to a Sync or a simple query, and its answer.
func (c *connection) exchange() error {
	var frames []frame
	var texts []string
	for {
		var f request
		select {
		case f = <-c.requests:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
		frames = append(frames, f.frame)
		if f.runs {
			texts = append(texts, f.text)
		}
		if f.kind() == 'X' { // Terminate
			return c.server.send(frames...)
		}
		if f.kind() == 'S' || f.kind() == 'Q' {
			break
		}
	}
	if hushed := c.proxy.hush(); hushed != nil {
		c.swallow(hushed)
		return errCut
	}
	act, text := c.proxy.decide(texts)
	return c.do(act, text, frames)
}

// do carries out the plan's decision.
func (c *connection) do(act Act, text string, frames []frame) error {
	switch act.Kind {
	case CutBefore:
		return errCut
	case FailUndone:
		return c.fail(act.Code, text)
	case Slow:
		select {
		case <-time.After(act.Delay):
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	if err := c.server.send(frames...); err != nil {
		return err
	}
	switch act.Kind {
	case CutSent:
		return errCut
	case CutExecuted:
		if _, err := c.drain(); err != nil {
			return err
		}
		return errCut
	case CutAnswer:
		return c.half(act.Rows)
	case FailDone:
		return c.falsify(act.Code)
	}
	return c.answer()
}

// answer passes the answer on.
func (c *connection) answer() error {
	for {
		f, err := c.read()
		if err != nil {
			return err
		}
		if _, err := c.client.out.Write(f); err != nil {
			return err
		}
		// What comes slowly is not held back.
		if f.kind() == 'Z' || c.says.ReadBufferLen() == 0 {
			if err := c.client.out.Flush(); err != nil {
				return err
			}
		}
		if f.kind() == 'Z' {
			return nil
		}
	}
}

// drain reads and drops the answer, and returns the ReadyForQuery at its end.
func (c *connection) drain() (frame, error) {
	for {
		f, err := c.read()
		if err != nil || f.kind() == 'Z' {
			return f, err
		}
	}
}

// half passes some rows, then the answer up to the middle of the next row, completion or error.
func (c *connection) half(rows int) error {
	for {
		f, err := c.read()
		if err != nil {
			return err
		}
		k := f.kind()
		if k == 'D' {
			rows--
		}
		if k != 'D' && k != 'C' && k != 'E' && k != 'I' && k != 'Z' || k == 'D' && rows >= 0 {
			if err := c.client.send(f); err != nil {
				return err
			}
			continue
		}
		if err := c.client.send(f[:len(f)/2]); err != nil {
			return err
		}
		if f.kind() != 'Z' {
			if _, err := c.drain(); err != nil { // executed, to its end
				return err
			}
		}
		return errCut
	}
}

// fail makes the statement fail with code. Instead of the statement the server gets a wrong one, which aborts the
// transaction; instead of a COMMIT it gets a ROLLBACK.
func (c *connection) fail(code, text string) error {
	instead := "injected failure" // a syntax error
	// Behind the release of cockroach-go's savepoint the transaction block is still open.
	if isCommit(text) && !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(text)), "RELEASE") {
		instead = "ROLLBACK"
	}
	f, err := (&pgproto3.Query{String: instead}).Encode(nil)
	if err != nil {
		return err
	}
	if err := c.server.send(f); err != nil {
		return err
	}
	return c.falsify(code)
}

// falsify puts an error of code in the place of the answer.
func (c *connection) falsify(code string) error {
	ready, err := c.drain()
	if err != nil {
		return err
	}
	wrong, err := failure(code)
	if err != nil {
		return err
	}
	return c.client.send(wrong, ready)
}

// Kind is a fault of a statement.
type Kind string

// The kinds. After a cut both sides find their connection closed.
const (
	Pass        Kind = ""            // it is sent and answered
	CutBefore   Kind = "before sent" // cut; the server never sees the statement
	CutSent     Kind = "sent"        // sent and cut at once; it may run or not
	CutExecuted Kind = "executed"    // executed, then cut; nothing of the answer is passed on
	CutAnswer   Kind = "in answer"   // executed, then cut in the middle of the answer
	FailUndone  Kind = "fail undone" // answered with Act.Code; it failed and its transaction is aborted
	FailDone    Kind = "fail done"   // answered with Act.Code although it was executed
	Slow        Kind = "slow"        // passed on after Act.Delay
	refused     Kind = "refused"     // a connection, by Proxy.Refuse
	severed     Kind = "severed"     // a connection, by Proxy.Sever
	silenced    Kind = "silenced"    // a connection, by Proxy.Hush
)

// The codes that matter most to a plan: PostgreSQL's Appendix A.
const (
	SerializationFailure = "40001" // rolled back, run it again
	CompletionUnknown    = "40003" // nobody knows whether it was committed
)

// Act is one decision.
type Act struct {
	Kind  Kind
	Code  string        // the SQLSTATE of FailUndone and FailDone
	Delay time.Duration // of Slow
	Rows  int           // that CutAnswer lets pass before it cuts
}

// Statement is one statement that is about to run.
type Statement struct {
	Text string // as the client wrote it
	// Commit says that it ends a transaction that keeps its changes: COMMIT, or
	// the RELEASE of cockroach-go's savepoint.
	Commit bool
}

// Plan decides about each statement, one call at a time; it must not call the proxy. Of statements sent in one go (up
// to a Sync) the first that is not passed decides for all.
type Plan func(Statement) Act

// Always does act at each statement.
func Always(act Act) Plan { return func(Statement) Act { return act } }

// isCommit reports whether text is the commit of a transaction.
func isCommit(text string) bool {
	words := strings.Fields(strings.ToUpper(strings.TrimRight(text, "; \t\r\n")))
	if len(words) == 0 {
		return false
	}
	last := strings.Trim(words[len(words)-1], `"`)
	return words[0] == "COMMIT" || words[0] == "END" || words[0] == "RELEASE" && last == "COCKROACH_RESTART"
}

// errCut: the plan ended the connection.
var errCut = errors.New("cut")
