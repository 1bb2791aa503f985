package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
)

type signInView struct {
	Email, Next string
	Form        string
	Provider    string // its name; "": no provider
	Problem     string
	Insecure    string // the public URL, when browsers keep no cookie there
}

// home redirects to the workspace that this browser showed last, or to the first one.
func home(d *Dashboard, w http.ResponseWriter, r *request) error {
	in, err := d.signin.Session(strangers(r), cookieOf(r.Request))
	switch {
	case errors.Is(err, ledger.ErrNoSuchSession):
		return seeOther(w, r, "/sign-in")
	case err != nil:
		return at("read session", err)
	case len(in.Memberships) == 0:
		return seeOther(w, r, "/you")
	default:
		to := in.Memberships[0].Workspace.String()
		for _, m := range in.Memberships {
			if m.Workspace.String() == web.CookieOf(r.Request, workspaceCookie) {
				to = m.Workspace.String()
			}
		}
		return seeOther(w, r, "/w/"+to)
	}
}

func showSignIn(d *Dashboard, w http.ResponseWriter, r *request) error {
	next := localPath(r.URL.Query().Get("next"))
	if _, err := d.signin.Session(strangers(r), cookieOf(r.Request)); err == nil {
		return seeOther(w, r, next)
	}
	return d.signInForm(w, r, http.StatusOK, signInView{Next: next})
}

func (d *Dashboard) signInForm(w http.ResponseWriter, r *request, status int, v signInView) error {
	if public := d.o.PublicURL(); !keepsCookies(public) {
		v.Insecure = public
	}
	v.Provider = d.providerName()
	if v.Form == "" {
		v.Form = uuid.NewString()
	}
	return d.show(w, r, status, "sign-in", titled("Sign in", "", v))
}

func signInNow(d *Dashboard, w http.ResponseWriter, r *request) error {
	v := signInView{Email: web.Text(r.Request, "email"), Next: localPath(r.PostFormValue("next"))}
	if !keepsCookies(d.o.PublicURL()) {
		return d.signInForm(w, r, http.StatusForbidden, v)
	}
	form, ok := web.ID(r.PostFormValue("form"))
	if !ok {
		v.Problem = "The form was incomplete. Please fill it in again."
		return d.signInForm(w, r, http.StatusUnprocessableEntity, v)
	}
	token, err := d.signin.SignIn(strangers(r), form, v.Email, r.PostFormValue("password"), browserOf(r))
	d.signIns.count("password", err)
	return d.signedIn(w, r, token, err, v)
}

// signedIn continues after an attempt to sign in: it redirects, asks for a code, or shows the problem.
func (d *Dashboard) signedIn(w http.ResponseWriter, r *request, token signin.Token, err error, v signInView) error {
	var code *signin.CodeWanted
	if err == nil {
		d.endOld(r, token)
		d.setCookie(w, token)
		return seeOther(w, r, v.Next)
	}
	if errors.As(err, &code) {
		return d.codeForm(w, r, http.StatusOK, codeView{Step: code.Step, Next: v.Next})
	}
	status, problem := d.signInProblem(w, err)
	if status == 0 {
		return at("sign in", err)
	}
	v.Problem = problem
	return d.signInForm(w, r, status, v)
}

// endOld ends the browser's earlier session.
func (d *Dashboard) endOld(r *request, now signin.Token) {
	old := cookieOf(r.Request)
	if old == now {
		return // the same form again
	}
	in, err := d.signin.Session(strangers(r), old)
	if err != nil {
		return
	}
	if err := d.signin.End(strangers(r), in.User, in.Session.ID); err != nil {
		d.log.Warn("an older session was not ended", "request", r.page.ID, "err", err)
	}
}

