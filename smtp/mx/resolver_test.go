package mx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// TestLookup is the DNS table: what each state of a domain means.
func TestLookup(t *testing.T) {
	t.Parallel()
	z := startZone(t, "clean.test. 300 MX 10 mx1.clean.test.", "mx1.clean.test. 300 A 192.0.2.1",
		"two.test. MX 20 b.two.test.", "two.test. MX 10 a.two.test.",
		"a.two.test. A 192.0.2.2", "b.two.test. A 192.0.2.3", "b.two.test. AAAA 2001:db8::3",
		"shared.test. MX 1 aspmx.mail.example.com.", "aspmx.mail.example.com. A 192.0.2.4",
		"implicit.test. A 192.0.2.5", "implicit6.test. AAAA 2001:db8::5", "nothing.test. TXT here",
		"null.test. MX 0 .", "null10.test. MX 10 .",
		"nullmixed.test. MX 0 .", "nullmixed.test. MX 10 mx.nullmixed.test.", "mx.nullmixed.test. A 192.0.2.6",
		"servfail.test. A 192.0.2.7", "hostfail.test. MX 1 servfail.test.",
		"halffail.test. MX 1 servfail.test.", "halffail.test. MX 2 mx1.clean.test.",
		"alias.test. CNAME clean.test.", "dangling.test. CNAME gone.nowhere.test.",
		"loop1.test. CNAME loop2.test.", "loop2.test. CNAME loop1.test.",
		"mxalias.test. MX 1 www.mxalias.test.", "www.mxalias.test. CNAME mx1.clean.test.",
		"literal.test. MX 1 192.0.2.9.",
		"literalmixed.test. MX 1 192.0.2.9.", "literalmixed.test. MX 2 mx1.clean.test.",
		`strange.test. MX 1 mx\032x.test.`, "private.test. MX 1 lan.private.test.", "lan.private.test. A 10.0.0.1",
		"loopback.test. MX 1 localhost.", "localhost. A 127.0.0.1", "localhost. AAAA ::1",
		"mapped.test. MX 1 mapped.mapped.test.", "mapped.mapped.test. AAAA ::ffff:10.0.0.1",
		"halfprivate.test. MX 1 lan.private.test.", "halfprivate.test. MX 2 mx1.clean.test.",
		"onehost.test. MX 1 h.onehost.test.", "h.onehost.test. A 10.1.1.1", "h.onehost.test. A 192.0.2.10",
		"nohosts.test. MX 1 x.nohosts.test.", "nohosts.test. MX 2 nothing.test.",
		"many.test. MX 1 a.many.test.", "many.test. MX 2 b.many.test.", "many.test. MX 3 c.many.test.",
		"many.test. MX 4 d.many.test.", "many.test. MX 5 e.many.test.", "many.test. MX 6 mx1.clean.test.",
		"many.test. MX 7 a.two.test.",
		"manynone.test. MX 1 a.many.test.", "manynone.test. MX 2 b.many.test.", "manynone.test. MX 3 c.many.test.",
		"manynone.test. MX 4 d.many.test.", "manynone.test. MX 5 e.many.test.", "manynone.test. MX 6 f.many.test.",
		"manyfail.test. MX 1 a.many.test.", "manyfail.test. MX 2 b.many.test.", "manyfail.test. MX 3 c.many.test.",
		"manyfail.test. MX 4 d.many.test.", "manyfail.test. MX 5 e.many.test.", "manyfail.test. MX 6 servfail.test.",
		"nohostsfail.test. MX 1 x.nohosts.test.", "nohostsfail.test. MX 2 servfail.test.",
		"xn--bcher-kva.test. MX 1 mx1.clean.test.", "uk.test. MX 1 mx.shop.co.uk.", "mx.shop.co.uk. A 192.0.2.11",
		"bare.test. MX 1 mail.", "mail. A 192.0.2.12",
		"mxfail.test. A 192.0.2.13", "afail.test. AAAA 2001:db8::13", "afail2.test. TXT x",
	)
	z.code("servfail.test.", dns.RcodeServerFailure)
	z.code("refused.test.", dns.RcodeRefused)
	z.code("notimp.test.", dns.RcodeNotImplemented)
	z.code("mxfail.test. MX", dns.RcodeServerFailure)
	z.code("afail.test. A", dns.RcodeServerFailure)
	z.code("afail2.test. AAAA", dns.RcodeServerFailure)
	z.on("silent.test.", silent)
	z.on("referral.test.", func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		ns, _ := dns.NewRR("test. NS ns.test.")
		m.Ns = []dns.RR{ns}
		_ = w.WriteMsg(m)
	})
	o := testOptions(z.addr)
	o.IPv6 = true
	r := startResolver(t, o)
	for _, tc := range []struct{ name, domain, want string }{
		{"one host", "clean.test", "clean.test: mx1.clean.test 192.0.2.1"},
		{"capitals and final dot", "CLEAN.Test.", "clean.test: mx1.clean.test 192.0.2.1"},
		{"order by preference, IPv4 first", "two.test", "two.test: a.two.test 192.0.2.2, b.two.test 192.0.2.3 2001:db8::3"},
		{"receiver of another name", "shared.test", "example.com: aspmx.mail.example.com 192.0.2.4"},
		{"public suffix of two labels", "uk.test", "shop.co.uk: mx.shop.co.uk 192.0.2.11"},
		{"host without a registrable domain", "bare.test", "mail: mail 192.0.2.12"},
		{"A-label", "xn--bcher-kva.test", "clean.test: mx1.clean.test 192.0.2.1"},
		{"no such name", "missing.test", "domain_not_found"},
		{"no MX but A", "implicit.test", "implicit.test: implicit.test 192.0.2.5"},
		{"no MX but AAAA", "implicit6.test", "implicit6.test: implicit6.test 2001:db8::5"},
		{"no MX, A, AAAA", "nothing.test", "no_mail_service"},
		{"null MX", "null.test", "no_mail_service"},
		{"the best five have no address", "many.test", "clean.test: mx1.clean.test 192.0.2.1, a.two.test 192.0.2.2"},
		{"none of six has one", "manynone.test", "no_mail_service"},
		{"the sixth can't be asked", "manyfail.test", "error: server failure"},
		{"null MX with a preference", "null10.test", "no_mail_service"},
		{"null MX beside another", "nullmixed.test", "nullmixed.test: mx.nullmixed.test 192.0.2.6"},
		{"SERVFAIL", "servfail.test", "error: server failure"},
		{"SERVFAIL for MX only is no implicit MX", "mxfail.test", "error: server failure"},
		{"REFUSED", "refused.test", "error: refused"},
		{"NOTIMP", "notimp.test", "error: refused"},
		{"referral is not NODATA", "referral.test", "error: refused"},
		{"no answer", "silent.test", "error: no answer in time"},
		{"SERVFAIL for the only host", "hostfail.test", "error: server failure"},
		{"SERVFAIL for one host of two", "halffail.test", "clean.test: mx1.clean.test 192.0.2.1"},
		{"SERVFAIL for A, AAAA there", "afail.test", "afail.test: afail.test 2001:db8::13"},
		{"SERVFAIL for AAAA, no A", "afail2.test", "error: server failure"},
		{"CNAME", "alias.test", "clean.test: mx1.clean.test 192.0.2.1"},
		{"CNAME to nothing", "dangling.test", "domain_not_found"},
		{"CNAME loop", "loop1.test", "error: endless or too long chain of names"},
		{"MX to CNAME", "mxalias.test", "mxalias.test: www.mxalias.test 192.0.2.1"},
		{"MX is an IP address", "literal.test", "no_mail_service"},
		{"MX is an IP address beside another", "literalmixed.test", "clean.test: mx1.clean.test 192.0.2.1"},
		{"MX is no host name", "strange.test", "no_mail_service"},
		{"private address", "private.test", "no_mail_service"},
		{"loopback", "loopback.test", "no_mail_service"},
		{"private IPv4 in IPv6", "mapped.test", "no_mail_service"},
		{"private address beside another host", "halfprivate.test", "clean.test: mx1.clean.test 192.0.2.1"},
		{"private address beside a public one", "onehost.test", "onehost.test: h.onehost.test 192.0.2.10"},
		{"no host of the MX exists", "nohosts.test", "no_mail_service"},
		{"one host does not exist, one fails", "nohostsfail.test", "error: server failure"},
		{"empty", "", "error: malformed"},
		{"root", ".", "error: malformed"},
		{"empty label", "a..test", "error: malformed"},
		{"label too long", strings.Repeat("a", 64) + ".test", "error: malformed"},
		{"space", "a b.test", "error: malformed"},
		{"dot in a label", `a\.b.test`, "error: malformed"},
		{"U-label", "bücher.test", "error: malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := lookup(t, r, tc.domain)
			effort.ErrorIf(t, got != tc.want, "Lookup(%q)\n got %s\nwant %s", tc.domain, got, tc.want)
		})
	}
}

