package mx

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// questionsMax bounds the questions under way; more wait. 50 at once are the fastest measured here, and 512 has
	// room for most of a second's worth of slow domains.
	questionsMax = 512

	// rounds is how often one question goes through the list of servers; the second time is for lost packets.
	rounds = 2

	// ednsBytes is the largest UDP answer we ask for: it fits into one packet on every network (DNS flag day 2020;
	// similar in RFC 9715 §3).
	ednsBytes = 1232
)

// client asks recursive servers. Safe for concurrent use.
type client struct {
	servers   []*server
	timeout   time.Duration
	first     atomic.Uint32 // index of the server to ask first
	questions chan struct{} // holds one element for each question under way

	queries, repeated, overTCP, strays, failures atomic.Uint64
}

func newClient(addrs []string, timeout time.Duration) *client {
	c := &client{timeout: timeout, questions: make(chan struct{}, questionsMax)}
	for _, addr := range addrs {
		c.servers = append(c.servers, &server{addr: addr})
	}
	return c
}

// ask puts one question to the servers until one answers. See asker.
func (c *client) ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	select {
	case c.questions <- struct{}{}:
		defer func() { <-c.questions }()
	case <-ctx.Done():
		return nil, failure(TimedOut, name, qtype, context.Cause(ctx))
	}
	first := int(c.first.Load())
	answered := make([]bool, len(c.servers)) // with a refusal: asking again is useless
	var failed *Error
	for range rounds {
		for i := range c.servers {
			at := (first + i) % len(c.servers)
			if answered[at] || ctx.Err() != nil {
				continue
			}
			m, err := c.askServer(ctx, c.servers[at], name, qtype)
			if err == nil {
				if i > 0 && failed.Kind != ServFail && failed.Kind != Refused {
					// The server before did not answer. If only this name's own servers are slow, the next name moves it back.
					c.first.CompareAndSwap(uint32(first), uint32(at))
				}
				return m, nil
			}
			answered[at] = err.Kind != TimedOut && err.Kind != Unreachable
			failed = worse(failed, err)
		}
	}
	c.failures.Add(1)
	if failed == nil {
		failed = failure(TimedOut, name, qtype, context.Cause(ctx))
	}
	return nil, failed
}

// worse returns the more informative failure: an answer rather than silence.
func worse(a, b *Error) *Error {
	if a == nil || (a.Kind == TimedOut || a.Kind == Unreachable) {
		return b
	}
	return a
}

// askServer asks one server over UDP and, if needed, over TCP.
func (c *client) askServer(ctx context.Context, s *server, name string, qtype uint16) (*dns.Msg, *Error) {
	q := newQuestion(name, qtype)
	m, err := c.exchangeUDP(ctx, s, q)
	if err == nil && m.Rcode == dns.RcodeFormatError && m.IsEdns0() == nil {
		// RFC 6891 §6.2.2: a server without EDNS replies "format error".
		q.Extra = nil
		m, err = c.exchangeUDP(ctx, s, q)
	}
	if errors.Is(err, errAskTCP) || err == nil && m.Truncated {
		m, err = c.exchangeTCP(ctx, s, q)
	}
	if err != nil {
		return nil, failure(kindOf(err), name, qtype, err)
	}
	if kind := judge(m); kind != 0 {
		return nil, failure(kind, name, qtype, nil)
	}
	return m, nil
}

// judge returns the fault of a reply that fits its question; 0 if it is an answer.
func judge(m *dns.Msg) Kind {
	switch m.Rcode {
	case dns.RcodeSuccess:
		if isReferral(m) {
			return Refused
		}
		return 0
	case dns.RcodeNameError:
		return 0
	case dns.RcodeRefused, dns.RcodeNotImplemented, dns.RcodeNotAuth:
		return Refused
	case dns.RcodeFormatError:
		return Malformed
	default:
		return ServFail
	}
}

// isReferral reports whether a server that does not recurse returned a referral (RFC 1034 §4.3.1). A referral looks
// like "no such records" and must not count as that.
func isReferral(m *dns.Msg) bool {
	if len(m.Answer) > 0 || m.Authoritative {
		return false
	}
	sentOn := false
	for _, rr := range m.Ns {
		switch rr.(type) {
		case *dns.SOA:
			return false
		case *dns.NS:
			sentOn = true
		}
	}
	return sentOn
}

func newQuestion(name string, qtype uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	q.SetEdns0(ednsBytes, false)
	return q
}

func failure(kind Kind, name string, qtype uint16, err error) *Error {
	return &Error{Kind: kind, Name: plain(name), Type: dns.TypeToString[qtype], Err: err}
}

func kindOf(err error) Kind {
	var network net.Error
	switch {
	case errors.Is(err, errMalformed):
		return Malformed
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	default:
		return Unreachable
	}
}

// check asks every server at once for the root's name servers, and accepts the first reply of any kind.
func (c *client) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	failures := make(chan error, len(c.servers))
	for _, s := range c.servers {
		go func() {
			_, err := c.exchangeUDP(ctx, s, newQuestion(".", dns.TypeNS))
			failures <- err
		}()
	}
	var failed error
	for range c.servers {
		err := <-failures
		if err == nil || errors.Is(err, errMalformed) || errors.Is(err, errAskTCP) {
			return nil
		}
		failed = err
	}
	return &Error{Kind: kindOf(failed), Name: "the servers", Err: failed}
}

func (c *client) stats() Stats {
	return Stats{
		Queries: c.queries.Load(), Repeated: c.repeated.Load(), OverTCP: c.overTCP.Load(),
		Strays: c.strays.Load(), Failures: c.failures.Load(),
	}
}

func (c *client) close() error {
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// Bounds of CNAME chains. Chains are forbidden for MX hosts (RFC 2181 §10.3) but exist; mox has the same bounds.
const (
	domainChainMax = 16
	hostChainMax   = 10
)

// errChain is the cause of a Loop.
var errChain = errors.New("cname chain")

// answer is the content of one reply about a name.
type answer struct {
	exists bool       // false: NXDOMAIN (RFC 2308 §2.1)
	name   string     // end of the chain of CNAMEs
	hops   int        // its length
	again  bool       // the chain leads out of the reply: ask for name next
	mx     []mxRecord // in the reply's order; at most mxMax
	addrs  []netip.Addr
	ttl    uint32 // the lowest TTL of the used records, in seconds
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

// readAnswer reads what a reply says about a name (canonical) and a type. It follows CNAMEs within the reply, at
// most chainMax of them. The only error is errChain; any other input gives some answer.
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
		// RFC 2308 §2.1: a reply with records is no denial, whatever its code.
		a.exists = true
		return a, nil
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			// RFC 2308 §5: the SOA and its minimum bound a denial's TTL.
			a.believe(min(soa.Hdr.Ttl, soa.Minttl))
			return a, nil
		}
	}
	// If no SOA denies the end of a chain, the server did not follow the chain.
	a.again = a.exists && a.hops > 0
	return a, nil
}

// collect reads the records of a type at a.name, and reports whether there are any.
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

func alias(records []dns.RR, name string) (target string, ttl uint32, found bool) {
	for _, rr := range records {
		c, ok := rr.(*dns.CNAME)
		if ok && c.Hdr.Class == dns.ClassINET && dns.CanonicalName(c.Hdr.Name) == name {
			return dns.CanonicalName(c.Target), c.Hdr.Ttl, true
		}
	}
	return "", 0, false
}

// plain returns a canonical name without the final dot.
func plain(canonical string) string { return strings.TrimSuffix(canonical, ".") }
