package egress

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"
)

const (
	// interceptedAt is how many unrelated receivers, at as many addresses, one stranger has to answer for, and
	// accept everything, until it is believed that our network is intercepted. Two may be customers of one
	// host that have names of their own.
	interceptedAt = 3

	// interceptedFor is how long that is believed, and how long what a stranger has said is kept: then it is
	// found out again. In hours of Pool.Hour.
	interceptedFor = time.Hour

	// greetingsMax bounds the strangers that are kept. Beyond it one is forgotten for each new one.
	greetingsMax = 4096
)

// greetings tell when somebody else answers on port 25 in place of the hosts that are dialled: one stranger
// greets for unrelated domains and accepts everything. The zero value is ready; safe for concurrent use.
type greetings struct {
	mu sync.Mutex
	by map[string]*greeting // guarded by mu; by what Stranger gives
}

// greeting is what one stranger has answered.
type greeting struct {
	since    time.Time
	refused  bool                  // it tells mailboxes apart: at worst it stands between us and the truth
	accepted map[string]netip.Addr // the hosts' addresses, by registrable domain; at most interceptedAt
}

// Stranger is the name by which a session was greeted, in lower case, when that has nothing to do with the MX
// host that was dialled: another registrable domain. Empty: it has, or no name was shown in the greeting nor in
// the reply to EHLO.
func Stranger(host, greeting, hello string) string {
	for _, text := range []string{greeting, hello} {
		name, _, _ := strings.Cut(strings.TrimSpace(text), " ")
		name = strings.ToLower(strings.Trim(name, ".[]<>"))
		if !strings.Contains(name, ".") || strings.ContainsAny(name, "@/:*") {
			continue
		}
		if registrable(name) == registrable(strings.ToLower(host)) {
			return ""
		}
		return name
	}
	return ""
}

// registrable is the registrable domain of a name, or the name where it has none.
func registrable(name string) string {
	if base, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return base
	}
	return name
}

// NoteStranger notes what a stranger answered to a RCPT in place of an MX host, and reports whether that shows
// for the first time that our network is intercepted.
func (p *Pool) NoteStranger(name, host string, at netip.Addr, accepted bool, now time.Time) bool {
	gs := &p.greetings
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.by[name]
	if g == nil || now.Sub(g.since) >= p.Hour.Of(interceptedFor) {
		for other := range gs.by {
			if len(gs.by) < greetingsMax {
				break
			}
			delete(gs.by, other)
		}
		if gs.by == nil {
			gs.by = map[string]*greeting{}
		}
		g = &greeting{since: now, accepted: map[string]netip.Addr{}}
		gs.by[name] = g
	}
	if g.refused = g.refused || !accepted; g.refused || len(g.accepted) == interceptedAt {
		return false
	}
	for _, known := range g.accepted {
		if known == at {
			return false
		}
	}
	g.accepted[registrable(host)] = at
	if len(g.accepted) < interceptedAt {
		return false
	}
	g.since = now
	return true
}

// Intercepts reports whether a stranger is believed to answer in place of the hosts that are dialled.
func (p *Pool) Intercepts(name string, now time.Time) bool {
	if name == "" {
		return false
	}
	gs := &p.greetings
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.by[name]
	return g != nil && !g.refused && len(g.accepted) == interceptedAt && now.Sub(g.since) < p.Hour.Of(interceptedFor)
}
