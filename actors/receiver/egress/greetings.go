package egress

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
)

const (
	// strangerAt is how many unrelated receivers show that our network is intercepted. At each, the same stranger accepted
	// a mailbox that nobody has, and it refused none. Guess: two may be catch-all customers of one host.
	strangerAt = 3

	// unnamedAt is the same number for servers that show no name and greet alike. Guess: more, because they may be
	// unrelated.
	unnamedAt = 5

	// interceptedFor is how long the network counts as intercepted, and how long we keep a stranger's answers. In hours of
	// Pool.Hour.
	interceptedFor = time.Hour

	// greetingsMax bounds the greeters that are kept, and the hosts whose greeter is kept. Beyond greetingsMax the least
	// recently used greeters are forgotten.
	greetingsMax = 4096

	// unnamed begins the key of a server without a name. At most unnamedBytes of the server's words follow.
	unnamed      = "unnamed:"
	unnamedBytes = 120
)

// greetings find out whether somebody else answers on port 25 in place of the hosts that we dial. Such a stranger
// greets for unrelated domains and accepts everything. Safe for concurrent use.
type greetings struct {
	mu    sync.Mutex
	by    *simplelru.LRU[string, *greeting] // guarded by mu; by greeter
	apart *simplelru.LRU[string, string]    // guarded by mu; by MX host: the greeter of its last refusal
}

func newGreetings() greetings {
	return greetings{by: newLRU[*greeting](greetingsMax), apart: newLRU[string](greetingsMax)}
}

func newLRU[V any](most int) *simplelru.LRU[string, V] {
	memory, err := simplelru.NewLRU[string, V](most, nil)
	if err != nil {
		panic(err)
	}
	return memory
}

// greeting holds the answers of one stranger.
type greeting struct {
	since    time.Time
	refused  bool                  // the stranger tells mailboxes apart
	accepted map[string]netip.Addr // addresses of the hosts, by registrable domain; no more than needed
}

func (g *greeting) fresh(hour throttle.Hour, now time.Time) bool {
	return g != nil && now.Sub(g.since) < hour.Of(interceptedFor)
}

// enough is how many receivers must show the same greeter before the network counts as intercepted.
func enough(greeter string) int {
	if strings.HasPrefix(greeter, unnamed) {
		return unnamedAt
	}
	return strangerAt
}

// Greeter names who greeted a session in place of the MX host that we dialled. The name is another registrable domain
// or, if the greeting and the EHLO reply show no name, their words. Empty: the host itself greeted.
func Greeter(host, greeting, hello string) string {
	for _, text := range []string{greeting, hello} {
		name, _, _ := strings.Cut(strings.TrimSpace(text), " ")
		name = strings.ToLower(strings.Trim(name, ".[]<>"))
		if !strings.Contains(name, ".") || strings.ContainsAny(name, "@/:*") {
			continue
		}
		if name = mx.Registrable(name); name == mx.Registrable(strings.ToLower(host)) {
			return ""
		}
		return name
	}
	said := strings.Map(func(r rune) rune { // drop clocks, tickets and our address from the words
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, greeting+" "+hello)
	return unnamed + said[:min(len(said), unnamedBytes)]
}

// NoteRefused notes that a greeter refused an address at an MX host: it tells mailboxes apart.
func (p *Pool) NoteRefused(greeter, host string, now time.Time) {
	gs := &p.greetings
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.apart.Add(host, greeter)
	if greeter != "" {
		p.greeting(greeter, now).refused = true
	}
}

// NoteAccepted notes that a stranger, in place of an MX host, accepted a mailbox that nobody has. NoteAccepted reports
// whether this shows for the first time that our network is intercepted.
func (p *Pool) NoteAccepted(greeter, host string, at netip.Addr, now time.Time) bool {
	gs := &p.greetings
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g, enough := p.greeting(greeter, now), enough(greeter)
	if g.refused || len(g.accepted) == enough {
		return false
	}
	for _, known := range g.accepted {
		if known == at {
			return false
		}
	}
	g.accepted[mx.Registrable(host)] = at
	if len(g.accepted) < enough {
		return false
	}
	g.since = now
	return true
}

// greeting returns the entry of a greeter, or makes a new entry. The caller holds the lock.
func (p *Pool) greeting(greeter string, now time.Time) *greeting {
	if g, _ := p.greetings.by.Get(greeter); g.fresh(p.Hour, now) {
		return g
	}
	g := &greeting{since: now, accepted: map[string]netip.Addr{}}
	p.greetings.by.Add(greeter, g)
	return g
}

// Intercepts reports whether a greeter counts as answering in place of the hosts that we dial.
func (p *Pool) Intercepts(greeter string, now time.Time) bool {
	if greeter == "" {
		return false
	}
	gs := &p.greetings
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g, _ := gs.by.Get(greeter)
	return g.fresh(p.Hour, now) && !g.refused && len(g.accepted) == enough(greeter)
}

// Doubts reports whether a greeter's acceptances at an MX host don't count. The acceptances don't count if another
// greeter told mailboxes apart there before, and the present greeter has refused no address. A host may greet with
// several names in turn.
func (p *Pool) Doubts(greeter, host string, now time.Time) bool {
	if greeter == "" {
		return false
	}
	gs := &p.greetings
	gs.mu.Lock()
	defer gs.mu.Unlock()
	before, known := gs.apart.Get(host)
	g, _ := gs.by.Get(greeter)
	return known && before != greeter && !(g.fresh(p.Hour, now) && g.refused)
}
