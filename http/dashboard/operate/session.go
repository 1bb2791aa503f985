package operate

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"rollcall/http/api"
	"rollcall/http/web"
)

const (
	// cookieName is the prefix of the names of session cookies. Because of "__Host-" browsers refuse such a cookie
	// from other hosts and over plain http.
	cookieName = "__Host-rollcall-operator"

	// codeHolds is how long a link is valid.
	codeHolds = time.Minute
	// codesMax bounds the stored links; the oldest is dropped first.
	codesMax = 100

	// An operator's session ends when no page was opened for idle, and in any case after life. Customers' sessions
	// have SessionIdle and SessionLife of package config.
	idle = time.Hour
	life = 12 * time.Hour
	// sessionsMax bounds the sessions; the least recently used is dropped first.
	sessionsMax = 1000
)

// sessionID is the key of a session: the SHA-256 of its cookie.
type sessionID [sha256.Size]byte

type session struct {
	ID       sessionID // zero: not signed in
	Author   string    // author of changes; "": not given
	ReadOnly bool
	Begun    time.Time
}

// sessionStore stores sessions and the codes of links in this process only, not in the ledger. So they are valid on
// no other node and end with the process. Safe for concurrent use.
type sessionStore struct {
	now      func() time.Time
	codes    *lru.Cache[string, code] // by the code
	sessions *lru.Cache[sessionID, *storedSession]
}

// storedSession is a session and the time when a page of it was opened last, in nanoseconds.
type storedSession struct {
	session
	seen atomic.Int64
}

// code is the purpose of a link.
type code struct {
	author   string
	readOnly bool
	until    time.Time
}

func newSessionStore(now func() time.Time) *sessionStore {
	k := &sessionStore{now: now}
	k.codes, _ = lru.New[string, code](codesMax)
	k.sessions, _ = lru.New[sessionID, *storedSession](sessionsMax)
	return k
}

// purposeOf returns the purpose of a valid code. With use it also uses the code up.
func (k *sessionStore) purposeOf(name string, use bool) (code, bool) {
	c, ok := k.codes.Peek(name)
	if use {
		ok = k.codes.Remove(name) && ok // true for only one of two simultaneous calls
	}
	return c, ok && k.now().Before(c.until)
}

// begin begins a session, and sets its cookie.
func (k *sessionStore) begin(w http.ResponseWriter, r *http.Request, c code) {
	cookie, now := rand.Text(), k.now()
	s := &storedSession{session: session{ID: sha256.Sum256([]byte(cookie)), Author: c.author, ReadOnly: c.readOnly,
		Begun: now}}
	s.seen.Store(now.UnixNano())
	k.sessions.Add(s.ID, s)
	web.SetCookie(w, cookieOf(r), cookie, 0, http.SameSiteStrictMode)
}

// end ends a session, so that its cookie no longer works.
func (k *sessionStore) end(s session) { k.sessions.Remove(s.ID) }

// of finds the session of a request. Two cookies count as none. Opening a page counts as use.
func (k *sessionStore) of(r *http.Request, use bool) (session, bool) {
	id, now := sessionID(sha256.Sum256([]byte(web.CookieOf(r, cookieOf(r))))), k.now()
	s, ok := k.sessions.Peek(id)
	if !ok || !now.Before(s.Begun.Add(life)) || !now.Before(time.Unix(0, s.seen.Load()).Add(idle)) {
		return session{}, false
	}
	if use {
		k.sessions.Get(id) // makes it the most recently used
		s.seen.Store(now.UnixNano())
	}
	return s.session, true
}

// cookieOf returns the name of the cookie for a request. Cookies ignore ports, so the name contains the port that the
// browser uses. Then sessions at two nodes of one machine, or through two tunnels, exist side by side.
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

type signView struct{ Bearable bool }

type linkView struct {
	Author   string
	ReadOnly bool
	Until    time.Time
}

func signIn(p *Pages, w http.ResponseWriter, r *request) error {
	next := r.URL.Query().Get("next")
	if r.in.ID != (sessionID{}) {
		return seeOther(w, r, p.pageOr(next))
	}
	if next != "" { // from a part whose session has ended; the page itself doesn't need it
		p.keepNext(w, r.Request, next)
		return seeOther(w, r, "/sign-in")
	}
	return p.show(w, r, http.StatusOK, "sign-in", titled("Sign in", "", signView{p.bearable(r.Request)}))
}

