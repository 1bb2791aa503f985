package egress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"rollcall/config/effort"
)

func TestGreeter(t *testing.T) {
	for _, tc := range []struct{ host, greeting, hello, want string }{
		{"mx.example.com", "proxy.isp.example ESMTP ready", "", "isp.example"},
		{"mx.example.com", "Proxy.ISP.Example. ESMTP", "", "isp.example"},
		{"mx.example.com", "ESMTP", "gw.isp.example Hello", "isp.example"},
		{"mx.example.com", "[gw.isp.example] ESMTP", "", "isp.example"},
		{"mx.example.com", "node7.example.com ESMTP", "gw.isp.example", ""},
		{"aspmx.l.google.com", "mx.google.com ESMTP x", "", ""},
		{"a.co.uk", "b.co.uk ESMTP", "", "b.co.uk"},
		{"mx.example.com", "ESMTP 17:04", "ok", unnamed + "ESMTP : ok"},
		{"mx.example.com", "", "", unnamed + " "},
		{"mx.example.com", "****************", "ok", unnamed + "**************** ok"},
		{"mx.example.com", "http://x.example/", "", unnamed + "http://x.example/ "},
	} {
		effort.Is(t, Greeter(tc.host, tc.greeting, tc.hello), tc.want, fmt.Sprintf("%+v", tc))
	}
}

// TestAnInterceptedNetwork draws hosts with one greeter, who has a name or none: enough unrelated domains at as many
// addresses, where it accepts mailboxes that nobody has, show that the network is intercepted, once, unless anybody
// was ever refused there.
func TestAnInterceptedNetwork(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := &Pool{greetings: newGreetings()}
		greeter := []string{"isp.example", unnamed + "ESMTP ok"}[seed%2]
		now, found := time.Now(), 0
		domains, addresses := map[string]bool{}, map[netip.Addr]bool{}
		tellsApart := r.IntN(3) == 0 // a proxy that hands on what the real hosts say, or one machine of a host
		refused := false
		places := 1 + r.IntN(8)
		at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }
		shared := r.IntN(4) == 0 // customers of one host, who have names of their own
		for range 60 {
			i := r.IntN(places)
			host, addr := fmt.Sprintf("mx%d.d%d.example", r.IntN(3), i), at(i)
			if shared {
				addr = at(0)
			}
			if tellsApart && r.IntN(2) == 0 {
				refused = true
				p.NoteRefused(greeter, host, now)
			} else if p.NoteAccepted(greeter, host, addr, now) {
				found++
			}
			domains[fmt.Sprint(i)], addresses[addr] = true, true
		}
		want := !refused && len(domains) >= enough(greeter) && len(addresses) >= enough(greeter)
		got := p.Intercepts(greeter, now)
		effort.ErrorIf(t, got != want || want && found != 1 || p.Intercepts("", now) || p.Intercepts("x.example", now),
			"seed %d: %v and told %d times; want %v", seed, got, found, want)
		effort.ErrorIf(t, p.Intercepts(greeter, now.Add(interceptedFor)), "seed %d: it is believed for ever", seed)
	}
	p := &Pool{greetings: newGreetings()}
	for i := range 2 * greetingsMax {
		p.NoteAccepted(fmt.Sprintf("s%d.example", i), "mx.d.example", netip.Addr{}, time.Now())
		p.NoteRefused(fmt.Sprintf("s%d.example", i), fmt.Sprintf("mx.d%d.example", i), time.Now())
	}
	n, m := p.greetings.by.Len(), p.greetings.apart.Len()
	effort.ErrorIf(t, n > greetingsMax || m > greetingsMax, "%d greeters and %d hosts are kept", n, m)
}

// TestAnotherGreeterIsDoubted: what is accepted at a host where somebody else told mailboxes apart is no answer,
// until this one has refused somebody too, here or elsewhere.
func TestAnotherGreeterIsDoubted(t *testing.T) {
	names := []string{"", "isp.example", "hoster.example", unnamed + "ESMTP"}
	for _, before := range names {
		for _, later := range names {
			p, now := &Pool{greetings: newGreetings()}, time.Now()
			effort.ErrorIf(t, p.Doubts(later, "mx.d.example", now),
				"%q is doubted at a host that was never heard", later)
			p.NoteRefused(before, "mx.d.example", now)
			want := later != "" && later != before
			effort.Is(t, p.Doubts(later, "mx.d.example", now), want, fmt.Sprintf("%q after %q: doubted", later, before))
			if p.NoteRefused(later, "mx.other.example", now); p.Doubts(later, "mx.d.example", now) {
				t.Errorf("%q after %q is doubted although it tells mailboxes apart", later, before)
			}
			effort.Is(t, p.Doubts(later, "mx.d.example", now.Add(interceptedFor)), want, later, "after", before,
				"much later: doubted")
		}
	}
}
