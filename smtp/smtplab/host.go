package smtplab

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// acceptPause is the wait after a temporary failure of accept, such as too many open files; guess.
const acceptPause = 10 * time.Millisecond

// host is one name with an address of its own.
type host struct {
	name     string
	addr     netip.Addr
	receiver *receiver
	tallies  tallies
	listener net.Listener // nil when the host is down
}

func (h *host) close() {
	if h.listener != nil {
		_ = h.listener.Close()
	}
}

// openHost returns the host, and makes it listen if needed. The caller holds l.mu. The error is ErrHostsMax or wraps
// a net.Error.
func (l *Lab) openHost(name string, r *receiver, down bool) (*host, error) {
	if h := l.hosts[name]; h != nil {
		return h, nil
	}
	if len(l.hosts) >= l.options.HostsMax || len(l.taken) >= 1<<(32-l.network.Bits()) {
		return nil, ErrHostsMax
	}
	h := &host{name: name, addr: netip.IPv6Loopback(), receiver: r}
	if r.persona.DNS != OnlyIPv6 {
		h.addr = l.addressOf(name)
	}
	if !down && !l.stopped {
		at := netip.AddrPortFrom(h.addr, uint16(l.port))
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			delete(l.taken, h.addr)
			return nil, err
		}
		h.listener = listener
		l.running.Go(func() { l.accept(h) })
	}
	h.tallies = tallies{l.manners.total, h.receiver.tally, l.manners.host(name)}
	l.hosts[name] = h
	return h, nil
}

// accept runs the sessions of a host until the lab stops.
func (l *Lab) accept(h *host) {
	for {
		conn, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !l.wait(acceptPause) {
				return
			}
			continue
		}
		s := newSession(l, h, conn)
		if !l.keep(s) {
			s.link.abort()
			return
		}
		l.running.Go(func() {
			defer l.forget(s)
			s.run()
		})
	}
}

// keep remembers an open session for Stop; it returns false when the lab stops.
func (l *Lab) keep(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.sessions[s] = struct{}{}
	s.crowded = len(l.sessions) > l.options.SessionsMax
	return true
}

func (l *Lab) forget(s *session) {
	l.mu.Lock()
	delete(l.sessions, s)
	l.mu.Unlock()
	s.link.abort()
}
