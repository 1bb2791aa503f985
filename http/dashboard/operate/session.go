package operate

import (
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"rollcall/http/web"
)

const (
	// cookieName begins the name of the cookie of a session. The prefix makes browsers refuse it from other hosts and over
	// plain http.
	cookieName = "__Host-rollcall-operator"

	// codeHolds is how long a link can be used.
	codeHolds = time.Minute
	// codesMax bounds the links that wait for use; the oldest goes first.
	codesMax = 100

	// A session ends after idle without a page that somebody opened, and after life in all.
	idle = time.Hour
	life = 12 * time.Hour
	// sessionsMax bounds the sessions; the one that was used least lately goes first.
	sessionsMax = 1000
)

// sessionID is what a session is kept by: the SHA-256 of its cookie.
type sessionID [sha256.Size]byte

// session is who looks.
type session struct {
	ID       sessionID // zero: nobody is signed in
	Author   string    // of changes; "": it is not said
	ReadOnly bool
	Begun    time.Time
	Seen     time.Time
}

// keeper keeps sessions and the codes of links. No ledger and no other node is asked, and no other node takes them: they
// end with the process that made them. Safe for concurrent use.
type keeper struct {
	now func() time.Time

	mu       sync.Mutex
	codes    map[string]code // by the code
	sessions map[sessionID]session
}

// code is what a link is for.
type code struct {
	author   string
	readOnly bool
	until    time.Time
}

func newKeeper(now func() time.Time) *keeper {
	return &keeper{now: now, codes: map[string]code{}, sessions: map[sessionID]session{}}
}

// newCode makes a code that can be used once.
func (k *keeper) newCode(author string, readOnly bool) (string, time.Time) {
	name, now := rand.Text(), k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := ""
	for known, c := range k.codes {
		switch {
		case !now.Before(c.until):
			delete(k.codes, known)
		case oldest == "" || c.until.Before(k.codes[oldest].until):
			oldest = known
		}
	}
	if len(k.codes) >= codesMax {
		delete(k.codes, oldest)
	}
	k.codes[name] = code{author, readOnly, now.Add(codeHolds)}
	return name, now.Add(codeHolds)
}

// look says what a code is for, while it can be used. use takes it.
func (k *keeper) look(name string, use bool) (code, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.codes[name]
	if use {
		delete(k.codes, name)
	}
	return c, ok && k.now().Before(c.until)
}

// begin begins a session, and has the browser keep its cookie.
func (k *keeper) begin(w http.ResponseWriter, r *http.Request, c code) {
	cookie, now := rand.Text(), k.now()
	s := session{ID: sha256.Sum256([]byte(cookie)), Author: c.author, ReadOnly: c.readOnly, Begun: now, Seen: now}
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := s
	for id, one := range k.sessions {
		if !one.holds(now) {
			delete(k.sessions, id)
		} else if one.Seen.Before(oldest.Seen) {
			oldest = one
		}
	}
	if len(k.sessions) >= sessionsMax {
		delete(k.sessions, oldest.ID)
	}
	k.sessions[s.ID] = s
	web.SetCookie(w, cookieOf(r), cookie, 0, http.SameSiteStrictMode)
}

// holds reports whether a session isn't over.
func (s session) holds(now time.Time) bool {
	return now.Before(s.Begun.Add(life)) && now.Before(s.Seen.Add(idle))
}

// end ends a session, whatever cookie somebody kept of it.
func (k *keeper) end(s session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sessions, s.ID)
}

// of finds the session of a request; two cookies are none. A page that somebody opens counts as use.
func (k *keeper) of(r *http.Request, use bool) (session, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.sessions[sha256.Sum256([]byte(web.CookieOf(r, cookieOf(r))))]
	now := k.now()
	if !ok || !s.holds(now) {
		return session{}, false
	}
	if use {
		s.Seen = now
		k.sessions[s.ID] = s
	}
	return s, true
}

// cookieOf is the name of the cookie for who asked. Cookies know no ports, so the name carries the one that the browser
// asked for: sessions at two nodes of one machine, or by two tunnels, live side by side.
func cookieOf(r *http.Request) string {
	_, text, err := net.SplitHostPort(r.Host)
	if err != nil {
		return cookieName
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return cookieName
	}
	return cookieName + "-" + strconv.FormatUint(port, 10)
}
