package smtplab

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
)

// rdata returns the records without owner, TTL and class: "MX 10 mx1.a.test.".
func rdata(all []dns.RR) []string {
	out := []string{}
	for _, rr := range all {
		text := strings.TrimPrefix(rr.String(), rr.Header().String())
		if _, ok := rr.(*dns.A); ok && strings.HasPrefix(text, "127.6") {
			text = "lab"
		}
		out = append(out, dns.TypeToString[rr.Header().Rrtype]+" "+text)
	}
	return out
}

func TestAnswersByShape(t *testing.T) {
	l := startLab(t, nil)
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		want  string
	}{
		{"clean.test", dns.TypeMX, dns.RcodeSuccess, "MX 10 mx1.clean.test."},
		{"CLEAN.Test", dns.TypeMX, dns.RcodeSuccess, "MX 10 mx1.clean.test."},
		{"clean.test", dns.TypeA, dns.RcodeSuccess, ""},
		{"clean.test", dns.TypeTXT, dns.RcodeSuccess, ""},
		{"mx1.clean.test", dns.TypeA, dns.RcodeSuccess, "A lab"},
		{"mx1.clean.test", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"mx1.clean.test", dns.TypeMX, dns.RcodeSuccess, ""},
		{"eu.shop-clean.test", dns.TypeMX, dns.RcodeSuccess, "MX 10 mx1.shop-clean.test."},
		{"xn--bcher-clean-thb.test", dns.TypeMX, dns.RcodeSuccess, "MX 10 mx1.xn--bcher-clean-thb.test."},
		{"a-nosuchword.test", dns.TypeMX, dns.RcodeNameError, ""},
		{"test", dns.TypeMX, dns.RcodeNameError, ""},
		{"mail.example", dns.TypeMX, dns.RcodeRefused, ""},
		{"a-twomx.test", dns.TypeMX, dns.RcodeSuccess, "MX 20 mx2.a-twomx.test. MX 10 mx1.a-twomx.test."},
		{"a-nullmx.test", dns.TypeMX, dns.RcodeSuccess, "MX 0 ."},
		{"a-nullmxmore.test", dns.TypeMX, dns.RcodeSuccess, "MX 0 . MX 10 mx1.a-nullmxmore.test."},
		{"a-implicit.test", dns.TypeMX, dns.RcodeSuccess, ""},
		{"a-implicit.test", dns.TypeA, dns.RcodeSuccess, "A lab"},
		{"a-alias.test", dns.TypeMX, dns.RcodeSuccess, "CNAME real.a-alias.test. MX 10 mx1.a-alias.test."},
		{"a-alias.test", dns.TypeCNAME, dns.RcodeSuccess, "CNAME real.a-alias.test."},
		{"a-hostalias.test", dns.TypeMX, dns.RcodeSuccess, "MX 10 mail.a-hostalias.test."},
		{"mail.a-hostalias.test", dns.TypeA, dns.RcodeSuccess, "CNAME mx1.a-hostalias.test. A lab"},
		{"a-aliasloop.test", dns.TypeMX, dns.RcodeSuccess, "CNAME loop.a-aliasloop.test. CNAME a-aliasloop.test."},
		{"mx1.a-lostmx.test", dns.TypeA, dns.RcodeNameError, ""},
		{"mx1.a-inside.test", dns.TypeA, dns.RcodeSuccess, "A 10.66.66.66"},
		{"mx1.a-inside.test", dns.TypeAAAA, dns.RcodeSuccess, "AAAA 64:ff9b::7f00:1"},
		{"a-nxdomain.test", dns.TypeMX, dns.RcodeNameError, ""},
		{"a-nodata.test", dns.TypeMX, dns.RcodeSuccess, ""},
		{"a-nodata.test", dns.TypeA, dns.RcodeSuccess, ""},
		{"a-servfail.test", dns.TypeMX, dns.RcodeServerFailure, ""},
		{"a-dnsrefused.test", dns.TypeMX, dns.RcodeRefused, ""},
	} {
		for _, network := range []string{"udp", "tcp"} {
			in := ask(t, l, network, c.name, c.qtype)
			got := strings.Join(rdata(in.Answer), " ")
			effort.ErrorIf(t, in.Rcode != c.rcode || got != c.want, "%s %s %s: %s %q, want %s %q", network, c.name,
				dns.TypeToString[c.qtype], dns.RcodeToString[in.Rcode], got, dns.RcodeToString[c.rcode], c.want)
			told := in.Rcode == dns.RcodeSuccess || in.Rcode == dns.RcodeNameError
			negative := told && len(in.Answer) == 0
			_, ok := first(in.Ns).(*dns.SOA)
			effort.ErrorIf(t, ok != negative, "%s: SOA %v, want it in negative answers only (RFC 2308)", c.name, ok)
		}
	}
}

