package dashboard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
)

type youView struct {
	Memberships []ledger.Membership
	Sessions    []sessionView
	Problem     string
	Done        string
	Colours     string
	Codes       bool   // are on
	CodesLeft   int    // of one use
	Asked       bool   // the page asks the user, an owner, to turn on codes
	Provider    string // its name; "": no provider
	Bound       bool   // to it
	Form        string // the id of the form that makes recovery codes
	HasPassword bool
}

// Rule is the rule for new passwords that a browser checks.
func (youView) Rule() string { return newPassword }

// newPassword are the attributes of the field for a new password.
var newPassword = fmt.Sprintf("type=password autocomplete=new-password required minlength=%d maxlength=128", signin.PasswordLeast)

type sessionView struct {
	ledger.Session
	Hex     string // what the form sends
	Browser string
	This    bool
}

func you(d *Dashboard, w http.ResponseWriter, r *request) error {
	done := map[string]string{
		"password":     "Your password was changed. You were signed out everywhere else.",
		"codes-off":    "Two-step sign-in is off. You were signed out everywhere else.",
		"saved":        "Two-step sign-in is set up, and you have your recovery codes.",
		"provider":     "You're connected, and can now sign in that way.",
		"provider-off": "You are disconnected, and sign in with your password from now on. You were signed out everywhere else.",
		"session":      "The session was ended. It stops within 5 seconds.",
		"sessions":     "All other sessions were ended. They stop within 5 seconds.",
	}[r.URL.Query().Get("done")]
	return d.showYou(w, r, http.StatusOK, youView{Done: done})
}

func (d *Dashboard) showYou(w http.ResponseWriter, r *request, status int, v youView) error {
	found, err := d.signin.Sessions(strangers(r), r.in.User.ID)
	if err != nil {
		return at("read sessions", err)
	}
	for _, s := range found {
		v.Sessions = append(v.Sessions, sessionView{Session: s, Hex: hex.EncodeToString(s.ID[:]), Browser: browserName(s.Agent),
			This: s.ID == r.in.Session.ID})
	}
	v.Memberships, v.Colours = r.in.Memberships, web.ColoursOf(r.Request)
	v.HasPassword = signin.HasPassword(r.in.User)
	v.Codes, v.CodesLeft, v.Asked = r.in.User.TOTP != "", d.signin.CodesLeft(r.in.User), asksForCodes(r.in.User, r.in.Memberships)
	v.Form = uuid.NewString()
	v.Provider = d.providerName()
	v.Bound = d.o.Provider != nil && strings.HasPrefix(r.in.User.OIDC, ledger.Identity(d.o.Provider.Issuer, ""))
	return d.show(w, r, status, "you", titled("Account", "you", v))
}

func changePassword(d *Dashboard, w http.ResponseWriter, r *request) error {
	token, err := d.signin.ChangePassword(strangers(r), r.in, r.PostFormValue("old"), r.PostFormValue("password"),
		r.PostFormValue("code"), browserOf(r))
	if err == nil {
		d.setCookie(w, token)
		return seeOther(w, r, "/you?done=password")
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
		return at("change password", err)
	}
	return d.showYou(w, r, status, youView{Problem: problem})
}

// endSessions answers POST /you/sessions: it ends one of the user's sessions, or all but this one.
func endSessions(d *Dashboard, w http.ResponseWriter, r *request) error {
	if r.PostFormValue("all") != "" {
		if err := d.signin.EndOthers(strangers(r), r.in.User, r.in.Session.ID); err != nil {
			return at("end sessions", err)
		}
		return seeOther(w, r, "/you?done=sessions")
	}
	id, ok := parseHash(r.PostFormValue("session"))
	if !ok {
		return d.showYou(w, r, http.StatusUnprocessableEntity, youView{Problem: "There is no such session."})
	}
	if err := d.signin.End(strangers(r), r.in.User, id); err != nil {
		return at("end session", err)
	}
	return seeOther(w, r, "/you?done=session")
}

func setColours(d *Dashboard, w http.ResponseWriter, r *request) error {
	web.SetColours(w, r.Request, "/you")
	return nil
}

// browserNames are the names of common browsers in User-Agents. The first match wins, because most User-Agents also
// contain other names.
var browserNames = []struct{ mark, name string }{
	{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"HeadlessChrome/", "Chrome without a window"},
	{"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"},
}

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

// codeView is the second page of signing in. It asks for a code.
type codeView struct {
	Step, Next string
	Problem    string
}

func (d *Dashboard) codeForm(w http.ResponseWriter, r *request, status int, v codeView) error {
	return d.show(w, r, status, "code", titled("Enter a code", "", v))
}

func giveCode(d *Dashboard, w http.ResponseWriter, r *request) error {
	next := localPath(r.PostFormValue("next"))
	if !keepsCookies(d.o.PublicURL()) {
		return d.signInForm(w, r, http.StatusForbidden, signInView{})
	}
	step := r.PostFormValue("step")
	token, err := d.signin.Code(strangers(r), step, r.PostFormValue("code"), browserOf(r))
	d.signIns.count("code", err)
	if _, waits := errors.AsType[*signin.Wait](err); waits || errors.Is(err, signin.ErrCode) {
		status, problem := d.signInProblem(w, err)
		return d.codeForm(w, r, status, codeView{Step: step, Next: next, Problem: problem})
	}
	return d.signedIn(w, r, token, err, signInView{Next: next})
}

