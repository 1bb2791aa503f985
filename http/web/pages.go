package web

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"strings"
)

// answerMax bounds a page, because fasthttp's adaptor holds all of it in memory.
const answerMax = 512 << 10

//go:embed layout.html parts pages
var shared embed.FS

// Frame is the layout's data of every page. The data of a page embeds it, has a field Body for the template "body", and
// the data of the template "who" (customers' or operators').
type Frame struct {
	Title     string
	RequestID string   // "": not shown
	Colours   string   // "light", "dark", "": same as the system
	Contact   string   // "": none
	Version   string   // of the program
	Nav       []Entry  // the menu
	Here      string   // entry of this page
	Reload    int      // seconds; 0: the page does not load itself again
	Live      bool     // parts of it refresh themselves
	Scripts   []string // assets of this page alone
	Secret    bool     // its URL is a secret: no Referer for other sites
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

// bodyOf is the template of a page's file, which begins with its body; its own parts follow.
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
	Link, Label string // where to go on; "" for nowhere
	After       int    // Retry-After in seconds; 0: none
}

// Secure sets the headers that every answer of a page has. connect are further origins for requests of scripts, form
// further origins for forms; https says that browsers use only https.
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
