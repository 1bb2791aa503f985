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
	until    time.Time // isn't dialled before
	failures int       // failures in a row without an answer about an address
	served   bool      // it has answered about an address
	last     Judgement // the newest failure; without an attempt: none

	aside  time.Time // until when other hosts are asked first, because its answers are bad
	doubts int       // times in a row without a good answer
	fails  int       // bad first tries, less good answers
}

// route is a set of hosts and what we know of it: which can be dialled, which of our sources they refuse, and how to
// speak to them.
type route struct {
	key        string // their names
	candidates []*candidate
	refusals   map[*egressPath]*suspension // of our sources
	tls        smtp.TLSMode
	tlsUntil   time.Time // when tls becomes opportunistic again
	alone      time.Time // until when commands aren't grouped
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

// learnHosts adopts the addresses of a newer route and keeps what is known of old ones.
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

// tlsModeNow returns the TLS mode for the next session.
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

// takesGroups reports whether commands may be sent in groups to hosts that offer it.
func (l *route) takesGroups(now time.Time) bool { return !now.Before(l.alone) }

// refusalOf returns the record of the hosts' refusals of a source, for changing.
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

// suspensionOf returns the suspension that keeps a source from the hosts; nil: there is none.
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

// knowsSomething reports whether something known of the hosts is worth storing: TLS, refusals of our sources, or
// failures.
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

// routeTo returns the route of a set of hosts, a new one if there is none.
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

// doubtHost prefers the other hosts of a queue for 2, 4, 8 … 60 s if one gives only bad answers.
func (ps *paths) doubtHost(now time.Time, at place, r throttle.Result) {
	if at.host.fails++; r == throttle.RefusedUs || at.path.pace.Alone() { // a block must show after few addresses
		at.host.fails += 2
	}
	if at.host.fails < hostFails || now.Before(at.host.aside) || at.path.pace.Greylisting() {
		return
	}
	if other := ps.otherHost(now, at.route, at.path, at.host.host); other == nil || 4*other.fails > hostFails {
		return // they are no better
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
	ps.noteChange(now, fmt.Sprintf("the host %s gives mostly bad answers: others are asked first", host))
}
