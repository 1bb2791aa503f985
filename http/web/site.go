package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
)

// FormMax bounds the body of a form, in bytes. The customers' listener has the same bound.
const FormMax = 8 << 10

// Site is the common part of customers' and operators' pages: routing, answers without a page, and writing pages and
// their parts. Safe for concurrent use once all routes are added.
type Site struct {
	Pages  *Pages
	assets *Assets
	mux    *http.ServeMux
	guard  http.Handler
	log    *slog.Logger
	fail   func(http.ResponseWriter, *http.Request, Failure)
}

// NewSite reads the pages of a folder. fail answers with the page "error".
func NewSite(files fs.FS, funcs template.FuncMap, log *slog.Logger,
	fail func(http.ResponseWriter, *http.Request, Failure)) (*Site, error) {
	s := &Site{mux: http.NewServeMux(), log: log, fail: fail}
	var err error
	if s.assets, err = NewAssets(); err != nil {
		return nil, err
	}
	if s.Pages, err = NewPages(s.assets, files, funcs); err != nil {
		return nil, err
	}
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, Failure{Status: http.StatusForbidden, Title: "This request came from another site",
			Text: "Your browser says that another site sent this form. Nothing was changed.",
			Next: "Open the page here and send the form again."})
	}))
	s.guard = cross.Handler(http.HandlerFunc(s.findRoute))
	return s, nil
}

// Handle adds a route, as http.ServeMux does.
func (s *Site) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// PatternOf is the route of a request; "" for none.
func (s *Site) PatternOf(r *http.Request) string {
	_, pattern := s.mux.Handler(r)
	return pattern
}

// Serve answers a request with prepared context and headers. id is its number, for the log.
func (s *Site) Serve(w http.ResponseWriter, r *http.Request, id string) {
	defer s.answerPanic(w, r, id)
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, FormMax)
	}
	s.guard.ServeHTTP(w, r)
}

// answerPanic answers after a panic.
func (s *Site) answerPanic(w http.ResponseWriter, r *http.Request, id string) {
	if fault := recover(); fault != nil {
		s.log.Error("page panicked", "request", id, "err", fmt.Sprintf("%T", fault))
		s.fail(w, r, Failure{Status: http.StatusServiceUnavailable, Title: "A fault on our side",
			Text: "This page couldn't be made.", Next: "Try again. If it keeps failing, send us the request number below."})
	}
}

// findRoute finds the route. The mux's own answers are replaced by pages.
func (s *Site) findRoute(w http.ResponseWriter, r *http.Request) {
	if s.PatternOf(r) != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if s.PatternOf(&http.Request{Method: method, URL: r.URL, Host: r.Host}) != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.fail(w, r, Failure{Status: http.StatusMethodNotAllowed, Title: "This page can't handle this request",
			Text: "The page doesn't support this kind of request.", Next: "Go back and open the page again."})
		return
	}
	s.fail(w, r, Nothing)
}

// Nothing is the failure for a page that does not exist.
var Nothing = Failure{Status: http.StatusNotFound, Title: "There is nothing here",
	Text: "This page doesn't exist, or you aren't a member of its workspace.",
	Next: "Check the link, or ask the person who gave it to you.", Link: "/", Label: "To the first page"}

// Asset answers for a file that pages need, by its name in the path.
func (s *Site) Asset(w http.ResponseWriter, r *http.Request) {
	if !s.assets.Serve(w, r, r.PathValue("name")) {
		s.fail(w, r, Nothing)
	}
}

// Status is the body of the page "status".
type Status struct{ Ledger, Checks bool } // the ledger answers; addresses are checked

// Announce sets the status and headers of a failure. After a GET the page reloads itself after RetryAfter seconds.
func (f Failure) Announce(w http.ResponseWriter, r *http.Request) (reload int) {
	if f.After == 0 {
		return 0
	}
	w.Header().Set("Retry-After", strconv.Itoa(f.After))
	if r.Method != http.MethodGet {
		return 0
	}
	return max(f.After, 2)
}

// emptyTag is the placeholder for a part's tag.
const emptyTag = `data-etag=""`

// TagOf is the tag of a part; it includes more.
func TagOf(body []byte, more string) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:12]) + more + `"`
}

// WithTag writes the tag of a part into it, so that its next request names it.
func WithTag(body []byte, tag string, more string) string {
	return strings.Replace(string(body), emptyTag, `data-etag="`+template.HTMLEscapeString(tag)+`"`+more, 1)
}

// WritePart answers with a part that refreshes itself, or 304 when it has not changed.
func WritePart(w http.ResponseWriter, r *http.Request, body []byte) {
	tag := TagOf(body, "")
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	WriteHTML(w, http.StatusOK, []byte(WithTag(body, tag, "")))
}

// WriteHTML answers with HTML.
func WriteHTML(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Confirm is the body of the page "confirm", which asks before something that can't be undone.
type Confirm struct {
	Title        string
	Up, Back     string   // the page before: its name and path
	Text         []string // what would happen
	Done         string   // why the action is no longer possible; "": it is
	Action, Verb string   // "" for Action: the user may not do it
	Stay         string   // text of the link back
}
