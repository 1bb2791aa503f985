package mx

import (
	"context"
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

// Options configure a Resolver. All are required except KnownName, Only and Turn.
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

	// Turn bounds the domains being looked up, of all tenants (For). Waiting for it does not count as time of the
	// lookup. nil: not bounded.
	Turn Turn
}

// Turn waits until ctx ends for a tenant's turn, which leave ends.
type Turn func(ctx context.Context, tenant string) (leave func(), err error)

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
