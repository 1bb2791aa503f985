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

// DialerOptions are the local address of a Dialer and the destinations it may connect to.
type DialerOptions struct {
	// Source is the local address; with the zero value the system chooses.
	Source netip.Addr

	// AllowNetworks may be dialled although they are special-use. Only labs set it.
	AllowNetworks []netip.Prefix

	// Port is the only port that may be dialled, 1 to 65535: 25 except in labs.
	Port int

	// ConnectTimeout bounds one connection attempt; see the constant ConnectTimeout.
	ConnectTimeout time.Duration
}

// NewDialer returns a dialer for the Internet. At the moment of the connect it checks the final IP address: it
// refuses special-use addresses (DialGuard) and other ports with ErrForbiddenAddress. It does not look up names.
func NewDialer(o DialerOptions) Dialer {
	d := &guardedDialer{guard: NewDialGuard(o.AllowNetworks), port: uint16(o.Port)}
	d.net = net.Dialer{
		Timeout:   o.ConnectTimeout,
		KeepAlive: -1, // every wait has a deadline; saves three system calls a connection
		Control:   d.control,
	}
	if o.Source.IsValid() {
		d.net.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Source, 0))
	}
	return d
}

type guardedDialer struct {
	net   net.Dialer
	guard DialGuard
	port  uint16
}

func (d *guardedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	// The system would look up a name, and only control would see the result.
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("%w: not an ip address and a port", ErrForbiddenAddress)
	}
	if from, ok := ctx.Value(fromKey{}).(netip.AddrPort); ok {
		dialer := d.net
		dialer.LocalAddr = net.TCPAddrFromAddrPort(from)
		return dialer.DialContext(ctx, network, address)
	}
	return d.net.DialContext(ctx, network, address)
}

type fromKey struct{}

// DialFrom returns a context whose connections are made from our address and port, if one is given.
func DialFrom(ctx context.Context, from netip.AddrPort) context.Context {
	if !from.IsValid() {
		return ctx
	}
	return context.WithValue(ctx, fromKey{}, from)
}

// control checks the address that is really used, between making the socket and connecting it.
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
