package smtplab

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// ttlSeconds is the TTL of every record: long enough that one run asks a domain once.
const ttlSeconds = 300

// negativeTTLSeconds is the SOA minimum, the TTL of "no such name" (RFC 2308 §5).
const negativeTTLSeconds = 60

// aliasesMax bounds the CNAMEs that the server follows within one answer, like a resolver.
const aliasesMax = 8

// Addresses in networks that no public receiver can have (RFC 1918 §3; loopback inside RFC 6052 §2.1): nobody may
// dial them.
var (
	insideV4 = netip.MustParseAddr("10.66.66.66")
	insideV6 = netip.MustParseAddr("64:ff9b::7f00:1")
)

type answer struct {
	rcode   int
	records []dns.RR
	silent  bool   // do not answer
	onlyTCP bool   // answer over TCP only
	zone    string // whose SOA is in a negative answer
}

func (l *Lab) serveDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	if len(q.Question) != 1 || q.Opcode != dns.OpcodeQuery || q.Question[0].Qclass != dns.ClassINET {
		_ = w.WriteMsg(m.SetRcode(q, dns.RcodeNotImplemented))
		return
	}
	question := q.Question[0]
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	name := strings.ToLower(strings.TrimSuffix(question.Name, "."))
	a := l.answer(name, question.Qtype)
	l.manners.query(a.zone, question.Qtype, udp)
	if a.silent {
		return
	}
	m.SetRcode(q, a.rcode)
	m.RecursionAvailable = true
	size := dns.MinMsgSize
	if opt := q.IsEdns0(); opt != nil {
		size = max(size, int(opt.UDPSize()))
		m.SetEdns0(dns.DefaultMsgSize, false)
	}
	if udp && a.onlyTCP {
		m.Truncated = true
		_ = w.WriteMsg(m)
		return
	}
	m.Answer = a.records
	if len(a.records) == 0 && (a.rcode == dns.RcodeSuccess || a.rcode == dns.RcodeNameError) {
		m.Ns = []dns.RR{soa(a.zone)}
	}
	if udp {
		m.Truncate(size)
	}
	_ = w.WriteMsg(m)
}

// answer looks up name and follows aliases.
func (l *Lab) answer(name string, qtype uint16) answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	var whole answer
	seen := make(map[string]bool)
	for range aliasesMax {
		seen[name] = true
		step := l.lookup(name, qtype)
		if whole.zone == "" {
			whole.zone = step.zone
		}
		whole.rcode, whole.silent, whole.onlyTCP = step.rcode, step.silent, step.onlyTCP
		whole.records = append(whole.records, step.records...)
		if len(step.records) == 0 || qtype == dns.TypeCNAME {
			break
		}
		alias, ok := step.records[0].(*dns.CNAME)
		if !ok {
			break
		}
		name = strings.ToLower(strings.TrimSuffix(alias.Target, "."))
		if seen[name] {
			break
		}
	}
	return whole
}

// lookup answers for name without following aliases. The caller holds l.mu.
func (l *Lab) lookup(name string, qtype uint16) answer {
	zone, p, a := l.owner(name)
	if zone == "" {
		return answer{rcode: dns.RcodeRefused, zone: name}
	}
	if p == nil {
		return answer{rcode: dns.RcodeNameError, zone: zone}
	}
	if a != nil {
		if all, ok := a.records[name+"."]; ok {
			return answer{records: ofType(all, qtype), zone: zone}
		}
	}
	found := answer{zone: zone, onlyTCP: p.DNS == OnlyTCP}
	switch p.DNS {
	case NoDomain:
		found.rcode = dns.RcodeNameError
	case ServerFails:
		found.rcode = dns.RcodeServerFailure
	case Refuses:
		found.rcode = dns.RcodeRefused
	case Silent:
		found.silent = true
	case NoData:
	default:
		label, rest, _ := strings.Cut(name, ".")
		switch {
		case rest == p.hostZone(zone) && hostLabel(p.DNS, label):
			l.hostRecords(&found, p, name, qtype)
		case beneath(name, zone):
			l.mailRecords(&found, p, name, qtype)
		default: // under a provider's name, but not a host
			found.rcode = dns.RcodeNameError
		}
	}
	return found
}

