package mx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"rollcall/smtp"
)

const (
	// nameBudget bounds the time for one name with all servers, chains and retries: two rounds over two servers at 5
	// s each.
	nameBudget = 20 * time.Second

	// failureTTL is how long a failure is cached: the minimum of RFC 9520 §3.2, so that a retry after a second asks again.
	failureTTL = time.Second

	// vouchTTL is how long the servers are trusted after they knew the witness. Guess: short enough to notice a
	// laptop that moves to a captive network.
	vouchTTL = 30 * time.Second
)

// asker asks the servers one question about a canonical name. The error is an *Error; a reply has the code NOERROR
// or NXDOMAIN and fits the question.
type asker interface {
	ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error)
	check(ctx context.Context) error
	stats() Stats
	close() error
}

// Resolver finds routes. Safe for concurrent use.
type Resolver struct {
	options Options
	dns     asker
	seed    maphash.Seed // orders hosts of equal preference
	cancel  context.CancelFunc

	routes *cache[Route]
	hosts  *cache[hostAnswer]
	open   *cache[struct{}] // whether the witness exists
}

// Stats are the counts of a Resolver since its start.
type Stats struct {
	Queries  uint64 // questions sent, repeated ones and those over TCP included
	Repeated uint64 // sent again because no answer came
	OverTCP  uint64 // asked over TCP
	Strays   uint64 // packets that answer none of our questions
	Failures uint64 // questions that no server answered
}

// New makes a Resolver and asks nothing yet. Errors wrap ErrOptions.
func New(o Options) (*Resolver, error) {
	if len(o.Servers) == 0 {
		servers, err := readServers(systemServers)
		if err != nil {
			return nil, err
		}
		o.Servers = servers
	}
	return newResolver(o, newClient(o.Servers, o.Timeout)), nil
}

func newResolver(o Options, dns asker) *Resolver {
	base, cancel := context.WithCancel(context.Background())
	r := &Resolver{
		options: o, dns: dns, seed: maphash.MakeSeed(), cancel: cancel,
		routes: newCache[Route](base, o.CacheMax),
		hosts:  newCache[hostAnswer](base, o.CacheMax),
		open:   newCache[struct{}](base, 1),
	}
	r.routes.turn = o.Turn
	return r
}

// Lookup finds where mail for a domain goes. The domain is an A-label in any case, with or without a final dot. The
// Route is shared and must not be changed.
//
// Errors: *Error, where asking again may help; ErrClosed; or the cause of ctx's end. A lookup takes at most 20 s
// after its turn has come (For).
func (r *Resolver) Lookup(ctx context.Context, domain string) (Route, error) {
	name := dns.CanonicalName(domain)
	if _, ok := dns.IsDomainName(name); !ok || !hasHostLetters(plain(name)) {
		return Route{}, &Error{Kind: Malformed, Name: domain}
	}
	if only := r.options.Only; only != "" && !dns.IsSubDomain(dns.CanonicalName(only), name) {
		return Route{NoMail: smtp.NotSimulated, Expires: time.Now().Add(r.options.TTLMax)}, nil
	}
	return r.routes.get(ctx, plain(name), r.findRoute)
}

// Check returns nil when one of the servers answers and knows Options.KnownName, if set. Otherwise it returns an
// *Error, with the kind Walled when they deny the witness.
func (r *Resolver) Check(ctx context.Context) error {
	if err := r.dns.check(ctx); err != nil {
		return err
	}
	return r.vouch(ctx)
}

// vouch returns nil when the servers' denials may be accepted, that is, when they know the witness.
func (r *Resolver) vouch(ctx context.Context) error {
	if r.options.KnownName == "" {
		return nil
	}
	_, err := r.open.get(ctx, r.options.KnownName, func(ctx context.Context, name string) (struct{}, time.Time, error) {
		m, err := r.dns.ask(ctx, dns.CanonicalName(name), dns.TypeNS)
		if err == nil && !slices.ContainsFunc(m.Answer, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeNS }) {
			err = &Error{Kind: Walled, Name: name, Type: "NS"}
		}
		if err != nil {
			return struct{}{}, time.Now().Add(failureTTL), err
		}
		return struct{}{}, time.Now().Add(vouchTTL), nil
	})
	return err
}