func first(all []dns.RR) dns.RR {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

func TestTruncatedOverUDP(t *testing.T) {
	l := startLab(t, nil)
	in := ask(t, l, "udp", "a-dnstcp.test", dns.TypeMX)
	effort.ErrorIf(t, !in.Truncated || len(in.Answer) != 0, "UDP: %v, want an empty truncated answer", in)
	in = ask(t, l, "tcp", "a-dnstcp.test", dns.TypeMX)
	effort.ErrorIf(t, in.Truncated || len(in.Answer) != 1, "TCP: %v, want one MX", in)
	tally := l.Manners().DNS
	effort.ErrorIf(t, tally.Queries != 2 || tally.TCP != 1 || tally.ByType["MX"] != 2 || tally.Zones != 1,
		"DNS tally %+v", tally)
}

func TestSilentDNS(t *testing.T) {
	l := startLab(t, nil)
	conn := effort.Must(net.Dial("udp", l.DNSAddr()))(t)
	defer func() { _ = conn.Close() }()
	// The answer to the second question must be the first thing we read.
	for _, name := range []string{"a-dnssilent.test.", "clean.test."} {
		packed := effort.Must(new(dns.Msg).SetQuestion(name, dns.TypeMX).Pack())(t)
		effort.Must(conn.Write(packed))(t)
	}
	_ = conn.SetReadDeadline(time.Now().Add(testTimeout))
	buffer := make([]byte, dns.MaxMsgSize)
	n := effort.Must(conn.Read(buffer))(t)
	in := new(dns.Msg)
	if err := in.Unpack(buffer[:n]); err != nil || in.Question[0].Name != "clean.test." {
		t.Errorf("first answer %v, %v: want that for clean.test", in, err)
	}
}

func TestDownHostsRefuseConnections(t *testing.T) {
	l := startLab(t, nil)
	for _, host := range []string{"mx1.a-firstdown.test", "mx1.a-unreachable.test"} {
		conn, err := net.DialTimeout("tcp", hostAddr(t, l, host), testTimeout)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s: connected, want a refusal", host)
		}
	}
}

func TestSameNameSameAddressInEveryLab(t *testing.T) {
	var addrs [2]string
	for i := range addrs {
		host := effort.Must(effort.First(net.SplitHostPort(hostAddr(t, startLab(t, nil), "mx1.stable-clean.test"))))(t)
		addrs[i] = host
	}
	effort.Is(t, addrs[0], addrs[1], "addresses", addrs, "the same")
}

func TestHostsMaxAnswersServFail(t *testing.T) {
	l := startLab(t, func(o *Options) { o.HostsMax = 1 })
	hostAddr(t, l, "mx1.a-clean.test")
	in := ask(t, l, "udp", "mx1.b-clean.test", dns.TypeA)
	effort.ErrorIf(t, in.Rcode != dns.RcodeServerFailure, "second host: %s, want SERVFAIL", dns.RcodeToString[in.Rcode])
	hostAddr(t, l, "mx1.a-clean.test")
}

func TestAddedDomains(t *testing.T) {
	l := startLab(t, nil)
	own := Personality{Name: "own", Words: Words{Any: "250 2.1.5 Anything for {client}"}, CatchAll: true}
	for _, d := range []Domain{
		{Name: "odd.example", Personality: own},
		{Name: "tenant.example", Records: []string{"tenant.example. 60 IN MX 5 mx1.hoster-plain.test."}},
		{Name: "Bücher.example", Records: []string{"xn--bcher-kva.example. IN MX 0 ."}},
	} {
		effort.OK(t, l.Add(d), "Add", d.Name)
	}
	dialHost(t, l, "mx1.odd.example").play(opening + `
		> RCPT TO:<x@odd.example>
		< 250 2.1.5 Anything for 127.0.0.1`)
	in := ask(t, l, "udp", "tenant.example", dns.TypeMX)
	effort.Is(t, strings.Join(rdata(in.Answer), ""), "MX 5 mx1.hoster-plain.test.", "MX of tenant.example", in.Answer)
	in = ask(t, l, "udp", "tenant.example", dns.TypeA)
	effort.Is(t, in.Rcode, dns.RcodeSuccess, "A of tenant.example", in)
	effort.Is(t, len(in.Answer), 0, "A of tenant.example", in)
	dialHost(t, l, "mx1.hoster-plain.test").play(opening + `
		> RCPT TO:<anna@tenant.example>
		< 250
		> RCPT TO:<ghost@tenant.example>
		< 550
		> RCPT TO:<anna@odd.example>
		< 550 <anna@odd.example>: Relay access denied`)

	for _, d := range []Domain{
		{Name: ""},
		{Name: "a b.example"},
		{Name: "x.example", Records: []string{"x.example. IN MX five"}},
		{Name: "x.example", Records: []string{"y.example. IN MX 5 y.example."}},
	} {
		effort.ErrIs(t, l.Add(d), ErrDomain, fmt.Sprintf("Add %+v", d))
	}
}

