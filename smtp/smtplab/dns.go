package smtplab

import (
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// ttlSeconds is the life of every record: long enough that one run asks a domain once.
const ttlSeconds = 300

// negativeTTLSeconds is the SOA minimum, the life of "no such name" (RFC 2308 §5).
const negativeTTLSeconds = 60

// aliasesMax is how many CNAMEs the server follows within one answer, like a
// resolver; a client that wants to know more asks again.
const aliasesMax = 8

// Addresses inside networks that no public receiver can have (RFC 1918 §3, RFC
// 6052 §2.1 with loopback in it): nobody may dial them.
var (
	insideV4 = netip.MustParseAddr("10.66.66.66")
	insideV6 = netip.MustParseAddr("64:ff9b::7f00:1")
)

// answer is what DNS says to one question.
type answer struct {
	rcode   int
	records []dns.RR
	silent  bool   // say nothing
	onlyTCP bool   // say it over TCP only
	zone    string // whose SOA stands in a negative answer
}

// serveDNS answers one question.
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

// answer looks name up and follows aliases.
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

// lookup answers for name alone. The caller holds l.mu.
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
		default: // beneath the name of a provider, but no host
			found.rcode = dns.RcodeNameError
		}
	}
	return found
}

// ofType picks the records that answer qtype: its own, or else an alias.
func ofType(all []dns.RR, qtype uint16) []dns.RR {
	var own []dns.RR
	for _, rr := range all {
		if t := rr.Header().Rrtype; t == qtype || t == dns.TypeCNAME {
			own = append(own, rr)
		}
	}
	return own
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
