package operate

import (
	"net/http"
	"time"

	"rollcall/http/api"
	"rollcall/http/web"
)

// signView is the page that says how to get a link.
type signView struct{ Bearable bool }

// linkView is the page of a link.
type linkView struct {
	Author   string
	ReadOnly bool
	Until    time.Time
}

// signIn answers GET /sign-in.
func signIn(p *Pages, w http.ResponseWriter, r *request) {
	next := r.URL.Query().Get("next")
	if r.in.ID != (sessionID{}) {
		http.Redirect(w, r.Request, p.pageOr(next, "/"), http.StatusSeeOther)
		return
	}
	if next != "" { // as the link of a part whose session is over has it; the page is then opened without it
		p.keepNext(w, r.Request, next)
		http.Redirect(w, r.Request, "/sign-in", http.StatusSeeOther)
		return
	}
	p.show(w, r, http.StatusOK, "sign-in", &frame{Frame: web.Frame{Title: "Sign in"}, Body: signView{p.bearable(r.Request)}})
}

// showLink answers GET /link/{code}. It does not use it up.
func showLink(p *Pages, w http.ResponseWriter, r *request) {
	c, ok := p.keeper.look(r.PathValue("code"), false)
	switch {
	case !p.bearable(r.Request):
		p.unbearable(w, r)
	case !ok:
		p.overLink(w, r)
	default:
		w.Header().Set("Referrer-Policy", "no-referrer")
		r.in = session{}
		p.show(w, r, http.StatusOK, "link", &frame{Frame: web.Frame{Title: "Sign in", Secret: true},
			Body: linkView{c.author, c.readOnly, c.until}})
	}
}

// useLink answers POST /link/{code}.
func useLink(p *Pages, w http.ResponseWriter, r *request) {
	if !p.bearable(r.Request) {
		p.unbearable(w, r)
		return
	}
	c, ok := p.keeper.look(r.PathValue("code"), true)
	if !ok {
		p.overLink(w, r)
		return
	}
	if r.in.ID != (sessionID{}) {
		p.keeper.end(r.in)
	}
	p.keeper.begin(w, r.Request, c)
	http.Redirect(w, r.Request, p.takeNext(w, r.Request), http.StatusSeeOther)
}

// overLink answers for a link that was used or whose time is over.
func (p *Pages) overLink(w http.ResponseWriter, r *request) {
	p.fail(w, r.Request, web.Failure{Status: http.StatusNotFound, Title: "This link has expired",
		Text: "It was already used, or its minute has passed.",
		Next: "Run `rollcall operate` again, and open the link that it prints."})
}

// unbearable answers where a browser would not keep the cookie.
func (p *Pages) unbearable(w http.ResponseWriter, r *request) {
	p.fail(w, r.Request, web.Failure{Status: http.StatusForbidden, Title: "Encryption is required",
		Text: "This listener was reached over plain http from another machine, so others could read the session on its way.",
		Next: "Set admin.tls_cert and admin.tls_key, or reach the listener by a tunnel as 127.0.0.1, and run `rollcall operate` again."})
}

// signOut answers POST /sign-out.
func signOut(p *Pages, w http.ResponseWriter, r *request) {
	if r.in.ID != (sessionID{}) {
		p.keeper.end(r.in)
	}
	web.SetCookie(w, cookieOf(r.Request), "", -1, http.SameSiteStrictMode)
	w.Header().Set("Clear-Site-Data", `"cache"`)
	http.Redirect(w, r.Request, "/sign-in", http.StatusSeeOther)
}

// asset answers GET /assets/{name}.
func asset(p *Pages, w http.ResponseWriter, r *request) { p.Asset(w, r.Request) }

// guide answers GET /docs and GET /docs/{page}, and openAPI GET /openapi.yaml: what customers are told.
func guide(p *Pages, w http.ResponseWriter, r *request) {
	page, ok, err := web.Guide(r.PathValue("page"))
	if err != nil {
		panic(err)
	}
	if !ok {
		p.fail(w, r.Request, web.Nothing)
		return
	}
	p.show(w, r, http.StatusOK, "guide", titled(page.Title, "", page))
}

func openAPI(_ *Pages, w http.ResponseWriter, _ *request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(api.OpenAPI)
}
