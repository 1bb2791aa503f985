package egress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

func TestStranger(t *testing.T) {
	for _, tc := range []struct{ host, greeting, hello, want string }{
		{"mx.example.com", "proxy.isp.example ESMTP ready", "", "proxy.isp.example"},
		{"mx.example.com", "Proxy.ISP.Example. ESMTP", "", "proxy.isp.example"},
		{"mx.example.com", "ESMTP", "gw.isp.example Hello", "gw.isp.example"},
		{"mx.example.com", "[gw.isp.example] ESMTP", "", "gw.isp.example"},
		{"mx.example.com", "node7.example.com ESMTP", "gw.isp.example", ""},
		{"aspmx.l.google.com", "mx.google.com ESMTP x", "", ""},
		{"a.co.uk", "b.co.uk ESMTP", "", "b.co.uk"},
		{"mx.example.com", "ESMTP", "", ""},
		{"mx.example.com", "", "", ""},
		{"mx.example.com", "****************", "ok", ""},
		{"mx.example.com", "http://x.example/", "", ""},
	} {
		if got := Stranger(tc.host, tc.greeting, tc.hello); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// TestAnInterceptedNetwork draws hosts with one stranger's greeting: three unrelated domains at three addresses
// show that the network is intercepted, once, unless anybody was ever refused there.
func TestAnInterceptedNetwork(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := &Pool{}
		now, found := time.Now(), 0
		domains, addresses := map[string]bool{}, map[netip.Addr]bool{}
		tellsApart := r.IntN(3) == 0 // a proxy that hands on what the real hosts say, or one machine of a host
		refused := false
		places := 1 + r.IntN(6)
		at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }
		shared := r.IntN(4) == 0 // customers of one host, who have names of their own
		for range 60 {
			i := r.IntN(places)
			addr := at(i)
			if shared {
				addr = at(0)
			}
			accepted := !tellsApart || r.IntN(2) == 0
			refused = refused || !accepted
			if p.NoteStranger("gw.isp.example", fmt.Sprintf("mx%d.d%d.example", r.IntN(3), i), addr, accepted, now) {
				found++
			}
			domains[fmt.Sprint(i)], addresses[addr] = true, true
		}
		want := !refused && len(domains) >= interceptedAt && len(addresses) >= interceptedAt
		if got := p.Intercepts("gw.isp.example", now); got != want || want && found != 1 || p.Intercepts("", now) || p.Intercepts("x.example", now) {
			t.Errorf("seed %d: %v and told %d times; want %v", seed, got, found, want)
		}
		if p.Intercepts("gw.isp.example", now.Add(interceptedFor)) {
			t.Errorf("seed %d: it is believed for ever", seed)
		}
	}
	p := &Pool{}
	for i := range 2 * greetingsMax {
		p.NoteStranger(fmt.Sprintf("s%d.example", i), "mx.d.example", netip.Addr{}, true, time.Now())
	}
	if n := len(p.greetings.by); n > greetingsMax {
		t.Errorf("%d strangers are kept", n)
	}
}
