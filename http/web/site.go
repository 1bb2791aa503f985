package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"path"
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

// NewSite reads the pages of a folder, and panics if one has a fault. fail answers with the page "error".
func NewSite(files fs.FS, funcs template.FuncMap, log *slog.Logger,
	fail func(http.ResponseWriter, *http.Request, Failure)) *Site {
	s := &Site{mux: http.NewServeMux(), log: log, fail: fail, assets: NewAssets()}
	s.Pages = must(NewPages(s.assets, files, funcs))
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, Failure{Status: http.StatusForbidden, Title: "This request came from another site",
			Text: "Your browser says that another site sent this form. Nothing was changed.",
			Next: "Open the page here and send the form again."})
	}))
	s.guard = cross.Handler(http.HandlerFunc(s.findRoute))
	return s
}

// Handle adds a route, as http.ServeMux does.
func (s *Site) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// PatternOf returns the route of a request, or "".
func (s *Site) PatternOf(r *http.Request) string {
	_, pattern := s.mux.Handler(r)
	return pattern
}

// Serve answers a request whose context and headers are prepared. id is its number, for the log.
func (s *Site) Serve(w http.ResponseWriter, r *http.Request, id string) {
	defer s.answerPanic(w, r, id)
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, FormMax)
	}
	s.guard.ServeHTTP(w, r)
}

func (s *Site) answerPanic(w http.ResponseWriter, r *http.Request, id string) {
	if fault := recover(); fault != nil {
		s.log.Error("page panicked", "request", id, "err", fmt.Sprintf("%T", fault))
		s.fail(w, r, Failure{Status: http.StatusServiceUnavailable, Title: "A fault on our side",
			Text: "This page couldn't be made.", Next: "Try again. If it keeps failing, send us the request number below."})
	}
}

// findRoute finds the route. Pages replace the mux's own answers.
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
type Status struct{ Ledger, Checks bool } // whether the ledger answers; whether addresses are checked

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

// TagOf returns the ETag of a part: the hash of its body, followed by more.
func TagOf(body []byte, more string) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:12]) + more + `"`
}

// WithTag writes a part's tag into the part, so that the browser's next request contains it.
func WithTag(body []byte, tag string, more string) string {
	return strings.Replace(string(body), emptyTag, `data-etag="`+template.HTMLEscapeString(tag)+`"`+more, 1)
}

// WritePart answers with a part that refreshes itself, or with 304 if the part has not changed.
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

// Confirm is the body of the page "confirm", which asks before an action that can't be undone.
type Confirm struct {
	Title        string
	Up, Back     string   // the page before: its name and path
	Text         []string // what would happen
	Done         string   // why the action is no longer possible; "": it is possible
	Action, Verb string   // "" for Action: the user may not do it
	Stay         string   // text of the link back
}

// answerMax bounds a page, because fasthttp's adaptor keeps all of it in memory.
const answerMax = 512 << 10

//go:embed layout.html parts pages
var shared embed.FS

// Frame is the layout's data of every page. The data of a page embeds it, and has a field Body for the template "body"
// and the data of the template "who" (customers' or operators').
type Frame struct {
	Title     string
	RequestID string   // "": not shown
	Colours   string   // "light", "dark", "": same as the system
	Contact   string   // "": none
	Version   string   // of the program
	Nav       []Entry  // the menu
	Here      string   // entry of this page
	Reload    int      // seconds; 0: the page does not load itself again
	Live      bool     // parts of the page refresh themselves
	Scripts   []string // assets of this page alone
	Secret    bool     // the page's URL is a secret: send no Referer to other sites
}

// Entry is a link of the menu.
type Entry struct{ Key, Link, Word string }

// Pages are the parsed templates by name.
type Pages struct{ byName map[string]*template.Template }