// TestLookupQueries counts questions: what is known or not needed is not asked.
func TestLookupQueries(t *testing.T) {
	records := []string{
		"one.test. MX 1 mx.one.test.", "mx.one.test. A 192.0.2.1",
		"two.test. MX 1 mx.one.test.",
		"v6.test. MX 1 mx.v6.test.", "mx.v6.test. AAAA 2001:db8::1",
		"here.test. TXT x",
	}
	for _, tc := range []struct {
		name    string
		ipv6    bool
		domains string
		want    []string
	}{
		{"IPv4 only", false, "one.test", []string{"one.test. MX", "mx.one.test. A"}},
		{"both", true, "one.test", []string{"one.test. MX", "mx.one.test. A", "mx.one.test. AAAA"}},
		{"again", false, "one.test one.test", []string{"one.test. MX", "mx.one.test. A"}},
		{"another domain of the host", false, "one.test two.test",
			[]string{"one.test. MX", "mx.one.test. A", "two.test. MX"}},
		{"IPv6 host without IPv6", false, "v6.test", []string{"v6.test. MX", "mx.v6.test. A", "mx.v6.test. AAAA"}},
		{"a name that is gone, and one below it", false, "gone.test x.gone.test", []string{"gone.test. MX",
			"gone.test. A", "gone.test. AAAA", "x.gone.test. MX", "x.gone.test. A", "x.gone.test. AAAA"}},
		{"a name that is denied does not end what is below", false, "test one.test",
			[]string{"test. MX", "test. A", "test. AAAA", "one.test. MX", "mx.one.test. A"}},
		{"a failure is not asked for twice", false, "fail.test", []string{"fail.test. MX"}},
		{"no records", false, "here.test here.test", []string{"here.test. MX", "here.test. A", "here.test. AAAA"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := startZone(t, records...)
			z.code("test.", dns.RcodeNameError)
			z.code("fail.test.", dns.RcodeServerFailure)
			o := testOptions(z.addr)
			o.IPv6 = tc.ipv6
			r := startResolver(t, o)
			for _, d := range strings.Fields(tc.domains) {
				lookup(t, r, d)
			}
			got := z.queries()
			effort.MustBe(t, len(got), len(tc.want), "asked", got, tc.want)
			for _, want := range tc.want {
				effort.Has(t, strings.Join(got, "\n"), "udp "+want, "asked")
			}
		})
	}
}

