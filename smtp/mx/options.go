package mx

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// systemServers is the system's list of DNS servers (resolv.conf(5)).
const systemServers = "/etc/resolv.conf"

// serversMax bounds the servers of resolv.conf(5), which has at most three; more only make a failing lookup longer.
const serversMax = 16

// Options configure a Resolver. All are required except KnownName, Only, AtOnce and Weight.
type Options struct {
	// Servers are the recursive servers as host:port, asked in this order until one answers. Empty: those of the
	// system's resolv.conf, read once. At most 16. Servers that do not recurse are useless here.
	Servers []string

	// Timeout bounds one server's answer; within it the question is sent again twice. At most nameBudget. If it is
	// too low, slow domains fail; if it is too high, a dead server is noticed late.
	Timeout time.Duration

	// IPv6 says that receivers can be dialled over IPv6, so every host's AAAA is asked for. Otherwise AAAA is asked
	// for only if a host has no IPv4 address, to distinguish it from a host without any address.
	IPv6 bool

	// Allow reports whether an address may be dialled: not special-use, not ours. Called from many goroutines at once.
	Allow func(netip.Addr) bool

	// KnownName is a name that certainly has name servers, such as "com". Servers that deny it do not know the Internet (a
	// captive portal, a closed network), so their other denials are errors, not missing domains. Empty: denials are
	// always accepted, as the servers of a lab need.
	KnownName string

	// Only is the top-level domain that a lab's servers know. Any other domain gets no route, with
	// smtp.NotSimulated. Empty: no restriction.
	Only string

	// TTLMin and TTLMax bound how long an answer is kept, whatever its TTL. A low TTLMin asks more often; with a high
	// TTLMax, probes go to outdated hosts for longer.
	TTLMin, TTLMax time.Duration

	// CacheMax bounds the cached domains, and also the cached hosts; the least recently used go first. A domain with a
	// host of its own takes 0.6 KB (measured).
	CacheMax int

	// AtOnce bounds the domains being looked up, of all tenants (For). One tenant may use only half, so that a new
	// one finds room at once. Waiting for a turn does not count as time of the lookup. 0: not bounded.
	AtOnce int

	// Weight returns a tenant's weight, at least 1; nil: all weights are equal.
	Weight func(tenant string) int
}

// readServers returns the servers of a resolv.conf.
func readServers(path string) ([]string, error) {
	config, err := dns.ClientConfigFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: no servers are configured, and those of the system cannot be read: %w", ErrOptions, err)
	}
	if len(config.Servers) == 0 {
		return nil, fmt.Errorf("%w: no servers are configured, and %s has none", ErrOptions, path)
	}
	servers := make([]string, 0, len(config.Servers))
	for _, s := range config.Servers[:min(len(config.Servers), serversMax)] {
		servers = append(servers, net.JoinHostPort(s, config.Port))
	}
	return servers, nil
}

var (
	// ErrOptions means that an option is missing or out of range; the text names it.
	ErrOptions = errors.New("not usable as mx options")

	// ErrClosed means that the Resolver has been closed.
	ErrClosed = errors.New("mx resolver is closed")
)

// Kind is the reason why DNS gave no answer.
type Kind uint8

// The kinds of failure. After all of them asking again may help; none says anything about an address.
const (
	ServFail    Kind = iota + 1 // the servers could not resolve it, DNSSEC included (RFC 1035 §4.1.1)
	Refused                     // the servers refuse our questions
	TimedOut                    // no answer in time
	Unreachable                 // no server could be reached at all
	Loop                        // a chain of CNAMEs that is endless or too long
	Malformed                   // an answer or a question that is not valid DNS
	Walled                      // denied by servers that also deny Options.KnownName
)

var kindTexts = [...]string{
	ServFail:    "server failure",
	Refused:     "refused",
	TimedOut:    "no answer in time",
	Unreachable: "server unreachable",
	Loop:        "endless or too long chain of names",
	Malformed:   "malformed",
	Walled:      "denied by servers that do not know the Internet",
}

// String describes the kind in a few words.
func (k Kind) String() string {
	if int(k) < len(kindTexts) && k > 0 {
		return kindTexts[k]
	}
	return "unknown"
}

// Error is the failure of a lookup: ask again later.
type Error struct {
	Kind Kind
	Name string // the name asked for, lower case, no final dot
	Type string // "MX", "A" or "AAAA"; empty when nothing was asked
	Err  error  // the cause outside DNS, if any
}

// Error names the question and why it failed.
func (e *Error) Error() string {
	text := "dns: "
	if e.Type != "" {
		text += e.Type + " of "
	}
	text += e.Name + ": " + e.Kind.String()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
