package identity

import (
	"fmt"
	"net"
	"net/netip"
)

// Source is one address that receivers see us at, and what we say there.
type Source struct {
	Addr       netip.Addr
	Hello      string // the name in EHLO
	ReturnPath string // the address in MAIL FROM
}

// sharedSpace is the address space behind a provider's NAT (RFC 6598).
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// special says in a word why no receiver on the Internet sees an address; "" if one may.
// The documentation networks are none of them: nobody speaks from there but tests.
func special(a netip.Addr) string {
	switch a = a.Unmap(); {
	case a.IsLoopback():
		return "loopback"
	case a.IsPrivate():
		return "private"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case sharedSpace.Contains(a):
		return "behind a provider's NAT"
	}
	return ""
}

// LocalFor returns the address that the system would speak from to another one. Nothing
// is sent: connecting a UDP socket only looks at the routes.
func LocalFor(to netip.Addr) (netip.Addr, error) {
	conn, err := net.Dial("udp", netip.AddrPortFrom(to, 25).String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the source address: %w", err)
	}
	defer conn.Close()
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the source address: %w", err)
	}
	return at.Addr().Unmap().WithZone(""), nil
}
