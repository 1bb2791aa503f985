package mx

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// questionsMax bounds the questions that are out at once; more wait their
	// turn. 50 at once are the fastest measured here, and most of a second's worth
	// of slow domains fits in 512.
	questionsMax = 512

	// rounds is how often the list of servers is gone through for one question: a
	// second time for packets that were lost.
	rounds = 2

	// ednsBytes is the size of UDP answer that we take: what passes every network
	// in one piece (DNS flag day 2020; RFC 9715 §3 names the like).
	ednsBytes = 1232
)

// client asks recursive servers. Safe for concurrent use.
type client struct {
	servers   []*server
	timeout   time.Duration
	first     atomic.Uint32 // index of the server to begin with
	questions chan struct{} // one in it for each question that is out

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
	answered := make([]bool, len(c.servers)) // with a refusal: no use in asking again
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
					// The server before was away. If it was only this name's own servers
					// that are slow, the next name moves it back.
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

// worse keeps the failure that says more: an answer says more than silence.
func worse(a, b *Error) *Error {
	if a == nil || (a.Kind == TimedOut || a.Kind == Unreachable) {
		return b
	}
	return a
}

// askServer puts one question to one server, over UDP and, if need be, over TCP.
func (c *client) askServer(ctx context.Context, s *server, name string, qtype uint16) (*dns.Msg, *Error) {
	q := newQuestion(name, qtype)
	m, err := c.exchangeUDP(ctx, s, q)
	if err == nil && m.Rcode == dns.RcodeFormatError && m.IsEdns0() == nil {
		// RFC 6891 §6.2.2: a server that does not know EDNS says "format error".
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

// judge says what is wrong with a reply that fits its question; 0 if it is an answer.
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

// isReferral reports whether a server that does not recurse sent us on to others
// (RFC 1034 §4.3.1). It looks like "no such records" and must not be taken for it.
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

// kindOf sorts the errors of an exchange.
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

// check asks every server at once for the root's name servers, and is content
// with the first reply of any kind.
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
