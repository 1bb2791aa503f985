package domain

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/mx"
)

// nameServer answers on loopback from records and codes, until the test ends.
func nameServer(t *testing.T, codes map[string]int, records ...string) string {
	t.Helper()
	zone := map[string][]dns.RR{}
	names := map[string]bool{}
	for _, r := range records {
		rr := effort.Must(dns.NewRR(r))(t)
		key := rr.Header().Name + " " + dns.TypeToString[rr.Header().Rrtype]
		zone[key], names[rr.Header().Name] = append(zone[key], rr), true
	}
	packets := effort.Must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	s := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		name := strings.ToLower(q.Question[0].Name)
		alias := zone[name+" CNAME"]
		for range 20 {
			if len(alias) == 0 {
				break
			}
			m.Answer = append(m.Answer, alias...)
			name = alias[0].(*dns.CNAME).Target
			alias = zone[name+" CNAME"]
		}
		m.Answer = append(m.Answer, zone[name+" "+dns.TypeToString[q.Question[0].Qtype]]...)
		switch code, set := codes[name]; {
		case set:
			m.Rcode, m.Answer = code, nil
		case !names[name]:
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	up := make(chan struct{})
	s.NotifyStartedFunc = func() { close(up) }
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	<-up
	t.Cleanup(func() {
		effort.OK(t, s.Shutdown())
		<-ended
	})
	return packets.LocalAddr().String()
}

// TestWhatDNSMeansForAnAddress: each state of a domain, from the packets of its name server to the outcome of an
// address. What is closed by DNS was offered to nobody; what DNS does not say is asked again and in the end unknown.
func TestWhatDNSMeansForAnAddress(t *testing.T) {
	server := nameServer(t, map[string]int{"servfail.test.": dns.RcodeServerFailure,
		"refused.test.": dns.RcodeRefused},
		"host.test. A 192.0.2.1", "implicit.test. A 192.0.2.2", "nodata.test. TXT x",
		"null.test. MX 0 .", "nullmixed.test. MX 0 .", "nullmixed.test. MX 10 host.test.",
		"alias.test. CNAME clean.test.", "clean.test. MX 1 host.test.",
		"loop.test. CNAME loop2.test.", "loop2.test. CNAME loop.test.",
		"mxalias.test. MX 1 hostalias.test.", "hostalias.test. CNAME host.test.",
		"literal.test. MX 1 192.0.2.9.", "inside.test. MX 1 lan.test.", "lan.test. A 10.0.0.1",
		"own.test. MX 1 localhost.test.", "localhost.test. A 127.0.0.1")
	o := mx.Options{Servers: []string{server}, Timeout: 5 * time.Second, TTLMin: time.Minute, TTLMax: time.Hour,
		CacheMax: 1000}
	o.Allow = smtp.NewDialGuard([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}).Allows
	r := effort.Must(mx.New(o))(t)
	t.Cleanup(func() {
		effort.OK(t, r.Close())
	})
	for _, c := range []struct {
		name, domain string
		offered      bool
		reason       smtp.Reason // of invalid; none: it is asked again
	}{
		{"no such name", "missing.test", false, smtp.DomainNotFound},
		{"implicit MX", "implicit.test", true, 0},
		{"nothing to send to", "nodata.test", false, smtp.NoMailService},
		{"null MX", "null.test", false, smtp.NoMailService},
		{"null MX beside another", "nullmixed.test", true, 0},
		{"server failure", "servfail.test", false, 0},
		{"refused", "refused.test", false, 0},
		{"CNAME", "alias.test", true, 0},
		{"CNAME loop", "loop.test", false, 0},
		{"MX to CNAME", "mxalias.test", true, 0},
		{"MX is an IP address", "literal.test", false, smtp.NoMailService},
		{"private address", "inside.test", false, smtp.NoMailService},
		{"loopback", "own.test", false, smtp.NoMailService},
	} {
		t.Run(c.name, func(t *testing.T) {
			within, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			b := newBench(t, testOptions(), 1)
			route, err := r.Lookup(within, c.domain)
			route.Expires = testRoute.Expires // of the bench's day
			b.takeRoute(b.now, route, err)
			b.look()
			if got := len(b.receivers(true)) > 0; got != c.offered {
				t.Fatalf("a receiver is looked for: %v, want %v (%v, %v)", got, c.offered, route, err)
			}
			switch {
			case c.offered:
				hosts := b.offered().GetHosts()
				effort.ErrorIf(t, len(hosts) != 1, "offered with %d hosts, want 1", len(hosts))
			case c.reason != smtp.ReasonNone:
				b.is(0, smtp.Invalid, c.reason)
				got := b.done[0].Case
				effort.ErrorIf(t, got.NoRoute != c.reason || len(got.Attempts) > 0, "the case is %+v", got)
			default:
				for len(b.done) == 0 { // the name server never says more
					b.pass(b.wakes.Sub(b.now))
					b.takeRoute(b.now, route, err)
					b.look()
				}
				b.is(0, smtp.Unknown, smtp.DNSFailed)
				got := b.done[0].Case
				effort.ErrorIf(t, got.NoRoute != smtp.DNSFailed || !got.GaveUp, "the case is %+v", got)
			}
		})
	}
}
