package dashboard

import (
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
)

// backPath is the path to which the provider sends browsers back.
const backPath = "/oidc/back"

// visitCookie holds a visit to the provider in the browser that began it.
const visitCookie = "__Host-rollcall-visit"

// visitAge is how long the browser keeps this cookie, in seconds. The service checks the time itself.
const visitAge = 600

// newProvider makes the client of the provider. It returns nil if no provider is configured.
func (o Options) newProvider() *signin.Provider {
	if o.Provider == nil {
		return nil
	}
	of := *o.Provider
	of.Redirect, of.Now = func() string { return o.PublicURL() + backPath }, o.Now
	return signin.NewProvider(of)
}

// providerName returns the provider's name on buttons, or "".
func (d *Dashboard) providerName() string {
	if d.o.Provider == nil {
		return ""
	}
	return d.o.Provider.Name
}

func startProvider(d *Dashboard, w http.ResponseWriter, r *request) error {
	return d.visit(w, r, signin.Visit{Next: localPath(r.URL.Query().Get("next"))})
}

// bindProvider answers POST /you/provider. It also works if the account is connected already.
func bindProvider(d *Dashboard, w http.ResponseWriter, r *request) error {
	return d.visit(w, r, signin.Visit{Next: "/you?done=provider", User: r.in.User.ID})
}

// unbindProvider answers POST /you/provider/off. If the account is not connected, nothing changes.
func unbindProvider(d *Dashboard, w http.ResponseWriter, r *request) error {
	if d.provider == nil {
		return web.Nothing
	}
	err := d.signin.Unbind(strangers(r), r.in, r.PostFormValue("password"), r.PostFormValue("code"), browserOf(r))
	switch {
	case err == nil:
		return seeOther(w, r, "/you?done=provider-off")
	case errors.Is(err, signin.ErrNoPassword), errors.Is(err, ledger.ErrIllegal):
		return d.showYou(w, r, http.StatusConflict, youView{Problem: "You have no password, so you could no longer " +
			"sign in. Ask the operator of this service for a link that sets one. Then disconnect."})
	default:
		return notProved(d, w, r, "disconnect from the provider", err)
	}
}

func (d *Dashboard) visit(w http.ResponseWriter, r *request, v signin.Visit) error {
	if d.provider == nil {
		return web.Nothing
	}
	if !keepsCookies(d.o.PublicURL()) {
		return d.signInForm(w, r, http.StatusForbidden, signInView{})
	}
	allowed := strings.Fields(d.formsGoTo()) // the page that sent this form had this policy
	to, kept, err := d.signin.Visit(strangers(r), v)
	if err != nil {
		d.signIns.count("provider", err)
		return d.providerFailed(w, r, v, err)
	}
	web.SetCookie(w, visitCookie, kept, visitAge, http.SameSiteLaxMode)
	w.Header().Set("Referrer-Policy", "no-referrer") // the URL of a link is a secret
	if r.Method == http.MethodPost && !slices.Contains(allowed, originOf(to)) {
		// The browser would refuse a redirect, because the policy was sent before the provider's page was known.
		return failure{Status: http.StatusOK, Title: "Go on to " + d.providerName(),
			Text: "You sign in there, and come back here.", Next: "We don't see what you type there.",
			Link: to, Label: "Go on to " + d.providerName()}
	}
	return seeOther(w, r, to)
}

func backFromProvider(d *Dashboard, w http.ResponseWriter, r *request) error {
	if d.provider == nil {
		return web.Nothing
	}
	w.Header().Set("Referrer-Policy", "no-referrer") // the URL has a code
	kept := web.CookieOf(r.Request, visitCookie)
	var in *ledger.SignedIn
	if found, err := d.signin.Session(strangers(r), cookieOf(r.Request)); err == nil {
		in = &found
		r.Request = r.WithContext(ledger.WithActor(r.Context(), "user:"+found.User.ID.String()))
	}
	v, token, err := d.signin.Back(strangers(r), kept, r.URL.Query(), in, browserOf(r))
	d.signIns.count("provider", err)
	var code *signin.CodeWanted
	var choice *signin.Choice
	switch {
	case errors.As(err, &choice):
		return chooseForm(d, w, r, http.StatusOK, chooseView{Step: choice.Step, Next: localPath(v.Next)}, choice.Invitations)
	case err == nil && v.User != uuid.Nil:
		dropVisit(w)
		return seeOther(w, r, v.Next)
	case err == nil, errors.As(err, &code):
		return d.signedIn(w, r, token, err, signInView{Next: localPath(v.Next)})
	case errors.Is(err, ledger.ErrNoSuchLink):
		dropVisit(w)
		return d.linkGone(w, err)
	default:
		dropVisit(w)
		return d.providerFailed(w, r, v, err)
	}
}

