package smtplab

import (
	"net"

	"golang.org/x/sys/unix"
)

// tcpEstablished is the state of a connection that neither side has closed
// (TCP_ESTABLISHED in the kernel's tcp_states.h).
const tcpEstablished = 1

// clientLeft reports whether the client has closed or reset its side.
func clientLeft(conn net.Conn) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	left := true // also if our side is closed already
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		left = err != nil || info.State != tcpEstablished
	})
	return left
}