// showLink answers GET /link/{code}. It does not use the link up.
func showLink(p *Pages, w http.ResponseWriter, r *request) error {
	c, ok := p.sessions.purposeOf(r.PathValue("code"), false)
	switch {
	case !p.bearable(r.Request):
		return unbearable
	case !ok:
		return overLink
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	r.in = session{}
	return p.show(w, r, http.StatusOK, "link", &frame{Frame: web.Frame{Title: "Sign in", Secret: true},
		Body: linkView{c.author, c.readOnly, c.until}})
}

func useLink(p *Pages, w http.ResponseWriter, r *request) error {
	if !p.bearable(r.Request) {
		return unbearable
	}
	c, ok := p.sessions.purposeOf(r.PathValue("code"), true)
	if !ok {
		return overLink
	}
	p.sessions.end(r.in)
	p.sessions.begin(w, r.Request, c)
	return seeOther(w, r, p.takeNext(w, r.Request))
}

var overLink = web.Failure{Status: http.StatusNotFound, Title: "This link has expired",
	Text: "It was already used, or its minute has passed.",
	Next: "Run `rollcall operate` again, and open the link that it prints."}

// unbearable is the answer if a browser would not keep the cookie.
var unbearable = web.Failure{Status: http.StatusForbidden, Title: "Encryption is required",
	Text: "This listener was reached over plain http from another machine, so others could read the session on its way.",
	Next: "Set admin.tls_cert and admin.tls_key, or reach the listener by a tunnel as 127.0.0.1, and run " +
		"`rollcall operate` again."}

func signOut(p *Pages, w http.ResponseWriter, r *request) error {
	p.sessions.end(r.in)
	web.SetCookie(w, cookieOf(r.Request), "", -1, http.SameSiteStrictMode)
	w.Header().Set("Clear-Site-Data", `"cache"`)
	return seeOther(w, r, "/sign-in")
}

func asset(p *Pages, w http.ResponseWriter, r *request) error {
	p.Asset(w, r.Request)
	return nil
}

// guide answers GET /docs and GET /docs/{page}, the customers' documents. openAPI answers GET /openapi.yaml.
func guide(p *Pages, w http.ResponseWriter, r *request) error {
	page, err := web.Guide(r.PathValue("page"))
	if err != nil {
		return err
	}
	return p.show(w, r, http.StatusOK, "guide", titled(page.Title, "", page))
}

func openAPI(_ *Pages, w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(api.OpenAPI)
	return nil
}

const (
	// nextHolds is how long a browser remembers the page that was requested without a session. A guess: long enough to
	// find a terminal and run a command, too short to surprise anybody the next day.
	nextHolds = 15 * time.Minute

	// nextMax bounds the path and query of that page, in bytes. Our pages have shorter ones; a longer one is not
	// remembered.
	nextMax = 1 << 10
)

// nextCookie returns the name of the cookie with that page. The link of `rollcall operate` does not contain the page.
func nextCookie(r *http.Request) string { return cookieOf(r) + "-next" }

// keepNext sets a cookie with the page to show after signing in. It clears the cookie if the page is the first page
// or not one of ours.
func (p *Pages) keepNext(w http.ResponseWriter, r *http.Request, text string) {
	if to := p.pageOr(text); to != "/" {
		web.SetCookie(w, nextCookie(r), base64.RawURLEncoding.EncodeToString([]byte(to)), int(nextHolds/time.Second),
			http.SameSiteStrictMode)
	} else {
		dropNext(w, r)
	}
}

// takeNext returns the page to show after signing in, the remembered page or the first one, and clears the cookie.
func (p *Pages) takeNext(w http.ResponseWriter, r *http.Request) string {
	kept := web.CookieOf(r, nextCookie(r))
	dropNext(w, r)
	text, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil {
		return "/"
	}
	return p.pageOr(string(text))
}

func dropNext(w http.ResponseWriter, r *http.Request) {
	if len(r.CookiesNamed(nextCookie(r))) > 0 {
		web.SetCookie(w, nextCookie(r), "", -1, http.SameSiteStrictMode)
	}
}

// pageOr returns a path with its query if it is one of our pages that need a session, and otherwise the first page.
// Strangers can choose the path, so it must not lead to another site or to anything but a page.
func (p *Pages) pageOr(text string) string {
	plain := func(c rune) bool { return c > ' ' && c < 0x7f && c != '\\' }
	if len(text) > nextMax || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.ContainsFunc(text, func(c rune) bool { return !plain(c) }) {
		return "/"
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || u.Scheme != "" || u.Host != "" || path.Clean(u.Path) != u.Path {
		return "/"
	}
	if !p.lands[p.PatternOf(&http.Request{Method: http.MethodGet, URL: u})] {
		return "/"
	}
	return u.RequestURI()
}
