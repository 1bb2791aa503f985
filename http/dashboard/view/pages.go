package view

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// answerMax bounds a page: fasthttp's adaptor holds all of it.
const answerMax = 512 << 10

//go:embed layout.html error.html parts
var shared embed.FS

// Frame is what the layout shows of every page. The data of a page embeds it, has a field Body for the template "body", and
// what the template "head" of its face needs.
type Frame struct {
	Title     string
	RequestID string // "": not shown
	Colours   string // "light", "dark", "": same as the system
	Contact   string // "": none
	Reload    int    // seconds; 0: the page does not load itself again
	Live      bool   // parts of it are asked for again
	Script    string // an asset of this page alone; "": none
	Secret    bool   // its URL is one: no other site hears of it
}

// Pages are the parsed templates by name.
type Pages struct{ byName map[string]*template.Template }

// NewPages parses every page in a folder with the layout, the shared parts, the error page and the face's own parts, which
// define at least "head". The functions add to those of this package.
func NewPages(a *Assets, files fs.FS, parts []string, funcs template.FuncMap) (*Pages, error) {
	all := template.FuncMap{"asset": a.URL, "num": Thin[int64], "when": When, "clock": Clock, "stamp": Stamp, "size": Size,
		"share": Share, "plural": pluralOf, "exact": Exact, "email": isEmail, "short": Short}
	maps.Copy(all, funcs)
	base, err := template.New("").Funcs(all).ParseFS(shared, "layout.html", "parts/*.html")
	if err == nil && len(parts) > 0 {
		base, err = base.ParseFS(files, parts...)
	}
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		return nil, err
	}
	p := &Pages{byName: map[string]*template.Template{}}
	for _, name := range names {
		if err := p.add(base, files, name); err != nil {
			return nil, err
		}
	}
	return p, p.add(base, shared, "error.html")
}

// add parses the page of one file beside what all share.
func (p *Pages) add(base *template.Template, files fs.FS, name string) error {
	own, err := base.Clone()
	if err == nil {
		own, err = own.ParseFS(files, name)
	}
	p.byName[strings.TrimSuffix(path.Base(name), ".html")] = own
	return err
}

// Render answers with a whole page. It panics for one that cannot be made, which is a fault of ours.
func (p *Pages) Render(w http.ResponseWriter, status int, name string, data any) {
	body := p.Part(name, "layout", data)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// Part makes one template of a page. It panics as Render does.
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
	Link, Label string // where to go on; "" for nowhere
	After       int    // Retry-After in seconds; 0: none
}

// Secure sets the headers that every answer of a page has. connect are origins that scripts may ask beside our own, form those
// that forms may lead to; https says that browsers reach us only so.
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

// coloursCookie keeps which colours somebody wants. It is no secret.
const coloursCookie = "rollcall-colours"

// ColoursOf reads which colours a browser wants: "light", "dark" or "".
func ColoursOf(r *http.Request) string {
	if c, err := r.Cookie(coloursCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// SetColours keeps which colours a browser wants: "light" or "dark"; anything else forgets it.
func SetColours(w http.ResponseWriter, colours string) {
	c := &http.Cookie{Name: coloursCookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: assetAge}
	if colours == "light" || colours == "dark" {
		c.Value = colours
	} else {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}