// TestLookupBounds: hostile amounts are cut, the best are kept.
func TestLookupBounds(t *testing.T) {
	z := startZone(t)
	for i := range 200 {
		z.add(t, fmt.Sprintf("many.test. MX %d h%03d.many.test.", 1000-i, i),
			fmt.Sprintf("h%03d.many.test. A 192.0.2.%d", i, i))
	}
	z.add(t, "wide.test. MX 1 h.wide.test.")
	for i := range 1000 {
		z.add(t, fmt.Sprintf("h.wide.test. A 198.51.%d.%d", 97+i/250, i%250))
	}
	for h := range 3 {
		z.add(t, fmt.Sprintf("eight.test. MX %d h%d.eight.test.", h, h))
		for a := range 4 {
			z.add(t, fmt.Sprintf("h%d.eight.test. A 192.0.2.%d", h, 10*h+a))
		}
	}
	for i := range 18 {
		z.add(t, fmt.Sprintf("c%d.chain.test. CNAME c%d.chain.test.", i, i+1))
	}
	z.add(t, "c18.chain.test. MX 1 h000.many.test.", "c18.chain.test. A 192.0.2.77")
	for i := 7; i < 9; i++ {
		z.add(t, fmt.Sprintf("mxchain%d.test. MX 1 c%d.chain.test.", i, i))
	}
	r := startResolver(t, testOptions(z.addr))
	for _, tc := range []struct{ name, domain, want string }{
		{"100 of 200 MX, 5 hosts", "many.test", "many.test: h099.many.test 192.0.2.99, " +
			"h098.many.test 192.0.2.98, h097.many.test 192.0.2.97, " + "h096.many.test 192.0.2.96, h095.many.test 192.0.2.95"},
		{"4 of 1000 addresses, and only those allowed", "wide.test",
			"wide.test: h.wide.test 198.51.100.0 198.51.100.1 198.51.100.2 198.51.100.3"},
		{"8 addresses in all", "eight.test", "eight.test: " + "h0.eight.test 192.0.2.0 192.0.2.1 192.0.2.2 192.0.2.3, " +
			"h1.eight.test 192.0.2.10 192.0.2.11 192.0.2.12 192.0.2.13"},
		{"chain of 16", "c2.chain.test", "many.test: h000.many.test 192.0.2.0"},
		{"chain of 17", "c1.chain.test", "error: endless or too long chain of names"},
		{"MX chain of 10", "mxchain8.test", "chain.test: c8.chain.test 192.0.2.77"},
		{"MX chain of 11", "mxchain7.test", "error: endless or too long chain of names"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := lookup(t, r, tc.domain)
			effort.ErrorIf(t, got != tc.want, "Lookup(%q)\n got %s\nwant %s", tc.domain, got, tc.want)
		})
	}
}

