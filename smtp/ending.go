package smtp

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// When we end a session, the receiver may not notice: our last packets can be lost, and the receiver counts the
// session until it notices. So the connection stays half open behind each session until the receiver has sent 221,
// FIN or RST, or until Limits.Unended has passed.

// partBytes bounds what is read from the receiver after we ended the session.
const partBytes = 64 << 10

// Ending is the receiver's end of a session that has ended here.
type Ending struct {
	Gone  chan struct{} // closed when the receiver no longer holds the session: it sent 221, FIN or RST, or Until has come
	Until time.Time     // Limits.Unended after the end here

	// Lost is our address and port if our system gave the connection up: the receiver's system acknowledged nothing. Nil:
	// it didn't.
	Lost atomic.Pointer[netip.AddrPort]
}

// isOver is the ending of sessions that need no waiting for the receiver's end.
var isOver = func() *Ending {
	e := &Ending{Gone: make(chan struct{})}
	close(e.Gone)
	return e
}()

// Ending returns the end of the session at the receiver. Nil while the session is open.
func (s *Session) Ending() *Ending { return s.raw.ending }

// Ending is the Ending of the session that failed. It is already over when no connection was made: for the receiver a
// session begins with the last packet of the handshake, and we send that packet only when we have the connection, too.
func (f *Failure) Ending() *Ending { return cmp.Or(f.ending, isOver) }

// Lost reports whether our system gave the connection up. Then the failure says nothing about the receiver.
func (f *Failure) Lost() bool { return f.Ending().Lost.Load() != nil }

// Reached reports whether the host's system answered the dial, with a connection or with RST.
func (f *Failure) Reached() bool { return f.ending != nil || errors.Is(f.Err, syscall.ECONNREFUSED) }

// noteError remembers what an error of the connection says about its end.
func (l *peekConn) noteError(err error) {
	var code syscall.Errno
	switch {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) || l.lost:
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		l.ended = true
	case errors.As(err, &code):
		l.lost = !l.ended // such as ETIMEDOUT: our system gave the connection up without telling the receiver's
	}
}

// part ends the session and waits in the background, at most limit, for the receiver's end of it. A reply to QUIT is
// read from replies; nil: no reply is expected. A second call does nothing.
func (l *peekConn) part(limit time.Duration, replies *replyReader) {
	if l.ending != nil {
		return
	}
	half, ok := l.Conn.(interface{ CloseWrite() error })
	if !ok || l.ended { // a connection that is not TCP, as in a test's memory, ends on both sides at once
		l.ending = isOver
		_ = l.Conn.Close()
		return
	}
	l.ending = &Ending{Gone: make(chan struct{}), Until: time.Now().Add(limit)}
	p := parting{l}
	if l.lost {
		p.end()
		return
	}
	if l.unsent() == 0 {
		l.giveUpAfter(limit) // our FIN may take all of this time
	}
	_ = half.CloseWrite() // the next Read returns its error, too
	go p.wait(replies)
}

// parting is a session that has ended here, but perhaps not at the receiver.
type parting struct{ *peekConn }

// wait reads until the receiver ends the connection.
func (p parting) wait(replies *replyReader) {
	defer p.end()
	if replies != nil {
		if reply, err := p.reply(replies); err == nil && reply.Code == 221 {
			p.ended = true
			return
		}
	}
	var rest [1024]byte
	for heard := 0; heard < partBytes && !p.ended && !p.lost && p.mayWait(); {
		n, _ := p.Read(rest[:])
		heard += n
	}
}

func (p parting) reply(replies *replyReader) (Reply, error) {
	for p.mayWait() {
		reply, err := replies.read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return reply, err
		}
	}
	return Reply{}, os.ErrDeadlineExceeded
}

// mayWait sets the deadline of the next Read, and reports whether time is left. An interrupt may set another
// deadline at any time.
func (p parting) mayWait() bool {
	return time.Now().Before(p.ending.Until) && p.SetDeadline(p.ending.Until) == nil
}

// end frees the connection and closes Gone.
func (p parting) end() {
	if conn, ok := p.Conn.(interface{ SetLinger(seconds int) error }); ok && !p.ended {
		_ = conn.SetLinger(0) // Close then discards unsent data and sends RST
	}
	_ = p.Conn.Close()
	if p.ended {
		close(p.ending.Gone)
		return
	}
	if own, ok := p.LocalAddr().(*net.TCPAddr); ok && p.lost {
		from := own.AddrPort()
		p.ending.Lost.Store(&from)
	}
	time.AfterFunc(time.Until(p.ending.Until), func() { close(p.ending.Gone) })
}
