package listen

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// ErrNetwork: a text is neither an address nor a network.
var ErrNetwork = errors.New("listen: neither an address nor a network")

// Trusted are the networks of trusted proxies. The zero value trusts nobody.
type Trusted struct{ networks []netip.Prefix }

// ParseTrusted reads networks such as 10.0.0.0/8 and addresses such as 10.0.0.1; ErrNetwork.
func ParseTrusted(texts []string) (Trusted, error) {
	var t Trusted
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			alone, err := netip.ParseAddr(text)
			if err != nil || alone.Zone() != "" {
				return Trusted{}, fmt.Errorf("%w: %q", ErrNetwork, text)
			}
			alone = alone.Unmap()
			network = netip.PrefixFrom(alone, alone.BitLen())
		}
		t.networks = append(t.networks, network.Masked())
	}
	return t, nil
}

// Contains reports whether an address is that of a trusted proxy.
func (t Trusted) Contains(a netip.Addr) bool {
	a = plain(a)
	return slices.ContainsFunc(t.networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Client returns the address that a request comes from: that of the connection, unless it is a trusted proxy's. Then it
// is the right-most address of the X-Forwarded-For lines, passed in order, that is not a trusted proxy's; the left-most
// one when all are. At an unreadable part it stops with the last address read, because somebody untrusted wrote the
// parts to the left.
func (t Trusted) Client(connected netip.Addr, forwarded [][]byte) netip.Addr {
	client := plain(connected)
	for i := len(forwarded) - 1; i >= 0; i-- {
		line := forwarded[i]
		for more := true; more; {
			if !t.Contains(client) {
				return client
			}
			var hop []byte
			comma := bytes.LastIndexByte(line, ',')
			if more = comma >= 0; more {
				line, hop = line[:comma], line[comma+1:]
			} else {
				hop = line
			}
			a, ok := parseHop(bytes.Trim(hop, " \t"))
			if !ok {
				return client
			}
			client = a
		}
	}
	return client
}

// parseHop reads an address, which some proxies write with a port.
func parseHop(text []byte) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(string(text)); err == nil {
		return plain(a), true
	}
	p, err := netip.ParseAddrPort(string(text))
	return plain(p.Addr()), err == nil
}

// plain returns the form for comparing addresses.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// IPOf gives the IP address of an end of a TCP connection; the zero value for others.
func IPOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	return plain(ip)
}

// NetworkOf names the network address that limits count by: one IPv4 address, or one IPv6 /64, the usual size for one
// customer line (RFC 6177).
func NetworkOf(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return string(a.AsSlice())
	}
	p, err := a.Prefix(64)
	if err != nil {
		return ""
	}
	return string(p.Addr().AsSlice())
}
