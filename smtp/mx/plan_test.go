package mx

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/smtp"
)

func testAddrs(n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	}
	return addrs
}

// TestOrderInsideAPreference: the same in one resolver, spread over resolvers,
// and the receiver is the same in all.
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
			if a.Hosts[i].Name != b.Hosts[i].Name {
				t.Fatalf("order of two domains differs: %v, %v", a.Hosts, b.Hosts)
			}
		}
		if a.Receiver != "one.test" || a.Hosts[3].Name != "z.test" {
			t.Fatalf("receiver %s, last host %s", a.Receiver, a.Hosts[3].Name)
		}
		first[a.Hosts[0].Name]++
	}
	if len(first) != 3 {
		t.Errorf("first hosts of 200 resolvers: %v, want all three of the best preference", first)
	}
}

// FuzzAnswerToRoute: whatever a server sends, there is an answer within bounds,
// and only allowed names and addresses get into a route.
func FuzzAnswerToRoute(f *testing.F) {
	for _, records := range [][]string{
		{"d.test. MX 1 mx.d.test.", "d.test. MX 2 .", "d.test. MX 0 192.0.2.1."},
		{"d.test. CNAME e.test.", "e.test. CNAME d.test."},
		{"d.test. CNAME e.test.", "e.test. A 192.0.2.1", "e.test. AAAA ::ffff:10.0.0.1"},
		{"d.test. SOA a. b. 1 2 3 4 5"},
	} {
		m := new(dns.Msg).SetQuestion("d.test.", dns.TypeMX)
		for _, text := range records {
			rr, err := dns.NewRR(text)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer, m.Ns = append(m.Answer, rr), append(m.Ns, rr)
		}
		packet, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet)
	}
	seed := maphash.MakeSeed()
	f.Fuzz(func(t *testing.T, packet []byte) {
		m := new(dns.Msg)
		if m.Unpack(packet) != nil {
			return
		}
		for _, qtype := range []uint16{dns.TypeMX, dns.TypeA, dns.TypeAAAA} {
			a, err := readAnswer(m, "d.test.", qtype, domainChainMax)
			if err != nil {
				continue
			}
			if a.hops > domainChainMax || len(a.mx) > mxMax {
				t.Fatalf("%d hops, %d MX", a.hops, len(a.mx))
			}
			if qtype == dns.TypeMX && len(a.addrs) > 0 || qtype != dns.TypeMX && len(a.mx) > 0 {
				t.Fatal("records of another type than was asked for")
			}
			checkPlan(t, a, seed)
		}
	})
}

func checkPlan(t *testing.T, a answer, seed maphash.Seed) {
	hosts, null := pickHosts(a.mx)
	if null && len(hosts) > 0 || len(hosts) > len(a.mx) {
		t.Fatalf("null %v with %d hosts", null, len(hosts))
	}
	hosts = hosts[:min(len(hosts), hostsMax)]
	answers := make([]hostAnswer, len(hosts))
	for i := range answers {
		answers[i].addrs = testAddrs(i % (hostAddrsMax + 1))
	}
	route, err := planRoute("d.test", hosts, answers, seed)
	if err != nil {
		t.Fatalf("error without a failure: %v", err)
	}
	none := len(route.Hosts) == 0
	if none != (route.NoMail == smtp.NoMailService) || none != (route.Receiver == "") {
		t.Fatalf("%+v", route)
	}
	total := 0
	for _, h := range route.Hosts {
		total += len(h.Addrs)
		if !isHostName(h.Name) || h.Name != strings.ToLower(h.Name) || len(h.Addrs) == 0 {
			t.Fatalf("host %q with %d addresses", h.Name, len(h.Addrs))
		}
	}
	if total > routeAddrsMax {
		t.Fatalf("%d addresses", total)
	}
	byPreference := func(a, b Host) int { return int(a.Preference) - int(b.Preference) }
	if !slices.IsSortedFunc(route.Hosts, byPreference) {
		t.Fatalf("not by preference: %+v", route.Hosts)
	}
}