type codesView struct {
	Setup    signin.CodeSetup
	Width    int
	Path     string   // of the picture
	Recovery []string // recovery codes, once codes are on
	Renewed  bool     // in place of others
	Again    bool     // an earlier copy of this form made them
	Ask      bool     // field for one of them, to check that they were saved
	Problem  string
}

func codes(d *Dashboard, w http.ResponseWriter, r *request) error {
	if r.in.User.TOTP != "" || !signin.HasPassword(r.in.User) {
		return seeOther(w, r, "/you")
	}
	return d.setupCodes(w, r, http.StatusOK, uuid.New(), "")
}

func (d *Dashboard) setupCodes(w http.ResponseWriter, r *request, status int, form uuid.UUID, problem string) error {
	v := codesView{Setup: d.signin.SetupCodes(r.in.User, form), Problem: problem}
	var err error
	if v.Width, v.Path, err = signin.QRPicture(v.Setup.URI); err != nil {
		d.log.Warn("no QR code", "request", r.page.ID, "err", err) // the page also shows the secret as text
	}
	return d.show(w, r, status, "codes", titled("Two-step sign-in", "you", v))
}

// codesOn answers POST /you/codes. For some minutes a repeated form gets the same answer.
func codesOn(d *Dashboard, w http.ResponseWriter, r *request) error {
	form, ok := web.ID(r.PostFormValue("form"))
	if !ok {
		return d.setupCodes(w, r, http.StatusUnprocessableEntity, uuid.New(),
			"The form was incomplete. Set up the app again.")
	}
	recovery, err := d.signin.CodesOn(strangers(r), r.in, form, r.PostFormValue("password"), r.PostFormValue("code"), browserOf(r))
	switch {
	case err == nil:
		return d.show(w, r, http.StatusOK, "codes", titled("Two-step sign-in is on", "you", codesView{Recovery: recovery}))
	case errors.Is(err, signin.ErrOn), errors.Is(err, signin.ErrNoPassword):
		return seeOther(w, r, "/you")
	default:
		status, problem := d.codeProblem(w, err)
		if problem == "" {
			return at("switch codes on", err)
		}
		return d.setupCodes(w, r, status, form, problem)
	}
}

// codesOff answers POST /you/codes/off. If codes are off already, nothing changes.
func codesOff(d *Dashboard, w http.ResponseWriter, r *request) error {
	err := d.signin.CodesOff(strangers(r), r.in, r.PostFormValue("password"), r.PostFormValue("code"), browserOf(r))
	if err == nil {
		return seeOther(w, r, "/you?done=codes-off")
	}
	return notProved(d, w, r, "switch codes off", err)
}

// notProved shows, on the user's own page, why the way of signing in was not changed.
func notProved(d *Dashboard, w http.ResponseWriter, r *request, step string, err error) error {
	status, problem := d.codeProblem(w, err)
	if problem == "" {
		return at(step, err)
	}
	return d.showYou(w, r, status, youView{Problem: problem})
}

// renewRecovery answers POST /you/codes/new. A repeated form makes no second set, and the page says so.
func renewRecovery(d *Dashboard, w http.ResponseWriter, r *request) error {
	form, ok := web.ID(r.PostFormValue("form"))
	if !ok {
		return d.showYou(w, r, http.StatusUnprocessableEntity,
			youView{Problem: "The form was incomplete. Please send it again."})
	}
	codes, again, err := d.signin.RenewRecovery(strangers(r), r.in, form, r.PostFormValue("password"), r.PostFormValue("code"), browserOf(r))
	switch {
	case err == nil:
		return d.show(w, r, http.StatusOK, "codes",
			titled("New recovery codes", "you", codesView{Recovery: codes, Renewed: true, Again: again}))
	case errors.Is(err, signin.ErrOff):
		return d.showYou(w, r, http.StatusConflict,
			youView{Problem: "Two-step sign-in is off. Turn it on first: that also creates recovery codes."})
	case errors.Is(err, signin.ErrFormUsed):
		return d.showYou(w, r, http.StatusConflict, youView{Problem: "This form was already used, and its codes aren't " +
			"shown again. To get others, send the form below."})
	default:
		return notProved(d, w, r, "make recovery codes", err)
	}
}

// savedRecovery answers POST /you/codes/saved: it checks a typed recovery code without using it up.
func savedRecovery(d *Dashboard, w http.ResponseWriter, r *request) error {
	if !signin.IsRecovery(d.signin, r.in.User, r.PostFormValue("code")) {
		return d.show(w, r, http.StatusUnprocessableEntity, "codes", titled("Have you saved them?", "you",
			codesView{Ask: true, Problem: "That isn't one of your recovery codes. Look at what you saved, and type one as " +
				"it stands there."}))
	}
	return seeOther(w, r, "/you?done=saved")
}

// codeProblem returns what is wrong with the user's password or code, or "" for other errors.
func (d *Dashboard) codeProblem(w http.ResponseWriter, err error) (int, string) {
	switch status, problem := d.signInProblem(w, err); {
	case errors.Is(err, signin.ErrWrong):
		return http.StatusUnprocessableEntity, "The password is wrong."
	case errors.Is(err, signin.ErrCode):
		return http.StatusUnprocessableEntity, problem
	default:
		return status, problem
	}
}

// asksForCodes reports whether a user should turn on two-step sign-in: an owner with a password and without codes.
func asksForCodes(u ledger.User, in []ledger.Membership) bool {
	return signin.HasPassword(u) && u.TOTP == "" &&
		slices.ContainsFunc(in, func(m ledger.Membership) bool { return m.Role == ledger.Owner })
}
