package mx

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// The longest chains of CNAMEs that are followed. Chains are against the rules
// for MX hosts (RFC 2181 §10.3) but seen in the wild; mox bounds both so.
const (
	domainChainMax = 16
	hostChainMax   = 10
)

// errChain is the cause of a Loop.
var errChain = errors.New("cname chain")

// answer is what one reply of a server says about a name.
type answer struct {
	exists bool       // false: the name does not exist (RFC 2308 §2.1)
	name   string     // where the chain of CNAMEs ended
	hops   int        // its length
	again  bool       // the chain leads out of the reply: ask for name
	mx     []mxRecord // as they came; at most mxMax
	addrs  []netip.Addr
	ttl    uint32 // the lowest TTL of what was used, in seconds
	ttlSet bool
}

// mxRecord is an MX record with a canonical host name; "." for the null MX.
type mxRecord struct {
	host       string
	preference uint16
}

func (a *answer) believe(ttl uint32) {
	if !a.ttlSet || ttl < a.ttl {
		a.ttl, a.ttlSet = ttl, true
	}
}

// readAnswer finds in a reply what it says about a name (canonical) and a type,
// following CNAMEs as far as the reply does and at most chainMax of them. The
// only error is errChain. It is total: any records, some answer.
func readAnswer(m *dns.Msg, name string, qtype uint16, chainMax int) (answer, error) {
	a := answer{exists: m.Rcode != dns.RcodeNameError, name: name}
	for !a.collect(m.Answer, qtype) {
		target, ttl, found := alias(m.Answer, a.name)
		if !found {
			break
		}
		if a.hops++; a.hops > chainMax {
			return answer{}, errChain
		}
		a.name = target
		a.believe(ttl)
	}
	if len(a.mx) > 0 || len(a.addrs) > 0 {
		// RFC 2308 §2.1: with records there is no denial, whatever the code says.
		a.exists = true
		return a, nil
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			// RFC 2308 §5: a denial lasts as long as the SOA and its minimum say.
			a.believe(min(soa.Hdr.Ttl, soa.Minttl))
			return a, nil
		}
	}
	// A chain that ends in nothing, with no SOA to deny its end, was not followed.
	a.again = a.exists && a.hops > 0
	return a, nil
}

// collect takes the records of a type at a.name; false if there are none.
func (a *answer) collect(records []dns.RR, qtype uint16) bool {
	found := false
	for _, rr := range records {
		h := rr.Header()
		if h.Rrtype != qtype || h.Class != dns.ClassINET || dns.CanonicalName(h.Name) != a.name {
			continue
		}
		found = true
		a.believe(h.Ttl)
		switch rr := rr.(type) {
		case *dns.MX:
			if len(a.mx) < mxMax {
				a.mx = append(a.mx, mxRecord{host: dns.CanonicalName(rr.Mx), preference: rr.Preference})
			}
		case *dns.A:
			a.addAddr(rr.A)
		case *dns.AAAA:
			a.addAddr(rr.AAAA)
		}
	}
	return found
}

func (a *answer) addAddr(ip []byte) {
	if addr, ok := netip.AddrFromSlice(ip); ok {
		a.addrs = append(a.addrs, addr.Unmap())
	}
}

// alias returns the target of the CNAME at name.
func alias(records []dns.RR, name string) (target string, ttl uint32, found bool) {
	for _, rr := range records {
		c, ok := rr.(*dns.CNAME)
		if ok && c.Hdr.Class == dns.ClassINET && dns.CanonicalName(c.Hdr.Name) == name {
			return dns.CanonicalName(c.Target), c.Hdr.Ttl, true
		}
	}
	return "", 0, false
}

// plain takes the final dot off a canonical name.
func plain(canonical string) string { return strings.TrimSuffix(canonical, ".") }