// NewPages parses every page in a folder with the layout, the shared parts and pages, and the folder's own parts, which
// define at least "who". The functions are added to those of this package.
func NewPages(a *Assets, files fs.FS, more template.FuncMap) (*Pages, error) {
	funcs := template.FuncMap{"asset": a.URL}
	maps.Copy(funcs, formats)
	maps.Copy(funcs, more)
	base := template.New("").Funcs(funcs)
	if _, err := parseAll(base, shared, "layout.html", "parts/*.html"); err != nil {
		return nil, err
	}
	if _, err := parseAll(base, files, "pages/parts/*.html"); err != nil {
		return nil, err
	}
	p := &Pages{byName: map[string]*template.Template{}}
	for _, from := range []struct {
		files fs.FS
		glob  string
	}{{shared, "pages/*.html"}, {files, "pages/*.html"}} {
		names, err := fs.Glob(from.files, from.glob)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			own, err := base.Clone()
			if err == nil {
				own, err = parseAll(own, from.files, name)
			}
			if err != nil {
				return nil, err
			}
			p.byName[strings.TrimSuffix(path.Base(name), ".html")] = own
		}
	}
	return p, nil
}

// parseAll parses files into a template, with their tables.
func parseAll(to *template.Template, files fs.FS, globs ...string) (*template.Template, error) {
	for _, glob := range globs {
		names, err := fs.Glob(files, glob)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			source, err := fs.ReadFile(files, name)
			text := string(source)
			if path.Dir(name) == "pages" {
				text = bodyOf(text)
			}
			if err == nil {
				text, err = expand(text)
			}
			if err == nil {
				_, err = to.Parse(text)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return to, nil
}

// bodyOf returns the body template of a page's file. The file begins with it; the file's other templates follow.
func bodyOf(source string) string {
	body, parts, _ := strings.Cut("\n"+source, "\n{{define ")
	text := `{{define "body"}}{{with .Body}}` + body + "{{end}}{{end}}"
	if parts != "" {
		text += "\n{{define " + parts
	}
	return text
}

// Render answers with a whole page. It panics if the template fails, which is a bug.
func (p *Pages) Render(w http.ResponseWriter, status int, name string, data any) {
	WriteHTML(w, status, p.Part(name, "layout", data))
}

// Part renders one template of a page. It panics like Render.
func (p *Pages) Part(name, part string, data any) []byte {
	var b bytes.Buffer
	if err := p.byName[name].ExecuteTemplate(&b, part, data); err != nil {
		panic(fmt.Errorf("page %s: %w", name, err))
	}
	if b.Len() > answerMax {
		panic(fmt.Errorf("page %s: %d bytes", name, b.Len()))
	}
	return b.Bytes()
}

// Failure is the body of the page "error": what happened and what to do.
type Failure struct {
	Status      int
	Title       string
	Text, Next  string
	Link, Label string // link to continue; "": none
	After       int    // Retry-After in seconds; 0: none
}

// Error implements error: a handler returns a Failure to answer with the page "error".
func (f Failure) Error() string { return f.Title }

// Secure sets the headers that every answer of a page has. connect are further origins to which scripts may send
// requests, form further origins to which forms may lead. https says that browsers use only https.
func Secure(h http.Header, connect, form string, https bool) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		strings.TrimSpace("connect-src 'self' "+connect)+"; "+strings.TrimSpace("form-action 'self' "+form)+
		"; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types default")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if https {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// coloursCookie stores the chosen colours. It is no secret.
const coloursCookie = "rollcall-colours"

// ColoursOf reads the chosen colours of a browser: "light", "dark" or "".
func ColoursOf(r *http.Request) string {
	if c := CookieOf(r, coloursCookie); c == "light" || c == "dark" {
		return c
	}
	return ""
}

// SetColours stores the colours of a form: light or dark; anything else deletes the choice. It redirects to a path.
func SetColours(w http.ResponseWriter, r *http.Request, to string) {
	c := &http.Cookie{Name: coloursCookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: assetAge,
		Value: r.PostFormValue("colours")}
	if c.Value != "light" && c.Value != "dark" {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(w, c)
	http.Redirect(w, r, to, http.StatusSeeOther)
}
