package smtp

import (
	"time"

	"golang.org/x/sys/unix"
)

// giveUpAfter lets the system end the connection when something that we sent was not acknowledged for so
// long, instead of sending it again for a quarter of an hour (TCP_USER_TIMEOUT, tcp(7)). It also
// holds when this process is stopped, or has ended.
func (l *peekConn) giveUpAfter(d time.Duration) {
	if l.descriptor == nil {
		return
	}
	_ = l.descriptor.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(1, d.Milliseconds())))
	})
}

// unsent is how many bytes of ours the far system has not acknowledged (SIOCOUTQ, tcp(7)).
func (l *peekConn) unsent() (n int) {
	if l.descriptor == nil {
		return 0
	}
	_ = l.descriptor.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