// Stats returns the counts so far.
func (r *Resolver) Stats() Stats { return r.dns.stats() }

// Close ends all lookups (they return ErrClosed or an *Error) and closes all sockets. It may be called twice.
func (r *Resolver) Close() error {
	r.cancel()
	r.routes.close()
	r.hosts.close()
	r.open.close()
	return r.dns.close()
}

// findRoute looks up the route of a domain. It accepts "no route" only from servers that vouch accepts.
func (r *Resolver) findRoute(ctx context.Context, domain string) (Route, time.Time, error) {
	route, expires, err := r.readRoute(ctx, domain)
	if err == nil && route.NoMail != smtp.ReasonNone {
		err = r.vouch(ctx)
	}
	if err != nil {
		return Route{}, time.Now().Add(failureTTL), err
	}
	return route, expires, nil
}

// readRoute makes a route from the servers' answers.
func (r *Resolver) readRoute(ctx context.Context, domain string) (Route, time.Time, error) {
	a, err := r.ask(ctx, domain, dns.TypeMX, domainChainMax)
	if err != nil {
		return Route{}, time.Time{}, err
	}
	expires := r.expiry(a)
	hosts, null := pickHosts(a.mx)
	if null || len(hosts) == 0 && len(a.mx) > 0 {
		// RFC 7505 §3; RFC 5321 §5.1: if all MX records are unusable, the domain's own address is not used.
		return Route{Domain: domain, NoMail: smtp.NoMailService, Expires: expires}, expires, nil
	}
	chainMax := hostChainMax
	if len(a.mx) == 0 {
		// RFC 5321 §5.1: without any MX the domain is its own host. If the answer about MX was NXDOMAIN the domain
		// may still have addresses: some servers give that code for a type that they do not have.
		hosts, chainMax = []mxRecord{{host: domain}}, domainChainMax
	}
	route, err := r.firstRoute(ctx, domain, hosts, chainMax)
	if err != nil {
		return Route{}, time.Time{}, err
	}
	if !a.exists && route.NoMail != smtp.ReasonNone {
		route.NoMail = smtp.DomainNotFound
	}
	if route.Expires.After(expires) {
		route.Expires = expires
	}
	if soonest := time.Now().Add(r.options.TTLMin); route.Expires.Before(soonest) {
		route.Expires = soonest
	}
	return route, route.Expires, nil
}

// firstRoute makes a route of the best hosts with an address. It asks for hostsMax hosts, and for the next ones only
// if none of those has an address.
func (r *Resolver) firstRoute(ctx context.Context, domain string, hosts []mxRecord, chainMax int) (route Route, err error) {
	var soonest time.Time
	for some := range slices.Chunk(hosts, hostsMax) {
		route, err = planRoute(domain, some, r.askHosts(ctx, some, chainMax), r.seed)
		if err != nil {
			return Route{}, err
		}
		if soonest.IsZero() || route.Expires.Before(soonest) {
			soonest = route.Expires
		}
		if len(route.Hosts) > 0 {
			break
		}
	}
	route.Expires = soonest
	return route, nil
}

// askHosts asks for the addresses of all hosts at once, one answer for each.
func (r *Resolver) askHosts(ctx context.Context, hosts []mxRecord, chainMax int) []hostAnswer {
	find := func(ctx context.Context, host string) (hostAnswer, time.Time, error) {
		return r.findHost(ctx, host, chainMax)
	}
	answers := make([]hostAnswer, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() {
			a, err := r.hosts.get(ctx, h.host, find)
			if err != nil {
				a.err = asError(err, h.host)
			}
			answers[i] = a
		})
	}
	all.Wait()
	return answers
}

