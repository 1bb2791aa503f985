package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// route is where a domain's addresses are asked: the answer of DNS, the receiver, and which of its hosts answer.
type route struct {
	*job
	mx.Route
	hosts    []*wire.Host    // in the form of messages; nil: nothing is known yet
	asked    bool            // the question is out
	silent   bool            // DNS gave no answer; addresses are being deferred
	closed   smtp.Reason     // why the domain takes no mail, as DNS says
	key      string          // of the receiver; empty: not known yet
	version  uint64          // on which key depends
	heard    map[string]bool // hosts that answered about a mailbox
	answered string          // the one that answered last; empty: none did
	keyed    string          // the host of the cached behaviour key
	keyOf    string          // its behaviourKey
}

// takeRoute takes the answer of DNS and reports whether there is an address to dial: receivers take no other offer.
func (r *route) takeRoute(found mx.Route, err error) bool {
	r.asked = false
	switch {
	case err == nil && found.NoMail != smtp.ReasonNone:
		r.closed = found.NoMail
		return false
	case err != nil || !slices.ContainsFunc(found.Hosts, func(h mx.Host) bool { return len(h.Addrs) > 0 }):
		r.silent = true
		return false
	}
	r.Route, r.hosts = found, wire.Hosts(found.Hosts)
	return true
}

// hearHost notes the host of an answer about a mailbox.
func (r *route) hearHost(t evidence.Attempt) {
	tells := t.Outcome == smtp.Valid || t.Outcome == smtp.Invalid || t.Outcome == smtp.CatchAll
	if t.Stage != smtp.StageRcpt || t.Others || !tells {
		return
	}
	if r.heard == nil {
		r.heard = map[string]bool{}
	}
	r.heard[t.Host], r.answered = true, t.Host
}

// answeringHost returns the host whose answers are expected next: the one that answered last about an address, or the
// first of the route. Empty while there is no route.
func (r *route) answeringHost() string {
	if r.answered == "" && len(r.Hosts) > 0 {
		return r.Hosts[0].Name
	}
	return r.answered
}

// behaviourKey returns the key of a host's behaviour for the domain. The last one is cached: the host is nearly always
// the same.
func (r *route) behaviourKey(host string) string {
	if r.keyed != host || r.keyOf == "" {
		r.keyed, r.keyOf = host, behaviourKey(r.work.Domain, host)
	}
	return r.keyOf
}

// rankOf returns the preference of a host of the route; false: it is no host of it.
func (r *route) rankOf(host string) (uint16, bool) {
	for _, h := range r.Hosts {
		if h.Name == host {
			return h.Preference, true
		}
	}
	return 0, false
}

// isBackup reports whether a host comes after another one of the route that hasn't answered about a mailbox.
func (r *route) isBackup(host string) bool {
	rank, ranked := r.rankOf(host)
	return ranked && slices.ContainsFunc(r.Hosts, func(h mx.Host) bool {
		return h.Preference < rank && !r.heard[h.Name]
	})
}

// isOutranked reports whether a host that accepts everything says nothing about the domain's mailboxes, because
// mail goes to another host of the route that tells them apart: one of the same preference that is known to, or
// one that goes before it (RFC 5321 section 5.1) and has answered in this run, unless it accepts everything too.
func (r *route) isOutranked(now time.Time, host string) bool {
	rank, ranked := r.rankOf(host)
	return slices.ContainsFunc(r.Hosts, func(h mx.Host) bool {
		if h.Name == host || ranked && h.Preference > rank {
			return false
		}
		catchAll, known := r.options.Facts.Behaviour(behaviourKey(r.work.Domain, h.Name), now).CatchAll()
		return known && !catchAll || !known && h.Preference < rank && r.heard[h.Name]
	})
}

// hostsOf returns how many hosts must deny that they serve the domain before it counts: those of the route, and those
// of an older route that were asked.
func (r *route) hostsOf(c evidence.Case) int {
	hosts := len(r.Hosts)
	for i, t := range c.Attempts {
		same := func(other evidence.Attempt) bool { return other.Host == t.Host }
		routed := func(h mx.Host) bool { return h.Name == t.Host }
		if t.Host != "" && !slices.ContainsFunc(r.Hosts, routed) &&
			!slices.ContainsFunc(c.Attempts[:i], same) {
			hosts++
		}
	}
	return hosts
}