type chooseView struct {
	Step, Next  string
	Problem     string
	Invitations []chooseRow
}

type chooseRow struct {
	Hex, Workspace string
	Role           ledger.Role
	Expires        time.Time
}

func chooseForm(d *Dashboard, w http.ResponseWriter, r *request, status int, v chooseView, open []ledger.Link) error {
	for _, l := range open {
		v.Invitations = append(v.Invitations,
			chooseRow{hex.EncodeToString(l.ID[:]), workspaceName(d.o.Book, r, l.Workspace), l.Role, l.Expires})
	}
	return d.show(w, r, status, "choose", &frame{Frame: web.Frame{Title: "Your invitations", Secret: true}, Body: v})
}

// choose answers POST /oidc/join: it accepts the invitations that a new user has chosen. A repeated form gives the
// same session.
func choose(d *Dashboard, w http.ResponseWriter, r *request) error {
	var chosen []ledger.Hash
	for _, text := range r.PostForm["link"] {
		if id, ok := parseHash(text); ok {
			chosen = append(chosen, id)
		}
	}
	next := localPath(r.PostFormValue("next"))
	token, err := signin.Choose(strangers(r), d.signin, r.PostFormValue("step"), chosen, browserOf(r))
	d.signIns.count("provider", err)
	var again *signin.Choice
	switch {
	case errors.As(err, &again):
		return chooseForm(d, w, r, http.StatusUnprocessableEntity, chooseView{Step: again.Step, Next: next,
			Problem: "Choose an invitation."}, again.Invitations)
	case errors.Is(err, signin.ErrNotInvited):
		dropVisit(w)
		return d.providerFailed(w, r, signin.Visit{}, err)
	default:
		dropVisit(w)
		return d.signedIn(w, r, token, err, signInView{Next: next})
	}
}

func dropVisit(w http.ResponseWriter) {
	web.SetCookie(w, visitCookie, "", -1, http.SameSiteLaxMode)
}

// brief shortens an error for a log line, because a provider may answer with a whole page.
func brief(err error) string {
	const most = 300
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// providerFailed shows why signing in by the provider failed, on the sign-in page or on the user's own page.
func (d *Dashboard) providerFailed(w http.ResponseWriter, r *request, v signin.Visit, err error) error {
	name := d.providerName()
	status, problem, unbound := http.StatusForbidden, name+" did not sign you in: ask for an invitation for your email, or sign in with "+
		"your password and connect "+name+" on your account page.", ""
	var wait *signin.Wait
	switch {
	case errors.As(err, &wait):
		status, problem = d.signInProblem(w, err)
	case errors.Is(err, signin.ErrAway):
		d.log.Warn("the provider did not answer", "request", r.page.ID, "err", brief(err))
		w.Header().Set("Retry-After", "30")
		status, problem = http.StatusServiceUnavailable, name+" isn't answering: sign in with your password, or try again later."
	case errors.Is(err, signin.ErrRefused):
		d.log.Info("the provider signed nobody in", "request", r.page.ID, "err", brief(err))
		problem = name + " did not sign you in: try again, or sign in with your password."
		unbound = name + " wasn't connected: try again."
	case !errors.Is(err, signin.ErrNotInvited):
		return at("sign in by the provider", err)
	}
	in, failed := d.signin.Session(strangers(r), cookieOf(r.Request))
	if v.User != uuid.Nil && failed == nil {
		switch {
		case unbound != "":
			problem = unbound
		case status == http.StatusForbidden:
			problem = name + " wasn't connected: it must have verified " + in.User.Email +
				", and no other user may be connected to that account."
		}
		r.in = in
		return d.showYou(w, r, status, youView{Problem: problem})
	}
	return d.signInForm(w, r, status, signInView{Problem: problem, Next: localPath(v.Next)})
}
