package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// Resolver asks DNS. Safe for concurrent use.
type Resolver interface {
	// Ask returns the records of a type at a name, after its aliases. No records and no error: there are none. An
	// error means that this is not known.
	Ask(ctx context.Context, name string, qtype uint16) ([]dns.RR, error)
}

// recordsMax bounds the records read from one answer. Guess: a mail server's name has one or two.
const recordsMax = 10

// errDNS means that a question was not answered.
var errDNS = errors.New("dns")

// Client is a Resolver that asks recursive servers in turn.
type Client struct {
	servers []string
	timeout time.Duration
}

// NewClient makes a Client of servers as host:port; none: the servers in the system's resolv.conf. Timeout bounds
// one question to one server.
func NewClient(servers []string, timeout time.Duration) (*Client, error) {
	if len(servers) == 0 {
		system, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return nil, fmt.Errorf("read the system's DNS servers: %w", err)
		}
		for _, s := range system.Servers {
			servers = append(servers, net.JoinHostPort(s, system.Port))
		}
	}
	if len(servers) == 0 || timeout <= 0 {
		return nil, fmt.Errorf("%w: no server or no timeout", ErrOptions)
	}
	return &Client{servers: servers, timeout: timeout}, nil
}

// Ask implements Resolver.
func (c *Client) Ask(ctx context.Context, name string, qtype uint16) ([]dns.RR, error) {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), qtype)
	question.SetEdns0(1232, false) // fits into one packet on every network (RFC 9715 §3)
	failed := fmt.Errorf("%w: no answer", errDNS)
	for _, server := range c.servers {
		if ctx.Err() != nil {
			break
		}
		answer, err := c.exchange(ctx, question, server)
		if err != nil {
			failed = fmt.Errorf("%w: %s of %s: no answer", errDNS, dns.TypeToString[qtype], name)
			continue
		}
		records, err := read(answer, qtype)
		if err == nil {
			return records, nil
		}
		failed = fmt.Errorf("%s of %s: %w", dns.TypeToString[qtype], name, err)
	}
	return nil, failed
}

// exchange asks one server, and again over TCP if the answer is too long for UDP.
func (c *Client) exchange(ctx context.Context, question *dns.Msg, server string) (*dns.Msg, error) {
	udp := dns.Client{Net: "udp", Timeout: c.timeout}
	answer, _, err := udp.ExchangeContext(ctx, question, server)
	if err == nil && answer.Truncated {
		tcp := dns.Client{Net: "tcp", Timeout: c.timeout}
		answer, _, err = tcp.ExchangeContext(ctx, question, server)
	}
	return answer, err
}

// read returns the records of a type in an answer.
func read(answer *dns.Msg, qtype uint16) ([]dns.RR, error) {
	switch {
	case answer.Rcode == dns.RcodeNameError:
		return nil, nil
	case answer.Rcode != dns.RcodeSuccess:
		return nil, fmt.Errorf("%w: %s", errDNS, dns.RcodeToString[answer.Rcode])
	case answer.Truncated:
		return nil, fmt.Errorf("%w: the answer is truncated", errDNS)
	case len(answer.Answer) == 0 && !answer.Authoritative && !answer.RecursionAvailable:
		return nil, fmt.Errorf("%w: the DNS server only names other servers", errDNS)
	}
	return slices.DeleteFunc(slices.Clone(answer.Answer), func(rr dns.RR) bool { return rr.Header().Rrtype != qtype }), nil
}

// addresses asks for the addresses of a name in both families.
func addresses(ctx context.Context, r Resolver, name string) ([]netip.Addr, error) {
	var out []netip.Addr
	var failed error
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		records, err := r.Ask(ctx, name, qtype)
		if err != nil {
			failed = err
			continue
		}
		for _, rr := range records {
			if a, ok := addrOf(rr); ok {
				out = append(out, a)
			}
		}
	}
	return out, failed
}

func addrOf(rr dns.RR) (netip.Addr, bool) {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}
