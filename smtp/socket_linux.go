package smtp

import (
	"time"

	"golang.org/x/sys/unix"
)

// giveUpAfter makes the system drop the connection when sent data was not acknowledged for d, instead of repeating it
// for a quarter of an hour (TCP_USER_TIMEOUT, tcp(7)). This also holds while this process is stopped, or after its end.
func (l *peekConn) giveUpAfter(d time.Duration) {
	if l.descriptor == nil {
		return
	}
	_ = l.descriptor.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(1, d.Milliseconds())))
	})
}

// unsent returns how many of our bytes the receiver's system has not acknowledged (SIOCOUTQ, tcp(7)).
func (l *peekConn) unsent() (n int) {
	if l.descriptor == nil {
		return 0
	}
	_ = l.descriptor.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