// signInProblem returns why somebody is not signed in, and sets Retry-After. For other errors the status is 0.
func (d *Dashboard) signInProblem(w http.ResponseWriter, err error) (status int, problem string) {
	var wait *signin.Wait
	switch {
	case errors.Is(err, signin.ErrWrong):
		return http.StatusUnauthorized, "The email or the password is wrong."
	case errors.As(err, &wait):
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(wait.Until.Sub(d.now()).Seconds()+0.999))))
		return http.StatusTooManyRequests, "Too many failed attempts. Try again at " + web.Clock(wait.Until) + " UTC."
	case errors.Is(err, signin.ErrCode):
		return http.StatusUnauthorized, "This code is wrong or was already used. Each code works once: wait for the next one."
	case errors.Is(err, signin.ErrStep):
		return http.StatusUnauthorized, "This took too long, or your account changed meanwhile. Please sign in again."
	case errors.Is(err, signin.ErrFormUsed):
		return http.StatusUnauthorized, "You signed out after sending this form. Please sign in again."
	case errors.Is(err, signin.ErrBusy):
		w.Header().Set("Retry-After", "3")
		return http.StatusServiceUnavailable, "Too many people are signing in right now. Try again in a few seconds."
	}
	return 0, ""
}

// signOut answers POST /sign-out. Without a session nothing changes.
func signOut(d *Dashboard, w http.ResponseWriter, r *request) error {
	in, err := d.signin.Session(strangers(r), cookieOf(r.Request))
	if err == nil {
		err = d.signin.End(ledger.WithActor(strangers(r), "user:"+in.User.ID.String()), in.User, in.Session.ID)
	}
	if err != nil && !errors.Is(err, ledger.ErrNoSuchSession) {
		return at("end session", err)
	}
	web.SetCookie(w, cookieName, "", -1, http.SameSiteLaxMode)
	w.Header().Set("Clear-Site-Data", `"cache", "storage"`)
	return seeOther(w, r, "/sign-in")
}

type linkView struct {
	Link   ledger.Link
	Codes  bool   // setting a new password requires a code, too
	SignIn string // where a user with an account accepts the invitation
	As     string // the email of the user signed in in this browser; "": none
	Mine   bool   // the invitation is for that user

	Provider string // provider that can accept the invitation; "": none
	Invite   bool
	// Workspace is the name of the invitation's workspace; "": unknown, because it has no members yet.
	Workspace string
	Plain     bool // nothing to fill in
	Form      string
	Name      string
	Problem   string
	Expires   time.Time
}

// Rule is the rule for new passwords that a browser checks.
func (linkView) Rule() string { return newPassword }

// showLink answers GET /link/{token}. It changes nothing, so that programs that prefetch links do not use them up.
func showLink(d *Dashboard, w http.ResponseWriter, r *request) error {
	return d.linkForm(w, r, http.StatusOK, linkView{Form: uuid.NewString()})
}

func (d *Dashboard) linkForm(w http.ResponseWriter, r *request, status int, v linkView) error {
	w.Header().Set("Referrer-Policy", "no-referrer")
	l, user, err := d.signin.Link(strangers(r), signin.Token(r.PathValue("token")))
	if err != nil {
		return d.linkGone(w, err)
	}
	v.Link, v.Invite, v.Expires = l, l.Purpose == ledger.InviteLink, l.Expires
	if v.Invite { // the same for everybody: the link's maker may open it, but must learn nothing about the person
		v.Provider, v.SignIn = d.providerName(), "/sign-in?next="+url.QueryEscape("/link/"+r.PathValue("token"))
		if in, err := d.signin.Session(strangers(r), cookieOf(r.Request)); err == nil {
			v.As, v.Mine = in.User.Email, signin.ForUser(l, in.User)
		}
	} else {
		v.Codes = user.TOTP != ""
	}
	title := "Set a new password"
	switch l.Purpose {
	case ledger.InviteLink:
		title, v.Workspace = "Invitation", workspaceName(d.o.Book, r, l.Workspace)
	case ledger.SignInLink:
		title, v.Plain = "Sign in", true
	}
	return d.show(w, r, status, "link", &frame{Frame: web.Frame{Title: title, Secret: true}, Body: v})
}

