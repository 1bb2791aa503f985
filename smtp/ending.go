package smtp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// When we end a session, the receiver may not notice: our last packets can be lost, and the receiver counts the
// session until it notices. So the connection stays half open behind each session until the receiver has sent 221,
// FIN or RST, or until Limits.Unended has passed.

// partBytes bounds what is read from the receiver after we ended the session.
const partBytes = 64 << 10

// isOver is a closed channel, for sessions that need no waiting for the receiver's end.
var isOver = func() chan struct{} {
	over := make(chan struct{})
	close(over)
	return over
}()

// Gone is closed when the receiver no longer holds the session: it sent 221, FIN or RST, or Limits.Unended has
// passed since the session ended here. Nil while the session is open.
func (s *Session) Gone() <-chan struct{} { return s.raw.gone }

// Gone is the Gone of the session that failed. It is already closed when no connection was made: for the receiver a
// session begins with the last packet of the handshake, and we send that packet only when we have the connection, too.
func (f *Failure) Gone() <-chan struct{} {
	if f.gone == nil {
		return isOver
	}
	return f.gone
}

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
	if l.gone != nil {
		return
	}
	half, ok := l.Conn.(interface{ CloseWrite() error })
	if !ok || l.ended { // a connection that is not TCP, as in a test's memory, ends on both sides at once
		l.gone = isOver
		_ = l.Conn.Close()
		return
	}
	l.gone = make(chan struct{})
	p := &parting{peekConn: l, until: time.Now().Add(limit)}
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
type parting struct {
	*peekConn
	until time.Time
}

// wait reads until the receiver ends the connection.
func (p *parting) wait(replies *replyReader) {
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

func (p *parting) reply(replies *replyReader) (Reply, error) {
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
func (p *parting) mayWait() bool {
	return time.Now().Before(p.until) && p.SetDeadline(p.until) == nil
}

// end frees the connection and closes Gone.
func (p *parting) end() {
	if conn, ok := p.Conn.(interface{ SetLinger(seconds int) error }); ok && !p.ended {
		_ = conn.SetLinger(0) // Close then discards unsent data and sends RST
	}
	_ = p.Conn.Close()
	if p.ended {
		close(p.gone)
		return
	}
	time.AfterFunc(time.Until(p.until), func() { close(p.gone) })
}
