package smtp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// A session that we end is over for us at once, and for the receiver when it hears of it. What we say last
// may be lost with the network, and a receiver counts a session for as long as it believes in it. So the
// connection stays half open behind each session until the receiver has said 221, FIN or RST, or until
// Limits.Unended is over.

// partBytes is how much is read of what a receiver still says to a session that we ended.
const partBytes = 64 << 10

// isOver is the channel of every session whose end is known at once.
var isOver = func() chan struct{} {
	over := make(chan struct{})
	close(over)
	return over
}()

// Gone is closed when the receiver holds the session no longer: it has said so by 221, FIN or RST, or
// Limits.Unended has passed since the session ended here. Nil while the session is open.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// Gone is that of the session that failed. It is closed from the start when there was none, because no
// connection came about: what a receiver's system has of one before its last packet is no session yet. The
// packet that makes it one we send when the connection is there for us, too.
func (f *Failure) Gone() <-chan struct{} {
	if f.gone == nil {
		return isOver
	}
	return f.gone
}

// noteError notes what an error of the connection says about its end.
func (l *peekConn) noteError(err error) {
	var code syscall.Errno
	switch {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) || l.lost:
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		l.ended = true
	case errors.As(err, &code):
		l.lost = !l.ended // such as ETIMEDOUT: our system gave the connection up, and nobody told theirs
	}
}

// part ends the conversation, and waits in the background for the receiver's end of it, for so long at most.
// A reply to QUIT is still to come from replies; nil: no reply is of interest.
func (l *peekConn) part(limit time.Duration, replies *replyReader) <-chan struct{} {
	half, ok := l.Conn.(interface{ CloseWrite() error })
	if !ok || l.ended { // what is no TCP, as in a test's memory, ends on both sides at once
		_ = l.Conn.Close()
		return isOver
	}
	p := &parting{peekConn: l, until: time.Now().Add(limit), gone: make(chan struct{})}
	if l.lost {
		p.end()
		return p.gone
	}
	if l.unsent() == 0 {
		l.giveUpAfter(limit) // our FIN may take as long as it likes
	}
	_ = half.CloseWrite() // an error of it is one of the next Read, too
	go p.wait(replies)
	return p.gone
}

// parting is a session that ended here, and perhaps not yet at the receiver.
type parting struct {
	*peekConn
	until time.Time
	gone  chan struct{}
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

// reply reads the reply to QUIT.
func (p *parting) reply(replies *replyReader) (Reply, error) {
	for p.mayWait() {
		reply, err := replies.read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return reply, err
		}
	}
	return Reply{}, os.ErrDeadlineExceeded
}

// mayWait sets the deadline of the next Read, and reports whether there is time for one. What interrupted
// the session may set another one at any time.
func (p *parting) mayWait() bool {
	return time.Now().Before(p.until) && p.SetDeadline(p.until) == nil
}

// end frees the connection, and says when the receiver has forgotten it.
func (p *parting) end() {
	if !p.ended {
		p.dropUnsent()
	}
	_ = p.Conn.Close()
	if p.ended {
		close(p.gone)
		return
	}
	time.AfterFunc(time.Until(p.until), func() { close(p.gone) })
}

// dropUnsent lets Close throw away what was not sent, and say RST.
func (l *peekConn) dropUnsent() {
	if conn, ok := l.Conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = conn.SetLinger(0)
	}
}