// ofType returns the records of type qtype, or else an alias.
func ofType(all []dns.RR, qtype uint16) []dns.RR {
	return slices.DeleteFunc(slices.Clone(all), func(rr dns.RR) bool {
		return rr.Header().Rrtype != qtype && rr.Header().Rrtype != dns.TypeCNAME
	})
}

func header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name + ".", Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttlSeconds}
}

func mx(name string, preference uint16, host string) dns.RR {
	return &dns.MX{Hdr: header(name, dns.TypeMX), Preference: preference, Mx: host + "."}
}

func alias(name, target string) dns.RR {
	return &dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: target + "."}
}

func soa(zone string) dns.RR {
	hdr := header(zone, dns.TypeSOA)
	hdr.Ttl = negativeTTLSeconds
	return &dns.SOA{
		Hdr: hdr, Ns: "ns." + TopLevel + ".", Mbox: "hostmaster." + TopLevel + ".",
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: negativeTTLSeconds,
	}
}

// Numbers of the shapes with many records.
const (
	manyMX        = 110
	manyAddresses = 1000
)

// literalMX is an IP address used as an MX name. It is a documentation address (RFC 5737 §3), so nobody is reached
// by dialling it.
const literalMX = "192.0.2.25"

// hostChains and domainChains are the lengths of the CNAME chains.
var (
	hostChains   = map[Shape]int{HostChain10: 10, HostChain11: 11}
	domainChains = map[Shape]int{DomainChain16: 16, DomainChain17: 17}
)

// hostZone returns the name under which a zone has its hosts: the zone itself, or its label under Personality.MXSuffix.
func (p *persona) hostZone(zone string) string {
	if p.MXSuffix == "" {
		return zone
	}
	return hostBase(zone) + "." + p.MXSuffix
}

// hostBase makes one label from a zone: acme-google from acme-google.test, firm-example from firm.example.
func hostBase(zone string) string {
	return strings.ReplaceAll(strings.TrimSuffix(zone, "."+TopLevel), ".", "-")
}