// TestServerThatDoesNotFollow: a server that gives one CNAME at a time is asked
// for the next, as far as the chain may go.
func TestServerThatDoesNotFollow(t *testing.T) {
	z := startZone(t, cleanMX, cleanA)
	link := func(from, to string) {
		z.on(from, func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			rr, _ := dns.NewRR(from + " CNAME " + to)
			m.Answer = []dns.RR{rr}
			_ = w.WriteMsg(m)
		})
	}
	for i := 1; i < 17; i++ {
		link(fmt.Sprintf("l%d.test.", i), fmt.Sprintf("l%d.test.", i+1))
	}
	link("l17.test.", "clean.test.")
	link("ring.test.", "ring.test.")
	link("tonothing.test.", "gone.test.")
	r := startResolver(t, testOptions(z.addr))
	for _, tc := range []struct{ domain, want string }{
		{"l2.test", cleanRoute},
		{"l1.test", "error: endless or too long chain of names"},
		{"ring.test", "error: endless or too long chain of names"},
		{"tonothing.test", "domain_not_found"},
	} {
		effort.Is(t, lookup(t, r, tc.domain), tc.want, fmt.Sprintf("Lookup(%q) gives", tc.domain))
	}
}

// TestOnlyTheNameItselfIsBelieved draws domains under parents that are denied, and domains whose records of one
// type are denied by the wrong code, and asks for parents and children in any order: what has a host that can
// be dialled has a route.
func TestOnlyTheNameItselfIsBelieved(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 28))
	z := startZone(t)
	want := map[string]string{}
	for i := range 60 {
		parent := fmt.Sprintf("p%d.test", i)
		z.code(parent+".", dns.RcodeNameError) // it has nothing but names below it
		want[parent] = "domain_not_found"
		domain := "mail." + parent
		if r.IntN(2) == 0 {
			domain = "a.b." + parent
			z.code("b."+parent+".", dns.RcodeNameError)
			want["b."+parent] = "domain_not_found"
		}
		host := domain
		if r.IntN(2) == 0 {
			host = "mx." + domain
			if r.IntN(2) == 0 { // the host's parent is denied as well
				host = fmt.Sprintf("mx.h%d.test", i)
				z.code(fmt.Sprintf("h%d.test.", i), dns.RcodeNameError)
			}
			z.add(t, fmt.Sprintf("%s. 60 MX 10 %s.", domain, host))
		} else {
			z.code(domain+". MX", dns.RcodeNameError)
		}
		at := fmt.Sprintf("192.0.2.%d", i)
		if r.IntN(3) == 0 {
			at = fmt.Sprintf("2001:db8::%d", i)
			z.code(host+". A", dns.RcodeNameError)
			z.add(t, fmt.Sprintf("%s. 60 AAAA %s", host, at))
		} else {
			z.code(host+". AAAA", dns.RcodeNameError)
			z.add(t, fmt.Sprintf("%s. 60 A %s", host, at))
		}
		want[domain] = host + " " + at
	}
	for _, ipv6 := range []bool{false, true} {
		o := testOptions(z.addr)
		o.IPv6 = ipv6
		resolver := startResolver(t, o)
		for domain, want := range want { // in any order
			route, err := resolver.Lookup(t.Context(), domain)
			got := route.NoMail.String()
			effort.OK(t, err)
			if len(route.Hosts) > 0 {
				got = route.Hosts[0].Name + " " + route.Hosts[0].Addrs[0].String()
			}
			effort.Is(t, got, want, fmt.Sprintf("IPv6 %v: %s gives", ipv6, domain))
		}
	}
}

