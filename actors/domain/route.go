package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// route is where a domain's addresses are asked: the answer of DNS, the receiver, and which hosts answer.
type route struct {
	*job
	mx.Route
	hosts    []*wire.Host    // hosts in the form of messages; nil: not known yet
	asked    bool            // a lookup is under way
	silent   bool            // DNS gave no answer, so addresses are deferred
	closed   smtp.Reason     // why the domain takes no mail, according to DNS
	key      string          // key of the receiver; empty: not known yet
	version  uint64          // version of the table that gave the key
	heard    map[string]bool // hosts that have answered about a mailbox
	answered string          // the host that answered last; empty: none did
	keyed    string          // the host of the cached keyOf
	keyOf    string          // the behaviourKey of that host
}

// takeRoute takes the answer of DNS. takeRoute reports whether there is an address to dial; receivers refuse other
// offers.
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

// hearHost notes which host answered about a mailbox.
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

// answeringHost returns the host whose answers are expected next: the host of the last answer about an address, or the
// first host of the route. Empty: there is no route.
func (r *route) answeringHost() string {
	if r.answered == "" && len(r.Hosts) > 0 {
		return r.Hosts[0].Name
	}
	return r.answered
}

// behaviourKey returns the key of a host's behaviour for the domain. behaviourKey caches the last key, because the host
// is nearly always the same.
func (r *route) behaviourKey(host string) string {
	if r.keyed != host || r.keyOf == "" {
		r.keyed, r.keyOf = host, behaviourKey(r.work.Domain, host)
	}
	return r.keyOf
}

// rankOf returns the preference of a host; false: the host isn't on the route.
func (r *route) rankOf(host string) (uint16, bool) {
	for _, h := range r.Hosts {
		if h.Name == host {
			return h.Preference, true
		}
	}
	return 0, false
}

// isBackup reports whether a host comes after another host of the route that hasn't answered about a mailbox.
func (r *route) isBackup(host string) bool {
	rank, ranked := r.rankOf(host)
	return ranked && slices.ContainsFunc(r.Hosts, func(h mx.Host) bool {
		return h.Preference < rank && !r.heard[h.Name]
	})
}

// isOutranked reports whether a host that accepts everything says nothing about the domain's mailboxes. The host is
// outranked if mail goes to another host that tells mailboxes apart. Such a host has the same preference and is known
// to tell them apart; or it comes first (RFC 5321 section 5.1), has answered in this run, and isn't known to accept
// everything.
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

// hostsOf returns how many hosts must deny that they serve the domain before we believe it: those of the route, and
// those of an older route that were asked.
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
