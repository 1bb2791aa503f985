package mx

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/miekg/dns"
)

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
			if err != nil {
				t.Fatal(err)
			}
			if len(route.Hosts) > 0 {
				got = route.Hosts[0].Name + " " + route.Hosts[0].Addrs[0].String()
			}
			if got != want {
				t.Errorf("IPv6 %v: %s gives %s, want %s", ipv6, domain, got, want)
			}
		}
	}
}

// TestPublicEmptyNonTerminal is the public sample P009.
func TestPublicEmptyNonTerminal(t *testing.T) {
	z := startZone(t, "mail.ent.test. 60 MX 10 mx.mail.ent.test.", "mx.mail.ent.test. 60 A 192.0.2.1")
	z.code("ent.test.", dns.RcodeNameError)
	r := startResolver(t, testOptions(z.addr))
	for _, tc := range [][2]string{{"ent.test", "domain_not_found"}, {"mail.ent.test", "ent.test: mx.mail.ent.test 192.0.2.1"}} {
		if got := lookup(t, r, tc[0]); got != tc[1] {
			t.Errorf("P009: %s gives %s, want %s", tc[0], got, tc[1])
		}
	}
}
