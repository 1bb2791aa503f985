package smtplab

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	"golang.org/x/net/idna"
)

// TopLevel is the domain under which a name has a personality or does not exist (reserved for tests by RFC 2606 §2).
// The lab refuses questions about other names, except those of Add.
const TopLevel = "test"

// Domain is a domain for Add, with a freely chosen name.
type Domain struct {
	// Name is a mail domain, in any spelling of its labels. Names under it belong to it.
	Name string

	// Personality is its receiver's behaviour; Personality.Name is not used.
	Personality Personality

	// Records replace Personality.DNS for these names: lines of zone text with full names (RFC 1035 §5.1). A domain
	// whose MX is a host of another receiver is a tenant there, and gets that receiver's personality.
	Records []string
}

// added is a prepared Domain.
type added struct {
	persona *persona
	records map[string][]dns.RR // by name with final dot
	mx      map[string]bool     // hosts that Records name as MX
}

// receiver is all hosts under one registrable name.
type receiver struct {
	name    string
	persona *persona
	tally   *tally
	memory  memory
}

// Add serves d from here on. It replaces an earlier Domain of that name if its hosts were never asked for. The error
// wraps ErrDomain.
func (l *Lab) Add(d Domain) error {
	name, err := canonical(d.Name)
	if err != nil || name == "" {
		return fmt.Errorf("%w: name %q", ErrDomain, d.Name)
	}
	if d.Personality.DNS >= shapes {
		return fmt.Errorf("%w: %s: shape %d", ErrDomain, name, d.Personality.DNS)
	}
	a := &added{persona: personaOf(d.Personality), records: make(map[string][]dns.RR), mx: make(map[string]bool)}
	for _, line := range d.Records {
		rr, err := dns.NewRR(line)
		if err != nil || rr == nil {
			return fmt.Errorf("%w: %s: record %q: %w", ErrDomain, name, line, err)
		}
		owner := strings.ToLower(rr.Header().Name)
		if !beneath(strings.TrimSuffix(owner, "."), name) {
			return fmt.Errorf("%w: %s: record for %s", ErrDomain, name, owner)
		}
		a.records[owner] = append(a.records[owner], rr)
		if mx, ok := rr.(*dns.MX); ok {
			a.mx[strings.ToLower(strings.TrimSuffix(mx.Mx, "."))] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.domains[name] = a
	if a.persona.MXSuffix != "" {
		l.suffixes[a.persona.MXSuffix] = true
		l.bases[a.persona.hostZone(name)] = name
	}
	return nil
}

// canonical returns name as a lower-case A-label without final dot.
func canonical(name string) (string, error) {
	return idna.Lookup.ToASCII(strings.ToLower(strings.TrimSuffix(name, ".")))
}

// beneath reports whether name is zone or a name under it.
func beneath(name, zone string) bool {
	return name == zone || strings.HasSuffix(name, "."+zone)
}

// owner returns the owner of name: the nearest Domain of Add, or the last two labels under TopLevel. name is lower case
// without final dot. A nil persona: the name does not exist. An empty zone: the lab does not serve the name. The caller
// holds l.mu.
func (l *Lab) owner(name string) (zone string, p *persona, a *added) {
	for rest := name; ; {
		if a, ok := l.domains[rest]; ok {
			return rest, a.persona, a
		}
		dot := strings.IndexByte(rest, '.')
		if dot < 0 {
			break
		}
		rest = rest[dot+1:]
	}
	if !beneath(name, TopLevel) {
		return l.hostOf(name)
	}
	zone = zoneOf(name)
	return zone, l.personas[personalityName(zone)], nil
}

// hostOf returns the owner of a name under a Personality.MXSuffix: the zone whose hostZone it is in. An empty zone
// means none. The caller holds l.mu.
func (l *Lab) hostOf(name string) (zone string, p *persona, a *added) {
	for at := len(name); ; {
		if at = strings.LastIndexByte(name[:at], '.'); at < 0 {
			return "", nil, nil
		}
		suffix := name[at+1:]
		if !l.suffixes[suffix] {
			continue
		}
		label := name[strings.LastIndexByte(name[:at], '.')+1 : at]
		if zone := l.bases[label+"."+suffix]; zone != "" {
			return zone, l.domains[zone].persona, l.domains[zone]
		}
		zone := label + "." + TopLevel
		if p := l.personas[personalityName(zone)]; p != nil && p.MXSuffix == suffix {
			return zone, p, nil
		}
	}
}

// zoneOf returns the last two labels of a name under TopLevel.
func zoneOf(name string) string {
	return name[strings.LastIndexByte(strings.TrimSuffix(name, "."+TopLevel), '.')+1:]
}

// personalityName returns the text after the last "-" of the first label: "clean" for acme-clean.test, clean.test,
// and the A-label of bücher-clean.test.
func personalityName(zone string) string {
	label, _, _ := strings.Cut(zone, ".")
	if strings.HasPrefix(label, "xn--") {
		unicode, err := idna.Punycode.ToUnicode(label)
		if err != nil {
			return ""
		}
		label = unicode
	}
	return label[strings.LastIndexByte(label, '-')+1:]
}

// receiverOf returns the receiver of zone, and makes it if needed. The caller holds l.mu.
func (l *Lab) receiverOf(zone string, p *persona) *receiver {
	r := l.receivers[zone]
	if r == nil {
		r = &receiver{
			name: zone, persona: p, tally: l.manners.receiver(zone),
			memory: memory{hour: l.options.HourLasts},
		}
		l.receivers[zone] = r
	}
	return r
}

// addressOf gives the host an address of its own, from a hash of its name, or the next free one. The caller holds l.mu.
func (l *Lab) addressOf(name string) netip.Addr {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	size := uint32(1) << (32 - l.network.Bits())
	base := l.network.Addr().As4()
	for n := sum.Sum32(); ; n++ {
		at := n % size
		addr := netip.AddrFrom4([4]byte{base[0], base[1] | byte(at>>16), base[2] | byte(at>>8), byte(at)})
		if _, ok := l.taken[addr]; !ok {
			l.taken[addr] = struct{}{}
			return addr
		}
	}
}
