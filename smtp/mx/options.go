package mx

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// systemServers is where the system says which servers to ask (resolv.conf(5)).
const systemServers = "/etc/resolv.conf"

// The ranges of Options.
const (
	// TimeoutMax is the longest wait for one server: the time for a whole name.
	TimeoutMax = nameBudget

	// TTLMaxMax is the longest that an answer may be believed. A day: longer and
	// a domain that moves its mail is asked at the old place for too long.
	TTLMaxMax = 24 * time.Hour

	// CacheMaxMax bounds the cache at about 600 MB.
	CacheMaxMax = 1_000_000

	// serversMax bounds the servers. resolv.conf(5) takes three; more only make
	// a failing lookup longer.
	serversMax = 16
)

// Options say whom to ask and how long to believe it. All have to be set but
// Witness, Only, AtOnce and Weight.
type Options struct {
	// Servers are the recursive servers as host:port, asked in this order until
	// one answers. Empty: those of the system's resolv.conf, read once. At most 16.
	// Servers that do not recurse answer nothing here.
	Servers []string

	// Timeout is how long one server may take for one answer; meanwhile the
	// question is sent again twice. Up to TimeoutMax. Too low and slow domains fail;
	// too high and a server that is away is noticed late.
	Timeout time.Duration

	// IPv6 says that receivers can be dialled over IPv6, so AAAA is asked for
	// every host. Without it AAAA is asked only for hosts that have no IPv4
	// address, so that they are not taken for no hosts at all.
	IPv6 bool

	// Allow reports whether an address may be dialled: not special-use, not ours.
	// Called from many goroutines at once.
	Allow func(netip.Addr) bool

	// Witness is a name that surely has name servers, such as "com". While the
	// servers deny it they know nothing of the Internet (a captive portal, a closed
	// network), and what else they deny is an error, not a missing domain. Empty:
	// denials are always believed, as fits the servers of a lab.
	Witness string

	// Only is the top-level domain that the servers know: those of a lab. The route of any other name is none, with
	// smtp.NotSimulated. Empty: they know all.
	Only string

	// TTLMin and TTLMax bound how long an answer is believed, whatever its TTL
	// says. TTLMin from 1 s, TTLMax up to TTLMaxMax. A low TTLMin asks more often; a
	// high TTLMax sends mail's questions to where the mail was.
	TTLMin, TTLMax time.Duration

	// CacheMax is the most domains kept, and the most hosts, from 1 to
	// CacheMaxMax; the ones not used for longest go first. A domain with a
	// host of its own takes 0.6 KB (measured).
	CacheMax int

	// AtOnce is how many domains are looked up at a time, of all tenants (For): one alone
	// may have a half of them, and one who comes new finds room at once. A lookup that
	// waits for its turn uses up none of its time. 0: not bounded.
	AtOnce int

	// Weight is what a tenant counts, at least 1; nil: all count the same.
	Weight func(tenant string) int
}

// Validate says what is missing or out of range. The error wraps ErrOptions.
func (o Options) Validate() error {
	if len(o.Servers) > serversMax {
		return fmt.Errorf("%w: %d servers, at most %d", ErrOptions, len(o.Servers), serversMax)
	}
	for _, s := range o.Servers {
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("%w: server %q: write it as host:port, such as 127.0.0.1:53", ErrOptions, s)
		}
	}
	switch {
	case o.Timeout <= 0 || o.Timeout > TimeoutMax:
		return fmt.Errorf("%w: the timeout is %s: it must be more than 0 and at most %s", ErrOptions, o.Timeout, TimeoutMax)
	case o.Allow == nil:
		return fmt.Errorf("%w: nothing says which addresses may be dialled", ErrOptions)
	case o.TTLMin < time.Second || o.TTLMax > TTLMaxMax || o.TTLMin > o.TTLMax:
		return fmt.Errorf("%w: TTLs from %s to %s: they must lie between 1s and %s",
			ErrOptions, o.TTLMin, o.TTLMax, TTLMaxMax)
	case o.CacheMax < 1 || o.CacheMax > CacheMaxMax:
		return fmt.Errorf("%w: a cache of %d names: it must hold 1 to %d", ErrOptions, o.CacheMax, CacheMaxMax)
	}
	return nil
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
	// ErrOptions says that an option is missing or out of range; the text names it.
	ErrOptions = errors.New("not usable as mx options")

	// ErrClosed says that the Resolver has been closed.
	ErrClosed = errors.New("mx resolver is closed")
)

// Kind says why DNS gave no answer.
type Kind uint8

// The kinds of failure. All are worth asking again, none says anything about an address.
const (
	ServFail    Kind = iota + 1 // the servers failed to find out, DNSSEC included (RFC 1035 §4.1.1)
	Refused                     // the servers do not answer this question for us
	TimedOut                    // no answer within the time for it
	Unreachable                 // no server could be reached at all
	Loop                        // a chain of CNAMEs without an end, or too long
	Malformed                   // an answer, or a question, that is no DNS
	Walled                      // a denial by servers that deny Options.Witness too
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

// Error is the failure of a lookup. The zero outcome of an address: ask again later.
type Error struct {
	Kind Kind
	Name string // what was asked for, lower case, no final dot
	Type string // "MX", "A" or "AAAA"; empty when nothing was asked
	Err  error  // the cause, if there is one below DNS
}

// Error says what was tried on what, and why it failed.
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