// numbered returns n for a label such as "mx17"; 0 for another form.
func numbered(label, prefix string) int {
	digits, ok := strings.CutPrefix(label, prefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || prefix+strconv.Itoa(n) != label {
		return 0
	}
	return n
}

// hostLabel reports whether label is a host's label in a domain of that shape.
func hostLabel(s Shape, label string) bool {
	switch label {
	case "mx1":
		return true
	case "mx2":
		return s == TwoMX || s == FirstDown || s == ManyMX
	case "mail":
		return s == HostAlias
	}
	if s == ManyMX {
		n := numbered(label, "mx")
		return n > 0 && n <= manyMX
	}
	n := numbered(label, "c")
	return n > 0 && n <= hostChains[s]
}

func (l *Lab) hostRecords(a *answer, p *persona, name string, qtype uint16) {
	label, zone, _ := strings.Cut(name, ".")
	if n := numbered(label, "c"); n > 0 {
		next := "c" + strconv.Itoa(n+1)
		if n == hostChains[p.DNS] {
			next = "mx1"
		}
		a.records = []dns.RR{alias(name, next+"."+zone)}
		return
	}
	switch {
	case label == "mail":
		a.records = []dns.RR{alias(name, "mx1."+zone)}
	case p.DNS == LostMX:
		a.rcode = dns.RcodeNameError
	case p.DNS == InsideMX && qtype == dns.TypeA:
		a.records = []dns.RR{addressRR(name, insideV4)}
	case (p.DNS == InsideMX || p.DNS == AlsoInside) && qtype == dns.TypeAAAA:
		a.records = []dns.RR{addressRR(name, insideV6)}
	case p.DNS == OnlyIPv6 && qtype == dns.TypeAAAA:
		l.addressRecord(a, p, name, false)
	case p.DNS == OnlyIPv6, p.DNS == InsideMX:
	case qtype == dns.TypeA:
		down := p.DNS == AllDown || p.DNS == FirstDown && label == "mx1"
		l.addressRecord(a, p, name, down)
		l.moreAddresses(a, p, name)
	}
}

// moreAddresses adds addresses where nothing listens.
func (l *Lab) moreAddresses(a *answer, p *persona, name string) {
	if len(a.records) == 0 {
		return
	}
	switch p.DNS {
	case ManyAddresses:
		for _, addr := range l.deadAddresses() {
			a.records = append(a.records, addressRR(name, addr))
		}
	case FirstAddressDown:
		a.records = append([]dns.RR{addressRR(name, l.deadAddresses()[0])}, a.records...)
	}
}

// deadAddresses returns addresses of the network that no host ever gets, the same for all domains: 999 or a quarter
// of the network. The caller holds l.mu.
func (l *Lab) deadAddresses() []netip.Addr {
	want := min(manyAddresses-1, 1<<(32-l.network.Bits())/4)
	for n := 0; len(l.dead) < want; n++ {
		l.dead = append(l.dead, l.addressOf("dead"+strconv.Itoa(n)))
	}
	return l.dead
}

// addressRecord answers with the address of a host, and starts its listener unless it is down.
func (l *Lab) addressRecord(a *answer, p *persona, name string, down bool) {
	h, err := l.openHost(name, l.receiverOf(a.zone, p), down)
	if err != nil {
		l.options.Log.Warn("lab host cannot listen", "host", name, "err", err)
		a.rcode = dns.RcodeServerFailure
		return
	}
	a.records = []dns.RR{addressRR(name, h.addr)}
}

// mailRecords answers for a mail domain: the zone itself or a tenant beneath it.
func (l *Lab) mailRecords(a *answer, p *persona, name string, qtype uint16) {
	hosts := p.hostZone(a.zone)
	if next := l.aliasOf(a.zone, p, name); next != "" {
		a.records = []dns.RR{alias(name, next)}
		return
	}
	switch {
	case p.DNS == ImplicitMX && qtype == dns.TypeA:
		l.addressRecord(a, p, name, false)
	case p.DNS == ImplicitMX || qtype != dns.TypeMX:
	case p.DNS == NullMX:
		a.records = []dns.RR{mx(name, 0, "")}
	case p.DNS == NullMXMore:
		a.records = []dns.RR{mx(name, 0, ""), mx(name, 10, "mx1."+hosts)}
	case p.DNS == LiteralMX:
		a.records = []dns.RR{mx(name, 10, literalMX)}
	case p.DNS == LiteralMXMore:
		a.records = []dns.RR{mx(name, 10, literalMX), mx(name, 20, "mx1."+hosts)}
	case p.DNS == HostAlias:
		a.records = []dns.RR{mx(name, 10, "mail."+hosts)}
	case hostChains[p.DNS] > 0:
		a.records = []dns.RR{mx(name, 10, "c1."+hosts)}
	case p.DNS == OnlyIPv6:
		a.records = []dns.RR{mx(name, 10, "mx1."+p.Name+"."+TopLevel)}
	case p.DNS == TwoMX || p.DNS == FirstDown:
		// The better host comes second, because clients must sort (RFC 5321 §5.1).
		a.records = []dns.RR{mx(name, 20, "mx2."+hosts), mx(name, 10, "mx1."+hosts)}
	case p.DNS == ManyMX:
		for n := manyMX; n > 0; n-- {
			a.records = append(a.records, mx(name, uint16(10*n), "mx"+strconv.Itoa(n)+"."+hosts))
		}
	default:
		a.records = []dns.RR{mx(name, 10, "mx1."+hosts)}
	}
}

// aliasOf returns the target of a mail domain's CNAME; "" for none.
func (l *Lab) aliasOf(zone string, p *persona, name string) string {
	label, _, _ := strings.Cut(name, ".")
	last := domainChains[p.DNS] - 1 // the domain itself is the first one
	switch {
	case p.DNS == DomainAlias && name != "real."+zone:
		return "real." + zone
	case p.DNS == AliasLoop && name != "loop."+zone:
		return "loop." + zone
	case p.DNS == AliasLoop:
		return zone
	case last < 0 || name == "real."+zone:
		return ""
	}
	n := numbered(label, "d")
	switch {
	case n == 0:
		return "d1." + zone
	case n < last:
		return "d" + strconv.Itoa(n+1) + "." + zone
	}
	return "real." + zone
}

func addressRR(name string, addr netip.Addr) dns.RR {
	if addr.Is4() {
		return &dns.A{Hdr: header(name, dns.TypeA), A: addr.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: addr.AsSlice()}
}