// findHost returns the addresses of a host that may be dialled, IPv4 first. An error means that it found none, but
// there may be some.
func (r *Resolver) findHost(ctx context.Context, host string, chainMax int) (hostAnswer, time.Time, error) {
	var v4, v6 []netip.Addr
	var expires4, expires6 time.Time
	var err4, err6 error
	if r.options.IPv6 {
		var both sync.WaitGroup
		both.Go(func() { v6, expires6, err6 = r.askAddrs(ctx, host, dns.TypeAAAA, chainMax) })
		v4, expires4, err4 = r.askAddrs(ctx, host, dns.TypeA, chainMax)
		both.Wait()
	} else {
		v4, expires4, err4 = r.askAddrs(ctx, host, dns.TypeA, chainMax)
		if len(v4) == 0 && err4 == nil {
			v6, expires6, err6 = r.askAddrs(ctx, host, dns.TypeAAAA, chainMax)
		}
	}
	addrs := append(v4, v6...)
	addrs = addrs[:min(len(addrs), hostAddrsMax)]
	failed := cmp.Or(err4, err6)
	if failed != nil && len(addrs) == 0 {
		return hostAnswer{}, time.Now().Add(failureTTL), failed
	}
	if failed != nil {
		// One family is enough, but cached only briefly.
		soon := time.Now().Add(r.options.TTLMin)
		return hostAnswer{addrs: addrs, expires: soon}, soon, nil
	}
	if len(addrs) == 0 {
		if err := r.vouch(ctx); err != nil {
			return hostAnswer{}, time.Now().Add(failureTTL), err
		}
	}
	expires := expires4
	if !expires6.IsZero() && expires6.Before(expires) {
		expires = expires6
	}
	return hostAnswer{addrs: addrs, expires: expires}, expires, nil
}

// askAddrs returns a host's addresses in one family, without duplicates and addresses that may not be dialled; at
// most hostAddrsMax.
func (r *Resolver) askAddrs(ctx context.Context, host string, qtype uint16, chainMax int) (
	[]netip.Addr, time.Time, error,
) {
	a, err := r.ask(ctx, host, qtype, chainMax)
	if err != nil {
		return nil, time.Time{}, err
	}
	kept := make([]netip.Addr, 0, hostAddrsMax)
	for _, addr := range a.addrs {
		if len(kept) < hostAddrsMax && !slices.Contains(kept, addr) && r.options.Allow(addr) {
			kept = append(kept, addr)
		}
	}
	return kept, r.expiry(a), nil
}

// ask finds what DNS says about a name (plain) and a type, along its chain of CNAMEs. It always asks for the name
// itself: NXDOMAIN for a name above it proves nothing, against RFC 8020 §2, because many servers return it for names
// that only have names below them.
func (r *Resolver) ask(ctx context.Context, name string, qtype uint16, chainMax int) (answer, error) {
	at, hops := dns.CanonicalName(name), 0
	ttl := answer{}
	for {
		m, err := r.dns.ask(ctx, at, qtype)
		if err != nil {
			return answer{}, err
		}
		a, err := readAnswer(m, at, qtype, chainMax-hops)
		if err != nil {
			return answer{}, &Error{Kind: Loop, Name: name, Type: dns.TypeToString[qtype]}
		}
		if a.ttlSet {
			ttl.believe(a.ttl)
		}
		a.ttl, a.ttlSet = ttl.ttl, ttl.ttlSet
		if !a.again {
			return a, nil
		}
		at, hops = a.name, hops+a.hops
	}
}

// asError makes an *Error of a shared lookup's error.
func asError(err error, name string) error {
	if _, known := errors.AsType[*Error](err); known || errors.Is(err, ErrClosed) {
		return err
	}
	return &Error{Kind: TimedOut, Name: name, Err: fmt.Errorf("addresses: %w", err)}
}

func (r *Resolver) expiry(a answer) time.Time {
	ttl := time.Duration(a.ttl) * time.Second
	return time.Now().Add(min(max(ttl, r.options.TTLMin), r.options.TTLMax))
}