// TestPublicEmptyNonTerminal is the public sample P009.
func TestPublicEmptyNonTerminal(t *testing.T) {
	z := startZone(t, "mail.ent.test. 60 MX 10 mx.mail.ent.test.", "mx.mail.ent.test. 60 A 192.0.2.1")
	z.code("ent.test.", dns.RcodeNameError)
	r := startResolver(t, testOptions(z.addr))
	for _, tc := range [][2]string{{"ent.test", "domain_not_found"}, {"mail.ent.test", "ent.test: mx.mail.ent.test 192.0.2.1"}} {
		effort.Is(t, lookup(t, r, tc[0]), tc[1], fmt.Sprintf("P009: %s gives", tc[0]))
	}
}

// Servers that deny every name, as in a captive network, must not make all addresses of a file
// invalid. When they are gone, their denials are forgotten.
func TestDenialsAreBelievedOnlyOfServersThatKnowTheWitness(t *testing.T) {
	z := startZone(t, "there.example. 60 MX 10 mx.gone.example.")
	z.code("missing.example.", dns.RcodeNameError)
	z.code("mx.gone.example.", dns.RcodeNameError)
	z.code("com.", dns.RcodeNameError)
	o := testOptions(z.addr)
	o.KnownName = "com"
	r := startResolver(t, o)
	for _, domain := range []string{"missing.example", "there.example"} {
		_, err := r.Lookup(t.Context(), domain)
		if walled := (*Error)(nil); !errors.As(err, &walled) || walled.Kind != Walled {
			t.Errorf("%s: got %v, want a walled error", domain, err)
		}
	}
	effort.Not(t, r.Check(t.Context()), nil, "Check")
	z.mu.Lock()
	delete(z.rcodes, "com.")
	delete(z.rcodes, "missing.example.")
	z.mu.Unlock()
	z.add(t, "com. 60 NS a.gtld.example.", "missing.example. 60 MX 10 mx.missing.example.",
		"mx.missing.example. 60 A 192.0.2.1")
	r = startResolver(t, o) // which has forgotten the failures: they last a second
	effort.Is(t, len(effort.Must(r.Lookup(t.Context(), "missing.example"))(t).Hosts), 1,
		"missing.example on the open network")
	effort.Is(t, effort.Must(r.Lookup(t.Context(), "there.example"))(t).NoMail, smtp.NoMailService,
		"there.example on the open network")
}

