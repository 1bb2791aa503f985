package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// route is where the addresses of a domain are asked: what DNS said, and which receiver that is.
type route struct {
	mx.Route
	asked    bool            // the question is out
	heard    map[string]bool // hosts that told about a mailbox
	keyed    string          // the host that was asked for last
	keyOf    string          // its habitKey
	answered string          // the newest of them; empty: none did
	silent   bool            // DNS said nothing; addresses are being put off
	closed   smtp.Reason     // why the domain takes no mail, as DNS says
	hosts    []*wire.Host
	key      string // of the receiver; empty: not known yet
	version  uint64 // of what key rests on
}

// hear notes which host told about a mailbox, if an answer does.
func (r *route) hear(t evidence.Attempt) {
	tells := t.Outcome == smtp.Valid || t.Outcome == smtp.Invalid || t.Outcome == smtp.CatchAll
	if t.Stage != smtp.StageRcpt || t.Others || !tells {
		return
	}
	if r.heard == nil {
		r.heard = map[string]bool{}
	}
	r.heard[t.Host], r.answered = true, t.Host
}

// rank is the preference of a host of the route; false: it is no host of it.
func (r *route) rank(host string) (uint16, bool) {
	for _, h := range r.Hosts {
		if h.Name == host {
			return h.Preference, true
		}
	}
	return 0, false
}

// isBackup reports whether a host goes behind another one of the route that has not told about a mailbox.
func (r *route) isBackup(host string) bool {
	rank, ranked := r.rank(host)
	return ranked && slices.ContainsFunc(r.Hosts, func(h mx.Host) bool { return h.Preference < rank && !r.heard[h.Name] })
}

// routed takes the answer of DNS. Nothing is out when it comes.
func (pl *planner) routed(now time.Time, r mx.Route, err error) {
	pl.route.asked = false
	switch {
	case err == nil && r.NoMail != smtp.ReasonNone:
		pl.route.closed = r.NoMail
		return
	case err != nil || !reachable(r):
		pl.route.silent = true
		return
	}
	pl.route.Route, pl.route.hosts = r, wire.Hosts(r.Hosts)
	pl.place()
	pl.askCluster(now)
}

// reachable says whether a route has an address to dial; no receiver takes an
// offer without one.
func reachable(r mx.Route) bool {
	for _, h := range r.Hosts {
		if len(h.Addrs) > 0 {
			return true
		}
	}
	return false
}

// hostsOf is how many hosts have to deny that they serve the domain before that is
// believed: those of the route, and those of an older one that were asked.
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

// place finds the key of the route's receiver, and leaves the receiver of another one.
func (pl *planner) place() {
	pl.route.version = pl.options.version()
	if key := pl.options.Match(pl.route.Route); key != pl.route.key {
		pl.route.key = key
		pl.abandon()
	}
}

// follow looks for the receiver anew when what its key rests on has changed. A receiver
// that has work of ours sends a pulse each second, so it is not long until then.
func (pl *planner) follow() {
	if pl.route.key != "" && pl.options.version() != pl.route.version {
		pl.place()
	}
}
