package smtp

import (
	"context"
	"net"
	"os"
	"syscall"
)

// peekConn is a connection that can be looked at without waiting: while looking, a
// Read that finds nothing received gives a time-out at once. A connection without a
// descriptor, as in a test's memory, has nothing received as far as we can see.
type peekConn struct {
	net.Conn
	descriptor syscall.RawConn // nil: none
	looking    bool
	ended      bool // the far side has ended the connection
	lost       bool // our system has given it up, whatever the far side believes
}

func newPeekConn(conn net.Conn) *peekConn {
	l := &peekConn{Conn: conn}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			l.descriptor = raw
		}
	}
	return l
}

// Read reads, and while looking does not wait.
func (l *peekConn) Read(p []byte) (int, error) {
	if l.looking && !l.received() {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := l.Conn.Read(p)
	l.noteError(err)
	return n, err
}

// Write writes.
func (l *peekConn) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	l.noteError(err)
	return n, err
}

// received reports whether the system holds bytes, or an end, that were not read yet.
func (l *peekConn) received() (some bool) {
	if l.descriptor == nil {
		return false
	}
	err := l.descriptor.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if some = err == nil; !some && err != syscall.EAGAIN {
			l.noteError(err) // the system tells it once
		}
	})
	return some && err == nil
}

// early reports whether a byte is there already that answers nothing that was asked: in
// the buffer, in what TLS has decrypted or not yet, or with the system. It does not
// wait, and takes an end of the connection for nothing.
func (s *Session) early() bool {
	if !s.in.empty() {
		return true
	}
	s.raw.looking = true
	_, err := s.in.buf.Peek(1)
	s.raw.looking = false
	s.in.skipBlank()
	return err == nil && !s.in.empty()
}

// talksAhead reports whether a reply follows the first answers of a session that answers
// nothing: one of the replies before was sent ahead of its command, so no answer is
// known to be that to its RCPT. It waits for pollWait, once in a session: who sends
// one ahead does so from the start. A 421 may always come (RFC 5321 §3.8).
func (s *Session) talksAhead(ctx context.Context) bool {
	if _, err := s.arm(ctx, pollWait); err != nil {
		return false
	}
	if _, err := s.in.buf.Peek(1); err != nil {
		return false // a close shows at the next command
	}
	if s.in.skipBlank(); s.in.empty() {
		return false
	}
	waiting, _ := s.in.buf.Peek(min(3, s.in.buf.Buffered()))
	return string(waiting) != "421"
}
