package smtp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Dialer makes connections to hosts. Address is an IP address and a port.
// Implementations are safe for concurrent use and return soon after ctx is done.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// DialerOptions say from where and whereto a Dialer may connect.
type DialerOptions struct {
	// Source is the local address to speak from; the zero value leaves the
	// choice to the system.
	Source netip.Addr

	// AllowNetworks may be dialled although they are special-use. Empty outside
	// of labs.
	AllowNetworks []netip.Prefix

	// Port is the only port that may be dialled, 1 to 65535: 25 but for labs.
	Port int

	// ConnectTimeout bounds one connection attempt; see ConnectTimeout.
	ConnectTimeout time.Duration
}

// Validate answers ErrOptions when the options are not usable.
func (o DialerOptions) Validate() error {
	if o.Port < 1 || o.Port > 65535 {
		return fmt.Errorf("%w: port %d is not between 1 and 65535", ErrOptions, o.Port)
	}
	if o.ConnectTimeout <= 0 {
		return fmt.Errorf("%w: the connect timeout is not positive", ErrOptions)
	}
	for _, p := range o.AllowNetworks {
		if !p.IsValid() {
			return fmt.Errorf("%w: an allowed network is not valid", ErrOptions)
		}
	}
	return nil
}

// NewDialer makes the dialer that reaches the Internet, with the guard in it:
// it refuses with ErrForbiddenAddress, at the moment of the connect and
// therefore whatever was resolved, every special-use address (DialGuard) and every
// port but the one. Names are not looked up.
//
// Errors: ErrOptions.
func NewDialer(o DialerOptions) (Dialer, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("dialer: %w", err)
	}
	d := &guardedDialer{guard: NewDialGuard(o.AllowNetworks), port: uint16(o.Port)}
	d.net = net.Dialer{
		Timeout:   o.ConnectTimeout,
		KeepAlive: -1, // every wait has a deadline; saves three system calls a connection
		Control:   d.control,
	}
	if o.Source.IsValid() {
		d.net.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Source, 0))
	}
	return d, nil
}

type guardedDialer struct {
	net   net.Dialer
	guard DialGuard
	port  uint16
}

func (d *guardedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	// A name would be looked up by the system; only control would see the result.
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("%w: not an ip address and a port", ErrForbiddenAddress)
	}
	return d.net.DialContext(ctx, network, address)
}

// control sees the address that is really used, after the socket was made and
// before it is connected.
func (d *guardedDialer) control(network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || (network != "tcp4" && network != "tcp6") {
		return fmt.Errorf("%w: %s", ErrForbiddenAddress, network)
	}
	if at.Port() != d.port {
		return fmt.Errorf("%w: port %d", ErrForbiddenAddress, at.Port())
	}
	if !d.guard.Allows(at.Addr()) {
		return fmt.Errorf("%w: a special-use address", ErrForbiddenAddress)
	}
	return nil
}
