package dashboard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
)

// youView is the user's own page.
type youView struct {
	Memberships []ledger.Membership
	Sessions    []sessionView
	Problem     string
	Done        string
	Colours     string
	Codes       bool   // are on
	CodesLeft   int    // of one use
	Asked       bool   // to turn on codes, as an owner
	Provider    string // its name; "": no provider
	Bound       bool   // to it
	Form        string // the id of the form that makes recovery codes
	HasPassword bool
}

// Rule is the rule for new passwords that a browser checks.
func (youView) Rule() string { return newPassword }

// newPassword are the attributes of the field for a new password.
var newPassword = fmt.Sprintf("type=password autocomplete=new-password required minlength=%d maxlength=128", signin.PasswordLeast)

// sessionView is one browser.
type sessionView struct {
	ledger.Session
	Hex     string // what the form sends
	Browser string
	This    bool
}

// you answers GET /you.
func (d *Dashboard) you(w http.ResponseWriter, r *request) {
	done := map[string]string{
		"password":     "Your password was changed. You were signed out everywhere else.",
		"codes-off":    "Two-step sign-in is off. You were signed out everywhere else.",
		"saved":        "Two-step sign-in is set up, and you have your recovery codes.",
		"provider":     "You're connected, and can now sign in that way.",
		"provider-off": "You are disconnected, and sign in with your password from now on. You were signed out everywhere else.",
		"session":      "The session was ended. It stops within 5 seconds.",
		"sessions":     "All other sessions were ended. They stop within 5 seconds.",
	}[r.URL.Query().Get("done")]
	d.showYou(w, r, http.StatusOK, youView{Done: done})
}

func (d *Dashboard) showYou(w http.ResponseWriter, r *request, status int, v youView) {
	found, err := d.signin.Sessions(strangers(r), r.in.User.ID)
	if err != nil {
		d.unavailable(w, r.Request, "read sessions", err)
		return
	}
	for _, s := range found {
		v.Sessions = append(v.Sessions, sessionView{Session: s, Hex: hex.EncodeToString(s.ID[:]), Browser: browserName(s.Agent),
			This: s.ID == r.in.Session.ID})
	}
	v.Memberships, v.Colours = r.in.Memberships, web.ColoursOf(r.Request)
	v.HasPassword = signin.HasPassword(r.in.User)
	v.Codes, v.CodesLeft, v.Asked = r.in.User.TOTP != "", d.signin.CodesLeft(r.in.User), asksForCodes(r.in.User, r.in.Memberships)
	v.Form = uuid.NewString()
	v.Provider, v.Bound = d.providerName(), d.boundTo(r.in.User)
	d.show(w, r, status, "you", titled("Account", "you", v))
}

// boundTo reports whether a user signs in by the present provider.
func (d *Dashboard) boundTo(u ledger.User) bool {
	return d.o.Provider != nil && strings.HasPrefix(u.OIDC, ledger.Identity(d.o.Provider.Issuer, ""))
}

// changePassword answers POST /you/password.
func (d *Dashboard) changePassword(w http.ResponseWriter, r *request) {
	token, err := d.signin.ChangePassword(strangers(r), r.in, r.PostFormValue("old"), r.PostFormValue("password"),
		r.PostFormValue("code"), browserOf(r))
	if err == nil {
		d.setCookie(w, token)
		http.Redirect(w, r.Request, "/you?done=password", http.StatusSeeOther)
		return
	}
	status, problem := d.signInProblem(w, err)
	switch {
	case errors.Is(err, signin.ErrWrong):
		status, problem = http.StatusUnprocessableEntity, "The old password is wrong."
	case status == http.StatusUnauthorized:
		status = http.StatusUnprocessableEntity
	case status == 0:
		status, problem = http.StatusUnprocessableEntity, passwordProblem(err)
	}
	if problem == "" {
		d.unavailable(w, r.Request, "change password", err)
		return
	}
	d.showYou(w, r, status, youView{Problem: problem})
}

// endSessions answers POST /you/sessions: it ends one of them, or all but this one.
func (d *Dashboard) endSessions(w http.ResponseWriter, r *request) {
	if r.PostFormValue("all") != "" {
		if _, err := d.signin.EndOthers(strangers(r), r.in.User, r.in.Session.ID); err != nil {
			d.unavailable(w, r.Request, "end sessions", err)
			return
		}
		http.Redirect(w, r.Request, "/you?done=sessions", http.StatusSeeOther)
		return
	}
	id, ok := parseHash(r.PostFormValue("session"))
	if !ok {
		d.showYou(w, r, http.StatusUnprocessableEntity, youView{Problem: "There is no such session."})
		return
	}
	if err := d.signin.End(strangers(r), r.in.User, id); err != nil {
		d.unavailable(w, r.Request, "end session", err)
		return
	}
	http.Redirect(w, r.Request, "/you?done=session", http.StatusSeeOther)
}

// setColours answers POST /you/colours.
func (d *Dashboard) setColours(w http.ResponseWriter, r *request) {
	web.SetColours(w, r.Request, "/you")
}

// browserNames are the names of common browsers in User-Agents; the first match wins, because most contain others, too.
var browserNames = []struct{ mark, name string }{
	{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"HeadlessChrome/", "Chrome without a window"},
	{"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"},
}

// systemNames are the names of systems in User-Agents.
var systemNames = []struct{ mark, name string }{
	{"Windows", "Windows"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Mac OS X", "macOS"},
	{"Linux", "Linux"},
}

// browserName names the browser of a User-Agent in few words. The browser can write anything there, so nothing relies
// on it.
func browserName(agent string) string {
	name, system := "Another browser", ""
	for _, b := range browserNames {
		if strings.Contains(agent, b.mark) {
			name = b.name
			break
		}
	}
	for _, s := range systemNames {
		if strings.Contains(agent, s.mark) {
			system = " on " + s.name
			break
		}
	}
	return name + system
}
