package smtplab

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestRareShapes(t *testing.T) {
	l := startLab(t, nil)
	literal := mxHosts(t, l, "a-literalmx.test")
	if len(literal) != 1 || literal[0] != literalMX {
		t.Errorf("literalmx: %v", literal)
	}
	if more := mxHosts(t, l, "a-literalmore.test"); len(more) != 2 || more[1] != "mx1.a-literalmore.test" {
		t.Errorf("literalmore: %v", more)
	}
	many := ask(t, l, "tcp", "a-manymx.test", dns.TypeMX).Answer
	best := many[len(many)-1].(*dns.MX)
	if len(many) != manyMX || best.Mx != "mx1.a-manymx.test." || best.Preference != 10 {
		t.Errorf("manymx: %d records, the last one %v", len(many), best)
	}
	for _, host := range []string{"mx1", "mx2", "mx110"} {
		dialHost(t, l, host+".a-manymx.test").says("", "220 "+host)
	}
	if in := ask(t, l, "udp", "a-manymx.test", dns.TypeMX); !in.Truncated {
		t.Error("manymx: 110 records fit a small UDP answer")
	}
	for _, host := range []string{"mx111", "mx01", "mx0", "mx"} {
		if in := ask(t, l, "udp", host+".a-manymx.test", dns.TypeA); len(in.Answer) != 0 {
			t.Errorf("%s.a-manymx.test: %v", host, in.Answer)
		}
	}
}

func addresses(t *testing.T, l *Lab, host string) []netip.Addr {
	t.Helper()
	var out []netip.Addr
	for _, rr := range ask(t, l, "tcp", host, dns.TypeA).Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			out = append(out, addr)
		}
	}
	return out
}

func TestHostsWithManyAddresses(t *testing.T) {
	l := startLab(t, nil)
	listens := func(addr netip.Addr) bool {
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, uint16(l.SMTPPort())).String(), testTimeout)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	many := addresses(t, l, "mx1.a-manyaddresses.test")
	if len(many) != manyAddresses {
		t.Fatalf("%d addresses, want %d", len(many), manyAddresses)
	}
	seen := make(map[netip.Addr]bool)
	for i, addr := range many {
		if seen[addr] || !l.Network().Contains(addr) {
			t.Errorf("%s comes twice or is outside of the lab", addr)
		}
		seen[addr] = true
		if i%100 == 0 && listens(addr) != (i == 0) {
			t.Errorf("address %d listens: %v", i, i != 0)
		}
	}
	two := addresses(t, l, "mx1.a-addressdown.test")
	if len(two) != 2 || listens(two[0]) || !listens(two[1]) {
		t.Errorf("addressdown: %v, want the second one alone to listen", two)
	}
}

func TestASmallNetworkKeepsRoomForHosts(t *testing.T) {
	l := startLab(t, func(o *Options) { o.Network = netip.MustParsePrefix("127.66.1.0/24") })
	if many := addresses(t, l, "mx1.a-manyaddresses.test"); len(many) != 65 {
		t.Errorf("%d addresses in a network of 256, want one and a quarter of them", len(many))
	}
	dialHost(t, l, "mx1.a-clean.test").says("", "220")
}

// follow counts the CNAMEs from a name to records of a type.
func follow(t *testing.T, l *Lab, name string, qtype uint16) (hops int, found bool) {
	t.Helper()
	const enough = 40
	for hops < enough {
		before := hops
		for _, rr := range ask(t, l, "tcp", name, qtype).Answer {
			switch rr := rr.(type) {
			case *dns.CNAME:
				hops++
				name = rr.Target
			default:
				return hops, true
			}
		}
		if hops == before {
			return hops, false
		}
	}
	return hops, false
}

func TestChainsHaveTheirLength(t *testing.T) {
	l := startLab(t, nil)
	for _, c := range []struct {
		name  string
		qtype uint16
		hops  int
	}{
		{"c1.a-hostchain.test", dns.TypeA, 10},
		{"c1.a-hostchainlong.test", dns.TypeA, 11},
		{"a-chain.test", dns.TypeMX, 16},
		{"a-chainlong.test", dns.TypeMX, 17},
		{"eu.a-chain.test", dns.TypeMX, 16},
	} {
		if hops, found := follow(t, l, c.name, c.qtype); hops != c.hops || !found {
			t.Errorf("%s: %d CNAMEs, found %v; want %d", c.name, hops, found, c.hops)
		}
	}
	for _, domain := range []string{"a-hostchain.test", "a-hostchainlong.test"} {
		if hosts := mxHosts(t, l, domain); len(hosts) != 1 || hosts[0] != "c1."+domain {
			t.Errorf("MX of %s: %v", domain, hosts)
		}
	}
	for _, n := range []string{"c11", "c0"} {
		if in := ask(t, l, "udp", n+".a-hostchain.test", dns.TypeA); len(in.Answer) != 0 {
			t.Errorf("%s.a-hostchain.test: %v", n, in.Answer)
		}
	}
}

func TestIPv6Only(t *testing.T) {
	probe, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 loopback here: ", err)
	}
	_ = probe.Close()
	l := startLab(t, nil)
	for _, domain := range []string{"a-sixonly.test", "b-sixonly.test"} {
		hosts := mxHosts(t, l, domain)
		if len(hosts) != 1 || hosts[0] != "mx1.sixonly.test" {
			t.Fatalf("MX of %s: %v", domain, hosts)
		}
		if in := ask(t, l, "udp", hosts[0], dns.TypeA); len(in.Answer) != 0 {
			t.Errorf("%s has an IPv4 address: %v", hosts[0], in.Answer)
		}
		in := ask(t, l, "udp", hosts[0], dns.TypeAAAA)
		if len(in.Answer) != 1 || !in.Answer[0].(*dns.AAAA).AAAA.Equal(net.IPv6loopback) {
			t.Fatalf("AAAA of %s: %v", hosts[0], in.Answer)
		}
		conn, err := net.DialTimeout("tcp6", net.JoinHostPort("::1", strconv.Itoa(l.SMTPPort())), testTimeout)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		w := &wire{t: t, conn: conn, r: newReader(conn)}
		w.play(opening)
		w.says("RCPT TO:<anna@"+domain+">", "250")
		w.says("RCPT TO:<ghost@"+domain+">", "550 5.1.1")
		w.says("RCPT TO:<anna@a-clean.test>", "550 5.7.1")
	}
}

func TestAnIPv6AddressThatNobodyMayDial(t *testing.T) {
	l := startLab(t, nil)
	in := ask(t, l, "udp", "mx1.a-sixinside.test", dns.TypeAAAA)
	if len(in.Answer) != 1 || in.Answer[0].(*dns.AAAA).AAAA.String() != insideV6.String() {
		t.Errorf("AAAA: %v", in.Answer)
	}
	dialHost(t, l, "mx1.a-sixinside.test").says("", "220")
}
