package providertest

import (
	"html/template"
	"net/http"
	"net/url"
	"time"
)

// Person is who is signed in at the provider's page.
func (p *Provider) Person(subject, email string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person = map[string]string{"subject": subject, "email": email}
}

var authorize = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><head><title>Provider</title>
<link rel="icon" href="data:,"><meta name="viewport" content="width=device-width"></head><body><main><h1>The page of the provider</h1>
<form method="post" action="/authorize?{{.Asked}}"><button name="do" value="go">Go on as {{.Email}}</button>
<button name="do" value="refuse">Refuse</button></form></main></body></html>`))

// page answers GET /authorize (OpenID Connect Core 1.0 §3.1.2.3): the person may continue or refuse.
func (p *Provider) page(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	email := p.person["email"]
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := authorize.Execute(w, map[string]any{"Asked": template.URL(r.URL.RawQuery), "Email": email}); err != nil {
		p.t.Error(err)
	}
}

// decide answers POST /authorize (OpenID Connect Core 1.0 §3.1.2.5 and 3.1.2.6): a redirect with a code, or with an
// error.
func (p *Provider) decide(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	back := url.Values{"state": {asked.Get("state")}}
	if r.PostFormValue("do") == "go" {
		p.mu.Lock()
		subject, email := p.person["subject"], p.person["email"]
		p.mu.Unlock()
		back.Set("code", p.Give(p.Claims(asked, time.Now(), subject, email), asked))
	} else {
		back.Set("error", "access_denied")
	}
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}
