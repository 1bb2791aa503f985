package mx

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
)

// zone is a DNS server on loopback, UDP and TCP on one port, that answers from
// records in zone-file form and counts what it is asked.
type zone struct {
	addr string

	mu      sync.Mutex // guards all below
	records map[string][]dns.RR
	rcodes  map[string]int                                // by name, or by "name TYPE"
	special map[string]func(dns.ResponseWriter, *dns.Msg) // by name
	asked   []string                                      // "udp name TYPE", in order
	soa     bool                                          // denials carry a SOA
}

// startZone serves records until the test ends.
func startZone(t testing.TB, records ...string) *zone {
	t.Helper()
	z := &zone{
		records: make(map[string][]dns.RR), rcodes: make(map[string]int),
		special: make(map[string]func(dns.ResponseWriter, *dns.Msg)), soa: true,
	}
	z.add(t, records...)
	packets, listener := listenBoth(t)
	z.addr = packets.LocalAddr().String()
	for _, s := range []*dns.Server{
		{PacketConn: packets, Handler: dns.HandlerFunc(z.serve)},
		{Listener: listener, Handler: dns.HandlerFunc(z.serve)},
	} {
		up, down := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		go func() { defer close(down); _ = s.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { _ = s.Shutdown(); <-down })
	}
	return z
}

// listenBoth finds a port that is free for UDP and for TCP.
func listenBoth(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	var failed error
	for range 20 {
		listener := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		packets, err := net.ListenPacket("udp", listener.Addr().String())
		if err == nil {
			return packets, listener
		}
		failed = err
		_ = listener.Close()
	}
	t.Fatal(failed)
	return nil, nil
}

func (z *zone) add(t testing.TB, records ...string) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, text := range records {
		rr, err := dns.NewRR(text)
		effort.FatalIf(t, err != nil || rr == nil, "record %q: %v", text, err)
		name := dns.CanonicalName(rr.Header().Name)
		z.records[name] = append(z.records[name], rr)
	}
}

func (z *zone) serve(w dns.ResponseWriter, q *dns.Msg) {
	name, qtype := dns.CanonicalName(q.Question[0].Name), q.Question[0].Qtype
	kind := name + " " + dns.TypeToString[qtype]
	z.mu.Lock()
	z.asked = append(z.asked, w.LocalAddr().Network()+" "+kind)
	special := z.special[name]
	z.mu.Unlock()
	if special != nil {
		special(w, q)
		return
	}
	z.answer(w, q)
}

// answer answers from the records.
func (z *zone) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	name, qtype := dns.CanonicalName(q.Question[0].Name), q.Question[0].Qtype
	z.mu.Lock()
	z.fill(m, name, qtype)
	z.mu.Unlock()
	if w.LocalAddr().Network() == "udp" {
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		m.Truncate(size)
	}
	_ = w.WriteMsg(m)
}

func (z *zone) fill(m *dns.Msg, name string, qtype uint16) {
	for range 20 {
		if rcode, found := z.rcodes[name+" "+dns.TypeToString[qtype]]; found {
			m.Rcode = rcode
			return
		}
		if rcode, found := z.rcodes[name]; found {
			m.Rcode = rcode
			return
		}
		next := ""
		for _, rr := range z.records[name] {
			if c, ok := rr.(*dns.CNAME); ok {
				next = dns.CanonicalName(c.Target)
				m.Answer = append(m.Answer, rr)
			} else if rr.Header().Rrtype == qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	denied := len(m.Answer) == 0 || m.Answer[len(m.Answer)-1].Header().Rrtype != qtype
	if denied && !z.exists(name) {
		m.Rcode = dns.RcodeNameError
	}
	if denied && z.soa {
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{Name: "test.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 600},
			Ns:  "ns.test.", Mbox: "mail.test.", Minttl: 300,
		}}
	}
}

// exists reports whether there are records at or below a name.
func (z *zone) exists(name string) bool {
	for n := range z.records {
		if n == name || strings.HasSuffix(n, "."+name) {
			return true
		}
	}
	return false
}

// queries returns what was asked so far, and forgets it.
func (z *zone) queries() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	asked := z.asked
	z.asked = nil
	return asked
}

// on answers questions for a name by a function.
func (z *zone) on(name string, f func(dns.ResponseWriter, *dns.Msg)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.special[name] = f
}

// code answers questions for a name, or a "name TYPE", with an RCODE.
func (z *zone) code(name string, rcode int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.rcodes[name] = rcode
}

// silent never answers.
func silent(dns.ResponseWriter, *dns.Msg) {}

// testOptions ask servers and take documentation addresses for the Internet.
func testOptions(servers ...string) Options {
	o := Options{Servers: servers, Timeout: 600 * time.Millisecond, TTLMin: time.Minute, TTLMax: time.Hour,
		CacheMax: 10_000}
	public := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
		netip.MustParsePrefix("2001:db8::/32"),
	}
	o.Allow = func(a netip.Addr) bool {
		for _, p := range public {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	return o
}

func startResolver(t testing.TB, o Options) *Resolver {
	t.Helper()
	r := effort.Must(New(o))(t)
	t.Cleanup(func() { effort.OK(t, r.Close()) })
	return r
}

// show writes a lookup's result in one line: "receiver: 10 host addr addr, …", "no_mail_service", or "error: kind".
func show(route Route, err error) string {
	var failed *Error
	switch {
	case errors.As(err, &failed):
		return "error: " + failed.Kind.String()
	case err != nil:
		return "error: " + err.Error()
	case route.NoMail != 0:
		return route.NoMail.String()
	}
	var hosts []string
	for _, h := range route.Hosts {
		text := h.Name
		for _, a := range h.Addrs {
			text += " " + a.String()
		}
		hosts = append(hosts, text)
	}
	return route.Receiver + ": " + strings.Join(hosts, ", ")
}

func lookup(t testing.TB, r *Resolver, domain string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return show(r.Lookup(ctx, domain))
}
