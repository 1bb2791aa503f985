package smtplab

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// What the shapes of many records have.
const (
	manyMX        = 110
	manyAddresses = 1000
)

// literalMX is an address as the name of an MX: of the block for documents (RFC
// 5737 §3), so that whoever dials it reaches nobody.
const literalMX = "192.0.2.25"

// chained are the shapes with a chain of CNAMEs, by its length.
var (
	hostChains   = map[Shape]int{HostChain10: 10, HostChain11: 11}
	domainChains = map[Shape]int{DomainChain16: 16, DomainChain17: 17}
)

// hostZone is the name beneath which a zone has its hosts: itself, or with
// Personality.MXSuffix its label beneath that.
func (p *persona) hostZone(zone string) string {
	if p.MXSuffix == "" {
		return zone
	}
	return hostBase(zone) + "." + p.MXSuffix
}

// hostBase makes one label of a zone: acme-google of acme-google.test, and
// firm-example of firm.example.
func hostBase(zone string) string {
	return strings.ReplaceAll(strings.TrimSuffix(zone, "."+TopLevel), ".", "-")
}

// numbered gives n of a label such as "mx17"; 0 when it has another form.
func numbered(label, prefix string) int {
	digits, ok := strings.CutPrefix(label, prefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || prefix+strconv.Itoa(n) != label {
		return 0
	}
	return n
}

// hostLabel reports whether label names a host of a domain with that shape.
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

// hostRecords answers for a host of a zone.
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
		a.records = []dns.RR{addressOf4(name, insideV4)}
	case (p.DNS == InsideMX || p.DNS == AlsoInside) && qtype == dns.TypeAAAA:
		a.records = []dns.RR{addressOf6(name, insideV6)}
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
			a.records = append(a.records, addressOf4(name, addr))
		}
	case FirstAddressDown:
		a.records = append([]dns.RR{addressOf4(name, l.deadAddresses()[0])}, a.records...)
	}
}

// deadAddresses are addresses of the network that no host ever gets: the same for
// all domains, 999 or a quarter of the network. The caller holds l.mu.
func (l *Lab) deadAddresses() []netip.Addr {
	want := min(manyAddresses-1, 1<<(32-l.network.Bits())/4)
	for n := 0; len(l.dead) < want; n++ {
		l.dead = append(l.dead, l.addressOf("dead"+strconv.Itoa(n)))
	}
	return l.dead
}

// addressRecord answers with the address of a host, which listens from here on
// unless it is down.
func (l *Lab) addressRecord(a *answer, p *persona, name string, down bool) {
	h, err := l.openHost(name, l.receiverOf(a.zone, p), down)
	if err != nil {
		l.options.Log.Warn("lab host cannot listen", "host", name, "err", err)
		a.rcode = dns.RcodeServerFailure
		return
	}
	if h.addr.Is4() {
		a.records = []dns.RR{addressOf4(name, h.addr)}
	} else {
		a.records = []dns.RR{addressOf6(name, h.addr)}
	}
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
		// The better host comes second: RFC 5321 §5.1 asks for sorting.
		a.records = []dns.RR{mx(name, 20, "mx2."+hosts), mx(name, 10, "mx1."+hosts)}
	case p.DNS == ManyMX:
		for n := manyMX; n > 0; n-- {
			a.records = append(a.records, mx(name, uint16(10*n), "mx"+strconv.Itoa(n)+"."+hosts))
		}
	default:
		a.records = []dns.RR{mx(name, 10, "mx1."+hosts)}
	}
}

// aliasOf gives the target of the CNAME at a mail domain; "" when it has none.
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

func addressOf4(name string, addr netip.Addr) dns.RR {
	return &dns.A{Hdr: header(name, dns.TypeA), A: addr.AsSlice()}
}

func addressOf6(name string, addr netip.Addr) dns.RR {
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: addr.AsSlice()}
}
