package scheduler

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// candidate is one address of one host of a queue.
type candidate struct {
	host     string
	at       netip.Addr
	until    time.Time // the host isn't dialled before this time
	failures int       // failures in a row, without an answer about an address in between
	served   bool      // the host has answered about an address
	last     Judgement // the newest failure; without an attempt: no failure

	aside  time.Time // until when other hosts are asked first, because this host's answers are bad
	doubts int       // times in a row that the host was set aside without a good answer
	fails  int       // number of bad first tries less good answers
}

// route is a set of hosts and what we know of it: which hosts can be dialled, which of our sources they refuse, and how
// to speak to them.
type route struct {
	key        string // the hosts' names
	candidates []*candidate
	refusals   map[*egressPath]*suspension // the hosts' refusals of our sources
	tls        smtp.TLSMode
	tlsUntil   time.Time // when tls becomes opportunistic again
	alone      time.Time // until when commands aren't sent in groups
}

// hostsKey identifies a queue by the names of its hosts, in their order.
func hostsKey(hosts []*wire.Host) string {
	if len(hosts) == 1 {
		return hosts[0].GetName()
	}
	var b strings.Builder
	for _, h := range hosts {
		b.WriteString(h.GetName())
		b.WriteByte(',')
	}
	return b.String()
}

// learnHosts adopts the addresses of a newer route, and keeps what is known of old addresses.
func (l *route) learnHosts(hosts []*wire.Host) {
	old := l.candidates
	fresh := make([]*candidate, 0, len(old))
	for _, h := range hosts {
		for _, at := range h.Addresses() {
			same := func(c *candidate) bool { return c.at == at && c.host == h.GetName() }
			if i := slices.IndexFunc(old, same); i >= 0 {
				fresh = append(fresh, old[i])
			} else {
				fresh = append(fresh, &candidate{host: h.GetName(), at: at})
			}
		}
	}
	l.candidates = fresh
}

func (l *route) tlsModeNow(now time.Time) smtp.TLSMode {
	if l.tls != smtp.TLSOpportunistic && now.After(l.tlsUntil) {
		l.tls = smtp.TLSOpportunistic
	}
	return l.tls
}

// setMode remembers for a while that the hosts demand TLS, or that their TLS is broken.
func (l *route) setMode(m smtp.TLSMode, now time.Time) {
	l.tls, l.tlsUntil = m, now.Add(throttle.LearnedFor)
}

// takesGroups reports whether commands may be sent in groups to hosts that offer this.
func (l *route) takesGroups(now time.Time) bool { return !now.Before(l.alone) }

// refusalOf returns the record of the hosts' refusals of a source, to be changed.
func (l *route) refusalOf(o *egressPath) *suspension {
	if l.refusals == nil {
		l.refusals = map[*egressPath]*suspension{}
	}
	r := l.refusals[o]
	if r == nil {
		r = &suspension{}
		l.refusals[o] = r
	}
	return r
}

// suspensionOf returns the suspension that keeps a source from the hosts; nil: none.
func (l *route) suspensionOf(now time.Time, o *egressPath) *suspension {
	r := l.refusals[o]
	switch {
	case r != nil && now.Before(r.until) && !r.until.Before(o.until):
		return r
	case now.Before(o.until):
		return &o.suspension
	}
	return nil
}

// knowsSomething reports whether something is known of the hosts that is worth storing: TLS, refusals of our sources,
// or failures.
func (l *route) knowsSomething(now time.Time) bool {
	for _, r := range l.refusals {
		if r.count > 0 && now.Before(r.until.Add(throttle.LearnedFor)) {
			return true
		}
	}
	known := func(c *candidate) bool { return c.failures > 0 && now.Before(c.until.Add(throttle.LearnedFor)) }
	return !l.takesGroups(now) || l.tlsModeNow(now) != smtp.TLSOpportunistic || slices.ContainsFunc(l.candidates, known)
}

// inWords names a queue in a sentence, by its hosts.
func (l *route) inWords() string { return strings.TrimSuffix(l.key, ",") }

// routeTo returns the route of a set of hosts, or makes a new route.
func (ps *paths) routeTo(now time.Time, hosts []*wire.Host) *route {
	key := hostsKey(hosts)
	l := ps.routes[key]
	if l == nil {
		l = &route{key: key, tls: smtp.TLSOpportunistic}
		ps.routes[key] = l
		l.learnHosts(hosts)
		ps.recallRoute(now, l)
		return l
	}
	l.learnHosts(hosts)
	return l
}

// doubtHost sets a host aside for 2, 4, 8 … 60 s if it gives only bad answers. For that time the other hosts of the
// queue are asked first.
func (ps *paths) doubtHost(now time.Time, at place, r throttle.Result) {
	if at.host.fails++; r == throttle.RefusedUs || at.path.pace.Alone() { // notice a block after few addresses
		at.host.fails += 2
	}
	if at.host.fails < hostFails || now.Before(at.host.aside) || at.path.pace.Greylisting() {
		return
	}
	if other := ps.otherHost(now, at.route, at.path, at.host.host); other == nil || 4*other.fails > hostFails {
		return // the others are no better
	}
	host := at.host.host
	at.host.doubts++
	until := now.Add(ps.downFor(at.host.doubts))
	for _, c := range at.route.candidates {
		if c.host == host {
			c.aside, c.doubts, c.fails = until, at.host.doubts, hostFails/2
		}
	}
	ps.halt(Halt{route: at.route, host: host})
	at.path.pace.Ignore(now)
	ps.noteChange(now, fmt.Sprintf("the host %s gives mostly bad answers: other hosts are asked first", host))
}