func testAddrs(n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	}
	return addrs
}

// TestOrderInsideAPreference: the same in one resolver, spread over resolvers, and the receiver is the same in all.
func TestOrderInsideAPreference(t *testing.T) {
	hosts := []mxRecord{
		{host: "a.one.test"}, {host: "b.one.test"}, {host: "c.two.test"}, {host: "z.test", preference: 9},
	}
	answers := make([]hostAnswer, len(hosts))
	for i := range answers {
		answers[i] = hostAnswer{addrs: testAddrs(1), expires: time.Now()}
	}
	first := make(map[string]int)
	for range 200 {
		seed := maphash.MakeSeed()
		a, _ := planRoute("d.test", hosts, answers, seed)
		b, _ := planRoute("e.test", hosts, answers, seed)
		for i := range a.Hosts {
			effort.MustBe(t, a.Hosts[i].Name, b.Hosts[i].Name, "order of two domains", a.Hosts, b.Hosts)
		}
		effort.MustBe(t, a.Receiver, "one.test", "receiver")
		effort.MustBe(t, a.Hosts[3].Name, "z.test", "receiver")
		first[a.Hosts[0].Name]++
	}
	effort.Is(t, len(first), 3, "first hosts of 200 resolvers", first, "all three of the best preference")
}

// FuzzRoute lets a server answer with any bytes, over UDP and TCP: those for MX, then those for each address
// question. Only the number and the question are made right, without which an answer is dropped as a forger's. The
// answer is a route within bounds, a plain "no mail", or an error. We never deny a domain that DNS does not deny.
func FuzzRoute(f *testing.F) {
	for _, records := range [][2]string{
		{"d.test. 60 IN MX 1 mx.d.test.", "mx.d.test. 60 IN A 192.0.2.1"},
		{"d.test. 60 IN MX 0 .", "mx.d.test. 60 IN A 10.0.0.1"},
		{"d.test. 60 IN CNAME d.test.", "mx.d.test. 60 IN CNAME mx.d.test."},
		{"d.test. 60 IN MX 1 192.0.2.1.", "d.test. 60 IN A 192.0.2.1"},
		{"d.test. 60 IN SOA a. b. 1 2 3 4 5", "d.test. 60 IN AAAA ::ffff:10.0.0.1"},
	} {
		f.Add(answerBytes(f, records[0]), answerBytes(f, records[1]))
	}
	nameError := []byte{0x81, 0x83, 0, 0, 0, 0, 0, 0}
	f.Add(nameError, nameError)
	f.Add([]byte{0x83, 0x80, 0xff, 0xff}, []byte{})
	server := startParrot(f)
	f.Fuzz(func(t *testing.T, toMX, toAddress []byte) {
		server.say(toMX, toAddress)
		o := testOptions(server.addr)
		o.Timeout = 200 * time.Millisecond // a lookup that only waits wastes the fuzzer's time
		r := effort.Must(New(o))(t)
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		route, err := r.Lookup(ctx, "d.test")
		var failed *Error
		switch {
		case err != nil && !errors.As(err, &failed):
			t.Fatalf("error %v, want an *Error", err)
		case err != nil:
			return
		case route.NoMail == smtp.DomainNotFound && !server.denies():
			t.Fatalf("%q and %q are taken for a domain that does not exist", toMX, toAddress)
		}
		checkRoute(t, o, route)
	})
}