func TestRareShapes(t *testing.T) {
	l := startLab(t, nil)
	literal := mxHosts(t, l, "a-literalmx.test")
	effort.ErrorIf(t, len(literal) != 1 || literal[0] != literalMX, "literalmx: %v", literal)
	more := mxHosts(t, l, "a-literalmore.test")
	effort.ErrorIf(t, len(more) != 2 || more[1] != "mx1.a-literalmore.test", "literalmore: %v", more)
	many := ask(t, l, "tcp", "a-manymx.test", dns.TypeMX).Answer
	best := many[len(many)-1].(*dns.MX)
	effort.ErrorIf(t, len(many) != manyMX || best.Mx != "mx1.a-manymx.test." || best.Preference != 10,
		"manymx: %d records, the last one %v", len(many), best)
	for _, host := range []string{"mx1", "mx2", "mx110"} {
		dialHost(t, l, host+".a-manymx.test").says("", "220 "+host)
	}
	in := ask(t, l, "udp", "a-manymx.test", dns.TypeMX)
	effort.ErrorIf(t, !in.Truncated, "manymx: 110 records fit a small UDP answer")
	for _, host := range []string{"mx111", "mx01", "mx0", "mx"} {
		in := ask(t, l, "udp", host+".a-manymx.test", dns.TypeA)
		effort.ErrorIf(t, len(in.Answer) != 0, "%s.a-manymx.test: %v", host, in.Answer)
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
	effort.MustBe(t, len(many), manyAddresses, "addresses")
	seen := make(map[netip.Addr]bool)
	for i, addr := range many {
		effort.ErrorIf(t, seen[addr] || !l.Network().Contains(addr), "%s comes twice or is outside of the lab", addr)
		seen[addr] = true
		effort.ErrorIf(t, i%100 == 0 && listens(addr) != (i == 0), "address %d listens: %v", i, i != 0)
	}
	two := addresses(t, l, "mx1.a-addressdown.test")
	effort.ErrorIf(t, len(two) != 2 || listens(two[0]) || !listens(two[1]),
		"addressdown: %v, want the second one alone to listen", two)
}

func TestASmallNetworkKeepsRoomForHosts(t *testing.T) {
	l := startLab(t, func(o *Options) { o.Network = netip.MustParsePrefix("127.66.1.0/24") })
	effort.Is(t, len(addresses(t, l, "mx1.a-manyaddresses.test")), 65, "addresses in a network of 256")
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
		hops, found := follow(t, l, c.name, c.qtype)
		effort.ErrorIf(t, hops != c.hops || !found, "%s: %d CNAMEs, found %v; want %d", c.name, hops, found, c.hops)
	}
	for _, domain := range []string{"a-hostchain.test", "a-hostchainlong.test"} {
		hosts := mxHosts(t, l, domain)
		effort.ErrorIf(t, len(hosts) != 1 || hosts[0] != "c1."+domain, "MX of %s: %v", domain, hosts)
	}
	for _, n := range []string{"c11", "c0"} {
		in := ask(t, l, "udp", n+".a-hostchain.test", dns.TypeA)
		effort.ErrorIf(t, len(in.Answer) != 0, "%s.a-hostchain.test: %v", n, in.Answer)
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
		effort.FatalIf(t, len(hosts) != 1 || hosts[0] != "mx1.sixonly.test", "MX of %s: %v", domain, hosts)
		if in := ask(t, l, "udp", hosts[0], dns.TypeA); len(in.Answer) != 0 {
			t.Errorf("%s has an IPv4 address: %v", hosts[0], in.Answer)
		}
		in := ask(t, l, "udp", hosts[0], dns.TypeAAAA)
		if len(in.Answer) != 1 || !in.Answer[0].(*dns.AAAA).AAAA.Equal(net.IPv6loopback) {
			t.Fatalf("AAAA of %s: %v", hosts[0], in.Answer)
		}
		conn := effort.Must(net.DialTimeout("tcp6", net.JoinHostPort("::1", strconv.Itoa(l.SMTPPort())), testTimeout))(t)
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
	effort.ErrorIf(t, len(in.Answer) != 1 || in.Answer[0].(*dns.AAAA).AAAA.String() != insideV6.String(),
		"AAAA: %v", in.Answer)
	dialHost(t, l, "mx1.a-sixinside.test").says("", "220")
}
