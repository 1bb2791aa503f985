package identity

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
)

// zone is a DNS server on loopback, with records that can be changed.
type zone struct {
	t    *testing.T
	addr string

	mu      sync.Mutex
	records map[string][]dns.RR // by name and type
	broken  map[string]bool     // names that are answered with SERVFAIL
	asked   map[string]int      // questions by name
}

func newZone(t *testing.T, records ...string) *zone {
	t.Helper()
	z := &zone{t: t, records: map[string][]dns.RR{}, broken: map[string]bool{}, asked: map[string]int{}}
	z.add(records...)
	packets, streams := listenBoth(t)
	z.addr = packets.LocalAddr().String()
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: z}, {Listener: streams, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return z
}

// listenBoth takes one port for UDP and TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var err error
	for range 20 { // another test may have the port for the other one
		var streams net.Listener
		if streams, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", streams.Addr().String()); err == nil {
			return packets, streams
		}
		_ = streams.Close()
	}
	t.Fatal(err)
	return nil, nil
}

// client asks this zone.
func (z *zone) client() *Client {
	return effort.Must(NewClient([]string{z.addr}, 5*time.Second))(z.t)
}

func (z *zone) add(records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, text := range records {
		rr, err := dns.NewRR(text)
		effort.OK(z.t, err, text)
		k := key(rr.Header().Name, rr.Header().Rrtype)
		z.records[k] = append(z.records[k], rr)
	}
}

// breakName makes the zone fail for a name, or answer again.
func (z *zone) breakName(name string, broken bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.broken[dns.Fqdn(name)] = broken
}

func (z *zone) questions(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[dns.Fqdn(name)]
}

func key(name string, qtype uint16) string { return dns.CanonicalName(name) + dns.TypeToString[qtype] }

// ServeDNS implements dns.Handler. TXT answers over UDP are cut when they are long.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	answer := new(dns.Msg)
	answer.SetReply(q)
	answer.RecursionAvailable = true
	name := q.Question[0].Name
	z.asked[name]++
	answer.Answer = z.records[key(name, q.Question[0].Qtype)]
	switch {
	case z.broken[name]:
		answer.Rcode, answer.Answer = dns.RcodeServerFailure, nil
	case len(answer.Answer) == 0:
		answer.Rcode = dns.RcodeNameError
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		answer.Truncate(512)
	}
	_ = w.WriteMsg(answer)
}

// away is a Resolver that never knows.
type away struct{}

func (away) Ask(context.Context, string, uint16) ([]dns.RR, error) { return nil, errDNS }

// source is the address that the tests speak from.
func source() Source {
	return Source{Addr: netip.MustParseAddr("192.0.2.10"), Hello: "probe.example", ReturnPath: "bounce@example.org"}
}

// sound are the records of a node whose identity is as it should be.
var sound = []string{
	"10.2.0.192.in-addr.arpa. PTR probe.example.",
	"probe.example. A 192.0.2.10",
	"example.org. MX 10 mx.example.org.",
	"mx.example.org. A 192.0.2.25",
	`example.org. TXT "v=spf1 ip4:192.0.2.0/28 -all"`,
}