// checkRoute holds a route to the bounds that it promises.
func checkRoute(t *testing.T, o Options, route Route) {
	t.Helper()
	none := len(route.Hosts) == 0
	effort.FatalIf(t, none != (route.NoMail != smtp.ReasonNone) || none != (route.Receiver == "") ||
		len(route.Hosts) > hostsMax, "%+v", route)
	total := 0
	for _, h := range route.Hosts {
		effort.FatalIf(t, !isHostName(h.Name) || h.Name != strings.ToLower(h.Name) || len(h.Addrs) == 0,
			"host %q with %d addresses", h.Name, len(h.Addrs))
		for _, a := range h.Addrs {
			effort.FatalIf(t, !o.Allow(a), "%v may not be dialled and is in the route", a)
		}
		total += len(h.Addrs)
	}
	effort.FatalIf(t, total > routeAddrsMax, "%d addresses", total)
}

// answerBytes is what follows the number of a message with one answer, without its question.
func answerBytes(f *testing.F, record string) []byte {
	f.Helper()
	rr := effort.Must(dns.NewRR(record))(f)
	m := &dns.Msg{Answer: []dns.RR{rr}}
	m.Response, m.RecursionAvailable = true, true
	packet := effort.Must(m.Pack())(f)
	// Flags, then the counts behind that of the questions, then the records.
	return append(append(packet[2:4:4], packet[6:12]...), packet[12:]...)
}

// parrot is a DNS server that answers with bytes that it was given.
type parrot struct {
	addr string

	mu   sync.Mutex // guards all below
	says [2][]byte  // to MX, to anything else
}

func startParrot(f *testing.F) *parrot {
	f.Helper()
	packets, listener := listenBoth(f)
	p := &parrot{addr: packets.LocalAddr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		in := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFrom(in)
			if err != nil {
				return
			}
			if out := p.answer(in[:n]); len(out) <= 1<<15 {
				_, _ = packets.WriteTo(out, from)
			}
		}
	})
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(conn) })
		}
	})
	f.Cleanup(func() {
		_, _ = packets.Close(), listener.Close()
		running.Wait()
	})
	return p
}

// serve answers one question over TCP.
func (p *parrot) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // only against a hanging test
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, question); err != nil {
		return
	}
	out := p.answer(question)
	out = out[:min(len(out), 1<<16-1)]
	_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
}

func (p *parrot) say(toMX, toAddress []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says = [2][]byte{toMX, toAddress}
}

// denies reports whether an answer has the code of a name that does not exist.
func (p *parrot) denies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bytes := range p.says {
		if len(bytes) > 1 && bytes[1]&0xf == dns.RcodeNameError {
			return true
		}
	}
	return false
}

// answer puts the bytes behind the number of the question and the question itself.
func (p *parrot) answer(packet []byte) []byte {
	q := new(dns.Msg)
	if q.Unpack(packet) != nil || len(q.Question) != 1 {
		return nil
	}
	p.mu.Lock()
	bytes := p.says[1]
	if q.Question[0].Qtype == dns.TypeMX {
		bytes = p.says[0]
	}
	p.mu.Unlock()
	head := make([]byte, 8)
	copy(head, bytes)
	head[0] = head[0]&0x07 | 0x80 // an answer to a plain query
	out := binary.BigEndian.AppendUint16(nil, q.Id)
	out = append(out, head[:2]...)
	out = append(out, 0, 1)
	out = append(out, head[2:]...)
	bare := &dns.Msg{Question: q.Question}
	if question, err := bare.Pack(); err == nil {
		out = append(out, question[12:]...)
	}
	return append(out, bytes[min(8, len(bytes)):]...)
}
