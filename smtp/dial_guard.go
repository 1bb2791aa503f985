package smtp

import (
	"net/netip"
	"slices"
)

// DialGuard decides which IP addresses may be dialled: those for hosts on the Internet. It refuses all of the IANA
// special-purpose address registries (RFC 6890), also as IPv4 inside IPv6, and all IPv6 outside global unicast. The
// networks given to NewDialGuard are always allowed.
//
// The zero DialGuard is ready for use and allows no exception. Safe for concurrent use.
type DialGuard struct{ allow []netip.Prefix }

// NewDialGuard makes a guard that also allows the networks in allow. An IPv4 network also allows the IPv4-mapped
// IPv6 form of its addresses, and no other IPv6 form.
func NewDialGuard(allow []netip.Prefix) DialGuard {
	g := DialGuard{allow: make([]netip.Prefix, len(allow))}
	for i, p := range allow {
		g.allow[i] = p.Masked()
	}
	return g
}

// Allows reports whether a may be dialled.
func (g DialGuard) Allows(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap() // IPv4-mapped, RFC 4291 §2.5.5.2
	for _, p := range g.allow {
		if p.Contains(a) {
			return true
		}
	}
	if a.Is4() {
		return !within(specialIPv4[:], a)
	}
	if v4, ok := embeddedIPv4(a); ok {
		return !within(specialIPv4[:], v4)
	}
	return globalUnicast.Contains(a) && !within(specialIPv6[:], a)
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// embeddedIPv4 returns the IPv4 address inside an IPv6 address of NAT64 or 6to4, through which a packet may reach an
// IPv4 host.
func embeddedIPv4(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case nat64.Contains(a): // RFC 6052 §2.1: the last 32 bits
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToFour.Contains(a): // RFC 3056 §2: the 32 bits after 2002
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3") // RFC 4291 §2.4, as IANA has assigned it
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour     = netip.MustParsePrefix("2002::/16")
)

// specialIPv4 is the IANA IPv4 special-purpose registry, and multicast.
var specialIPv4 = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // RFC 791 §3.2, this network
	netip.MustParsePrefix("10.0.0.0/8"),      // RFC 1918
	netip.MustParsePrefix("100.64.0.0/10"),   // RFC 6598, carrier-grade NAT
	netip.MustParsePrefix("127.0.0.0/8"),     // RFC 1122 §3.2.1.3, loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // RFC 3927, link local
	netip.MustParsePrefix("172.16.0.0/12"),   // RFC 1918
	netip.MustParsePrefix("192.0.0.0/24"),    // RFC 6890, protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // RFC 5737, documentation
	netip.MustParsePrefix("192.31.196.0/24"), // RFC 7535, AS112
	netip.MustParsePrefix("192.52.193.0/24"), // RFC 7450, AMT
	netip.MustParsePrefix("192.88.99.0/24"),  // RFC 7526, 6to4 relay anycast
	netip.MustParsePrefix("192.168.0.0/16"),  // RFC 1918
	netip.MustParsePrefix("192.175.48.0/24"), // RFC 7534, AS112
	netip.MustParsePrefix("198.18.0.0/15"),   // RFC 2544, benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // RFC 5737, documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // RFC 5737, documentation
	netip.MustParsePrefix("224.0.0.0/4"),     // RFC 5771, multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // RFC 1112 §4, reserved, and the limited broadcast
}

// specialIPv6 is the part of the IANA IPv6 special-purpose registry inside global unicast. Everything outside of global
// unicast is refused anyway: ::/96, 64:ff9b:1::/48, 100::/64, fc00::/7, fe80::/10, ff00::/8 and unassigned space.
var specialIPv6 = [...]netip.Prefix{
	netip.MustParsePrefix("2001::/23"),         // RFC 2928, protocol assignments, Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),     // RFC 3849, documentation
	netip.MustParsePrefix("2620:4f:8000::/48"), // RFC 7534, AS112
	netip.MustParsePrefix("3fff::/20"),         // RFC 9637, documentation
}