// workspaceName returns the name of a workspace for its members. It returns "" if there is none or if the ledger does
// not answer, because an invitation can be accepted without the name.
func workspaceName(book ledger.Book, r *request, id uuid.UUID) string {
	members, err := book.Members(strangers(r), id)
	if err != nil || len(members) == 0 {
		return ""
	}
	return members[0].WorkspaceName
}

func (d *Dashboard) linkGone(w http.ResponseWriter, err error) error {
	w.Header().Set("Referrer-Policy", "no-referrer")
	if !errors.Is(err, ledger.ErrNoSuchLink) {
		return at("read link", err)
	}
	return failure{Status: http.StatusNotFound, Title: "This link can't be used",
		Text: "It was already used, it's more than 72 hours old, or it was withdrawn.",
		Next: "Ask the person who gave it to you for a new one.", Link: "/sign-in", Label: "Sign in"}
}

func acceptLink(d *Dashboard, w http.ResponseWriter, r *request) error {
	w.Header().Set("Referrer-Policy", "no-referrer")
	form, ok := web.ID(r.PostFormValue("form"))
	v := linkView{Form: form.String(), Name: cleanName(r.PostFormValue("name"))}
	switch {
	case !keepsCookies(d.o.PublicURL()):
		return d.signInForm(w, r, http.StatusForbidden, signInView{})
	case !ok:
		v.Form, v.Problem = uuid.NewString(), "The form was incomplete. Please fill it in again."
		return d.linkForm(w, r, http.StatusUnprocessableEntity, v)
	}
	link, to := signin.Token(r.PathValue("token")), "/"
	if l, _, err := d.signin.Link(strangers(r), link); err == nil && l.Purpose == ledger.InviteLink {
		to = "/w/" + l.Workspace.String()
	}
	switch r.PostFormValue("way") {
	case "provider":
		return d.visit(w, r, signin.Visit{Next: to, Link: link})
	case "session":
		return joinNow(d, w, r, link)
	}
	a := signin.Accepting{Link: link, Form: form, Name: v.Name,
		Password: r.PostFormValue("password"), Code: r.PostFormValue("code")}
	token, err := d.signin.Accept(strangers(r), a, browserOf(r))
	d.signIns.count("link", err)
	if err != nil {
		status, problem := d.signInProblem(w, err)
		switch {
		case errors.Is(err, signin.ErrKnown):
			status, problem = http.StatusConflict, "This email has an account already. Sign in to accept the invitation."
		case status == 0:
			status, problem = http.StatusUnprocessableEntity, passwordProblem(err)
		}
		if problem == "" {
			return d.linkGone(w, err)
		}
		v.Problem = problem
		return d.linkForm(w, r, status, v)
	}
	d.setCookie(w, token)
	return seeOther(w, r, to)
}

func joinNow(d *Dashboard, w http.ResponseWriter, r *request, link signin.Token) error {
	in, err := signin.SessionNow(strangers(r), d.signin, cookieOf(r.Request))
	var workspace uuid.UUID
	if err == nil {
		workspace, err = signin.Join(strangers(r), d.signin, in, link)
	}
	switch {
	case errors.Is(err, ledger.ErrNoSuchSession):
		return seeOther(w, r, "/link/"+string(link))
	case err != nil:
		return d.linkGone(w, err)
	case workspace == uuid.Nil:
		return seeOther(w, r, "/")
	default:
		return seeOther(w, r, "/w/"+workspace.String())
	}
}

// passwordProblem returns what is wrong with a new password, or "" for other errors.
func passwordProblem(err error) string {
	switch {
	case errors.Is(err, signin.ErrShort):
		return "The password is too short: use at least 12 characters."
	case errors.Is(err, signin.ErrLong):
		return "The password is too long: use at most 128 characters."
	case errors.Is(err, signin.ErrEmail):
		return "Your password can't be your email."
	case errors.Is(err, signin.ErrCommon):
		return "This password is too common: attackers try it first. Choose another one."
	}
	return ""
}

// cleanName returns a name in a form that the ledger accepts.
func cleanName(text string) string {
	text = strings.TrimSpace(ledger.CleanName(text))
	for len(text) > ledger.NameMax {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return text
}
