package mx

import (
	"hash/maphash"
	"net/netip"
	"testing"
	"time"

	"rollcall/config/effort"
)

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
