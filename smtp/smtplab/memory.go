package smtplab

import (
	"hash/maphash"
	"sync"
	"time"
)

// greylistMax bounds a receiver's greylisted triplets; a further new one passes. Guess: more than any test asks of
// one receiver.
const greylistMax = 1 << 17

// greylistPasses is how many triplets of a client must pass before it is no longer greylisted: Postgrey's default.
const greylistPasses = 5

// clientsMax bounds the clients that a receiver distinguishes; further ones share a record. A lab has a handful.
const clientsMax = 1 << 10

// memory is what one receiver remembers between sessions.
type memory struct {
	hour time.Duration // length of an hour of the guards

	mu       sync.Mutex // guards the fields below
	firstOne string     // the client that connected first
	open     map[*session]struct{}
	mostOpen int    // largest number of open sessions, with a new one
	visits   int    // sessions ever
	rcpts    window // for Personality.RcptsPerSecond
	connects window // for Personality.ConnectsPerMinute
	triplets map[uint64]triplet
	clients  map[string]*client
}

// client is a receiver's record of one source and return path.
type client struct {
	passed  int       // greylisted triplets that came back in time
	refused window    // RCPTs refused within an hour
	asked   window    // RCPTs within an hour
	blocked time.Time // end of a guard's block
	tripped int       // session that tripped the guard
	hello   string    // first hello name within the hour
	helloAt time.Time
}

// visit describes a new session to its receiver.
type visit struct {
	number  int  // counts the sessions of the receiver from 1
	open    int  // sessions at once with this one, at the receiver
	atHost  int  // the same at its host
	refused bool // a limit of the receiver refuses it
}

// enter counts a session. Sessions closed by the client do not count as open, even before our goroutine notices: a
// client that closes one and then opens another keeps to a limit of one.
func (m *memory) enter(s *session, now time.Time) visit {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := s.p
	m.visits++
	if m.visits == 1 {
		m.firstOne = s.client
	}
	if m.open == nil {
		m.open = make(map[*session]struct{})
	}
	limit := m.mostOpen
	if p.SessionsMax > 0 {
		limit = min(limit, p.SessionsMax)
	}
	if len(m.open) >= limit {
		for other := range m.open {
			if clientLeft(other.link.under) {
				delete(m.open, other)
			}
		}
	}
	v := visit{number: m.visits, open: len(m.open) + 1, atHost: 1}
	for other := range m.open {
		if other.host == s.host {
			v.atHost++
		}
	}
	m.mostOpen = max(m.mostOpen, v.open)
	m.connects.span = time.Minute
	tooMany := p.SessionsMax > 0 && v.open > p.SessionsMax
	rateLimited := p.ConnectsPerMinute > 0 && m.connects.add(now) > p.ConnectsPerMinute
	if v.refused = tooMany || rateLimited; !v.refused {
		m.open[s] = struct{}{}
	}
	return v
}

func (m *memory) leave(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, s)
}

// rateLimited counts a RCPT and reports whether it exceeds limit in a second. An exceeding one is not counted, so a
// client that slows down gets through.
func (m *memory) rateLimited(limit int, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rcpts.span = time.Second
	if m.rcpts.count(now) >= limit {
		return true
	}
	m.rcpts.add(now)
	return false
}

// clientOf returns the record of a client, and makes it if needed. The caller holds m.mu.
func (m *memory) clientOf(key string) *client {
	if m.clients == nil {
		m.clients = make(map[string]*client)
	}
	if len(m.clients) >= clientsMax && m.clients[key] == nil {
		key = ""
	}
	c := m.clients[key]
	if c == nil {
		c = &client{refused: window{span: m.hour}, asked: window{span: m.hour}}
		m.clients[key] = c
	}
	return c
}

type greylistRule struct {
	wait   time.Duration
	early  bool // a client that comes too early waits again
	always bool // even after many triplets of the client have passed
}

// greylist returns how long a triplet must still wait, 0 or less when it passes, and whether it was deferred before.
func (m *memory) greylist(who, rcpt string, g greylistRule, now time.Time) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, wait := m.clientOf(who), g.wait
	if c.passed >= greylistPasses && !g.always {
		return 0, true
	}
	if m.triplets == nil {
		m.triplets = make(map[uint64]triplet)
	}
	key := maphash.String(tripletSeed, who+"\x00"+rcpt)
	t, known := m.triplets[key]
	if !known {
		if len(m.triplets) >= greylistMax {
			return 0, false
		}
		m.triplets[key] = triplet{first: now}
		return wait, false
	}
	if left := wait - now.Sub(t.first); left > 0 && !t.passed {
		if g.early {
			m.triplets[key] = triplet{first: now}
			left = wait
		}
		return left, true
	}
	if !t.passed {
		if !g.always {
			c.passed++
		}
		t.passed = true
		m.triplets[key] = t
	}
	return 0, true
}

// triplet is a greylisting receiver's record of client, return path and address together.
type triplet struct {
	first  time.Time
	passed bool
}

// tripletSeed is fixed for the process; triplets are never shown.
var tripletSeed = maphash.MakeSeed()

// firstContact reports whether a client must return in another session, as at Postfix's postscreen.
func (m *memory) firstContact(who string, visit int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clientOf(who)
	if c.passed == 0 {
		c.passed = visit
	}
	return c.passed == visit
}
