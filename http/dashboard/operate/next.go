package operate

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"rollcall/http/web"
)

const (
	// nextHolds is how long a browser remembers which page somebody asked for without a session. A guess: long enough to find
	// a terminal and run a command, too short to surprise anybody the next day.
	nextHolds = 15 * time.Minute

	// nextMax bounds the path of that page with its query, in bytes. Ours are shorter; a longer one is not remembered.
	nextMax = 1 << 10
)

// nextCookie is the name of the cookie with that page. The link that `rollcall operate` prints knows nothing of it.
func nextCookie(r *http.Request) string { return cookieOf(r) + "-next" }

// keepNext has the browser remember where to go after signing in. It forgets what it remembered when that is no page of ours,
// or the first one.
func (p *Pages) keepNext(w http.ResponseWriter, r *http.Request, text string) {
	if to := p.pageOr(text, "/"); to != "/" {
		web.SetCookie(w, nextCookie(r), base64.RawURLEncoding.EncodeToString([]byte(to)), int(nextHolds/time.Second),
			http.SameSiteStrictMode)
	} else {
		dropNext(w, r)
	}
}

// takeNext says where to go after signing in, and forgets it: the page that was asked for, or the first one.
func (p *Pages) takeNext(w http.ResponseWriter, r *http.Request) string {
	kept := web.CookieOf(r, nextCookie(r))
	dropNext(w, r)
	text, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil {
		return "/"
	}
	return p.pageOr(string(text), "/")
}

// dropNext has the browser forget it.
func dropNext(w http.ResponseWriter, r *http.Request) {
	if len(r.CookiesNamed(nextCookie(r))) > 0 {
		web.SetCookie(w, nextCookie(r), "", -1, http.SameSiteStrictMode)
	}
}

// pageOr gives a path with its query when it is that of a page of ours that needs a session, and another text when not.
// Others can write the text: it must lead to no other site, and to nothing but a page.
func (p *Pages) pageOr(text, other string) string {
	plain := func(c rune) bool { return c > ' ' && c < 0x7f && c != '\\' }
	if len(text) > nextMax || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.ContainsFunc(text, func(c rune) bool { return !plain(c) }) {
		return other
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || u.Scheme != "" || u.Host != "" || path.Clean(u.Path) != u.Path {
		return other
	}
	if !p.lands[p.PatternOf(&http.Request{Method: http.MethodGet, URL: u})] {
		return other
	}
	return u.RequestURI()
}
