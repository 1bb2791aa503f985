package smtp

import (
	"context"
	"net"
	"os"
	"syscall"
)

// peekConn is a connection that can be read without waiting: while looking is set, a Read that finds nothing received
// times out at once. A connection without a descriptor, as in a test's memory, counts as having received nothing.
type peekConn struct {
	net.Conn
	descriptor syscall.RawConn // nil: none
	looking    bool
	ended      bool    // the receiver has ended the connection
	lost       bool    // our system has given it up, even if the receiver still holds it
	ending     *Ending // nil: the session is open
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

// Read reads; while looking is set it does not wait.
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

// received reports whether the system holds unread bytes or an unread end of the connection.
func (l *peekConn) received() (some bool) {
	if l.descriptor == nil {
		return false
	}
	err := l.descriptor.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if some = err == nil; !some && err != syscall.EAGAIN {
			l.noteError(err) // the system reports an error only once
		}
	})
	return some && err == nil
}

// early reports whether an unexpected byte was received: in the buffer, inside TLS, or with the system. It does not
// wait, and ignores an end of the connection.
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

// talksAhead reports whether an unexpected reply follows the first answers of a session. Then an earlier reply came
// before its command, so no answer belongs to its RCPT for certain. It waits for pollWait, once in a session: a
// receiver that sends replies ahead does so from the start. A 421 is always allowed (RFC 5321 §3.8).
func (s *Session) talksAhead(ctx context.Context) bool {
	if _, err := s.arm(ctx, pollWait); err != nil {
		return false
	}
	if _, err := s.in.buf.Peek(1); err != nil {
		return false // the next command finds a close
	}
	if s.in.skipBlank(); s.in.empty() {
		return false
	}
	waiting, _ := s.in.buf.Peek(min(3, s.in.buf.Buffered()))
	return string(waiting) != "421"
}
