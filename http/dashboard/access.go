package dashboard

import (
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	httpd "rollcall/http"
	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
)

// cookieName is the name of the session's cookie. The prefix makes browsers refuse it from other hosts and over plain
// http.
const cookieName = "__Host-rollcall"

type request struct {
	*http.Request
	page   *httpd.PageRequest
	in     ledger.SignedIn   // zero for nobody
	member ledger.Membership // of the user, for a route inside a workspace
	id     uuid.UUID         // of the verification in the path; zero if there is none
}

func (r *request) workspace() uuid.UUID { return r.member.Workspace }

func (r *request) base() string { return "/w/" + r.member.Workspace.String() }

// tenant returns the owner of a request: the workspace, or the user outside of a workspace.
func (r *request) tenant() uuid.UUID {
	if r.member.Workspace == uuid.Nil {
		return r.in.User.ID
	}
	return r.member.Workspace
}

func (r *request) may(role ledger.Role) bool { return r.member.Role.Allows(role) }

// handler answers a request, or returns why it can't; then Dashboard.refuse answers.
type handler func(*Dashboard, http.ResponseWriter, *request) error

func (d *Dashboard) admit(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, plain *http.Request) {
		r := &request{Request: plain, page: httpd.PageRequestOf(plain.Context())}
		r.page.Route = to.name()
		err := d.check(w, r, to)
		if err == nil {
			err = to.handle(d, w, r)
		}
		if err != nil && err != errAnswered {
			d.refuse(w, r.Request, err)
		}
	})
}

// errAnswered: the user may not use a route, and was answered without an error page.
var errAnswered = errors.New("answered")

// check makes the checks of a route in their order: session, membership, role.
func (d *Dashboard) check(w http.ResponseWriter, r *request, to route) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	body := kind == "application/x-www-form-urlencoded" || kind == "" || to.part
	if err := r.ParseForm(); err != nil || !body { // only a complete form may change something
		return failure{Status: http.StatusUnprocessableEntity, Title: "The form was incomplete",
			Text: "What your browser sent could not be read. Nothing was changed.", Next: "Go back and send it again."}
	}
	if to.session || to.role != "" {
		if err := d.identify(w, r, to); err != nil {
			return err
		}
		if err := paced(w, r, to); err != nil {
			return err
		}
	}
	if to.role != "" {
		if err := enter(w, r, to); err != nil {
			return err
		}
	}
	if to.session || to.role != "" {
		r.Request = r.WithContext(signin.Acting(r.Context(), d.signin, r.in, r.workspace(), to.role))
		if !r.page.BelongsTo(r.tenant()) {
			return failure{Status: http.StatusServiceUnavailable, Title: "Too much at once",
				Text: "Too many pages of your workspace are loading right now. Nothing was changed.",
				Next: "Wait a moment and try again.", After: retryLater}
		}
	}
	if text := r.PathValue("id"); text != "" {
		var ok bool
		if r.id, ok = web.ID(text); !ok {
			return web.Nothing
		}
	}
	return nil
}

func (d *Dashboard) identify(w http.ResponseWriter, r *request, to route) error {
	ctx, cookie := ledger.WithTenant(r.Context(), ledger.Strangers), cookieOf(r.Request)
	in, err := d.signin.Session(ctx, cookie)
	if r.Method == http.MethodPost {
		in, err = signin.SessionNow(ctx, d.signin, cookie)
	}
	switch {
	case err == nil:
		r.in = in
		return nil
	case !errors.Is(err, ledger.ErrNoSuchSession):
		return at("read session", err)
	case to.part:
		http.Error(w, "You were signed out.", http.StatusUnauthorized)
		return errAnswered
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		_ = seeOther(w, r, "/sign-in?next="+url.QueryEscape(r.URL.RequestURI()))
		return errAnswered
	}
	return signedOut
}

// paced counts a request against the user's limit.
func paced(w http.ResponseWriter, r *request, to route) error {
	after := r.page.RateOf(r.in.User.ID)
	if after == 0 {
		return nil
	}
	w.Header().Set("Retry-After", strconv.Itoa(after))
	if to.part {
		http.Error(w, "Too many requests at once.", http.StatusTooManyRequests)
		return errAnswered
	}
	return failure{Status: http.StatusTooManyRequests, Title: "Too much at once",
		Text: "You sent too many requests at once. Nothing was changed.",
		Next: "Wait a moment and try again. If you have many pages of Rollcall open, close some.", After: after}
}

// signedOut is the answer to a form whose session has ended.
var signedOut = failure{Status: http.StatusUnauthorized, Title: "You were signed out",
	Text: "Nothing was changed.", Next: "Sign in, then send the form again.", Link: "/sign-in", Label: "Sign in"}

// enter finds the user's membership and compares its role with the route's.
func enter(w http.ResponseWriter, r *request, to route) error {
	id, ok := web.ID(r.PathValue("ws"))
	at := slices.IndexFunc(r.in.Memberships, func(m ledger.Membership) bool { return ok && m.Workspace == id })
	if at < 0 {
		return web.Nothing
	}
	r.member = r.in.Memberships[at]
	if !r.may(to.role) {
		who := "members and owners" // never viewers: every member may do what viewers may
		if to.role == ledger.Owner {
			who = "owners"
		}
		return failure{Status: http.StatusForbidden, Title: "Your role doesn't allow this",
			Text: "You're a " + string(r.member.Role) + " in " + r.member.WorkspaceName + ". Only " + who +
				" can do this.",
			Next: "Ask an owner of the workspace for another role.", Link: r.base(), Label: "Back to the verifications"}
	}
	r.Request = r.Request.WithContext(ledger.WithTenant(r.Context(), id))
	if !to.part && web.CookieOf(r.Request, workspaceCookie) != id.String() {
		web.SetCookie(w, workspaceCookie, id.String(), int((365 * 24 * time.Hour).Seconds()), http.SameSiteLaxMode)
	}
	return nil
}

func parseHash(text string) (id ledger.Hash, ok bool) {
	bytes, err := hex.DecodeString(text)
	if err != nil || len(bytes) != len(id) {
		return id, false
	}
	copy(id[:], bytes)
	return id, true
}

// cookieOf returns the session's cookie. Two cookies count as none.
func cookieOf(r *http.Request) signin.Token { return signin.Token(web.CookieOf(r, cookieName)) }

// setCookie sends the cookie of a session to the browser. The ledger decides when the session ends.
func (d *Dashboard) setCookie(w http.ResponseWriter, token signin.Token) {
	web.SetCookie(w, cookieName, string(token), int(d.o.SessionLife.Seconds()), http.SameSiteLaxMode)
}

// workspaceCookie is the name of the cookie with the workspace that this browser showed last. It gives no access.
const workspaceCookie = "__Host-rollcall-workspace"

// browserOf describes the browser that sent a request.
func browserOf(r *request) signin.Browser {
	agent := strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), "?")
	for len(agent) > ledger.AgentMax {
		agent = strings.ToValidUTF8(agent[:ledger.AgentMax], "")
	}
	return signin.Browser{Agent: agent, Address: r.page.Client.String(), Network: r.page.Network}
}

// strangers returns the context of a ledger call that belongs to no workspace.
func strangers(r *request) context.Context { return ledger.WithTenant(r.Context(), ledger.Strangers) }

// localPath returns the page to show after signing in: a path of ours, or "/".
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(text, "/") ||
		strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n\t") {
		return "/"
	}
	return text
}

type route struct {
	pattern string
	session bool        // for signed-in users, as every route with a role is
	role    ledger.Role // least role in the workspace of the path; "": no workspace is needed
	part    bool        // requested by a script: refused without a page
	handle  handler
}

var routes = []route{
	{pattern: "GET /{$}", handle: home},
	{pattern: "GET /assets/{name}", handle: asset},
	{pattern: "GET /docs", handle: guide},
	{pattern: "GET /docs/{page}", handle: guide},
	{pattern: "GET /status", handle: status},
	{pattern: "GET /sign-in", handle: showSignIn},
	{pattern: "POST /sign-in", handle: signInNow},
	{pattern: "POST /sign-in/code", handle: giveCode},
	{pattern: "POST /sign-out", handle: signOut},
	{pattern: "GET /oidc/start", handle: startProvider},
	{pattern: "GET " + backPath, handle: backFromProvider},
	{pattern: "POST /oidc/join", handle: choose},
	{pattern: "GET /link/{token}", handle: showLink},
	{pattern: "POST /link/{token}", handle: acceptLink},
	{pattern: "GET /you", session: true, handle: you},
	{pattern: "POST /you/password", session: true, handle: changePassword},
	{pattern: "POST /you/provider", session: true, handle: bindProvider},
	{pattern: "POST /you/provider/off", session: true, handle: unbindProvider},
	{pattern: "GET /you/codes", session: true, handle: codes},
	{pattern: "POST /you/codes", session: true, handle: codesOn},
	{pattern: "POST /you/codes/off", session: true, handle: codesOff},
	{pattern: "POST /you/codes/new", session: true, handle: renewRecovery},
	{pattern: "POST /you/codes/saved", session: true, handle: savedRecovery},
	{pattern: "POST /you/sessions", session: true, handle: endSessions},
	{pattern: "POST /you/colours", session: true, handle: setColours},
	{pattern: "GET /w/{ws}", role: ledger.Viewer, handle: list},
	{pattern: "GET /w/{ws}/upload", role: ledger.Member, handle: uploadForm},
	{pattern: "GET /w/{ws}/example.csv", role: ledger.Member, handle: example},
	{pattern: "POST /w/{ws}/verifications", role: ledger.Member, part: true, handle: create},
	{pattern: "GET /w/{ws}/verifications/{id}", role: ledger.Viewer, handle: ofVerification(detail)},
	{pattern: "GET /w/{ws}/verifications/{id}/live", role: ledger.Viewer, part: true, handle: ofVerification(live)},
	{pattern: "GET /w/{ws}/verifications/{id}/upload", role: ledger.Member, part: true,
		handle: uploadState},
	{pattern: "GET /w/{ws}/verifications/{id}/cancel", role: ledger.Member, handle: ofVerification(askCancel)},
	{pattern: "POST /w/{ws}/verifications/{id}/cancel", role: ledger.Member, handle: cancel},
	{pattern: "GET /w/{ws}/verifications/{id}/results.csv", role: ledger.Viewer, handle: ofVerification(results)},
	{pattern: "GET /w/{ws}/verifications/{id}/results", role: ledger.Viewer, handle: ofVerification(showResults)},
	{pattern: "POST /w/{ws}/verifications/{id}/results", role: ledger.Viewer, handle: ofVerification(showResults)},
	{pattern: "GET /w/{ws}/verifications/{id}/reasons", role: ledger.Viewer, handle: ofVerification(showBreakdown)},
	{pattern: "GET /w/{ws}/verifications/{id}/addresses/{ordinal}", role: ledger.Viewer,
		handle: ofVerification(showAddress)},
	{pattern: "GET /w/{ws}/check", role: ledger.Member, handle: checkForm},
	{pattern: "POST /w/{ws}/check", role: ledger.Member, handle: checkOne},
	{pattern: "GET /w/{ws}/credits", role: ledger.Viewer, handle: showCredits},
	{pattern: "GET /w/{ws}/keys", role: ledger.Owner, handle: showKeys},
	{pattern: "POST /w/{ws}/keys", role: ledger.Owner, handle: makeKey},
	{pattern: "GET /w/{ws}/keys/{key}", role: ledger.Owner, handle: askRevoke},
	{pattern: "POST /w/{ws}/keys/{key}/revoke", role: ledger.Owner, handle: revokeKey},
	{pattern: "GET /w/{ws}/people", role: ledger.Owner, handle: showPeople},
	{pattern: "POST /w/{ws}/people", role: ledger.Owner, handle: invite},
	{pattern: "POST /w/{ws}/people/links", role: ledger.Owner, handle: endLink},
	{pattern: "GET /w/{ws}/people/{user}", role: ledger.Owner, handle: showMember},
	{pattern: "POST /w/{ws}/people/{user}/role", role: ledger.Owner, handle: setRole},
	{pattern: "POST /w/{ws}/people/{user}/sessions", role: ledger.Owner, handle: endMemberSessions},
	{pattern: "GET /w/{ws}/activity", role: ledger.Owner, handle: showLog},
}

//go:embed pages
var pageFiles embed.FS

type frame struct {
	web.Frame
	User      *ledger.User
	Member    *ledger.Membership
	Others    []ledger.Membership // the user's other workspaces
	Available *ledger.Credits
	AskCodes  bool // an owner should turn on two-step sign-in
	Body      any
}

// titled returns the frame of a page. here is the page's entry in the menu.
func titled(title, here string, body any) *frame {
	return &frame{Frame: web.Frame{Title: title, Here: here}, Body: body}
}

// proof holds the names of the fields that prove who the user is: the password and, with two-step sign-in, a code.
type proof struct {
	Key   string // prefix of the ids of its fields
	User  *ledger.User
	Codes bool
}

// menu is the menu of a member. Each entry has the least role that sees it.
var menu = []struct {
	key, path, word string
	role            ledger.Role
}{
	{"list", "", "Verifications", ledger.Viewer}, {"upload", "/upload", "Upload", ledger.Member},
	{"check", "/check", "Check one", ledger.Member}, {"credits", "/credits", "Credits", ledger.Viewer},
	{"keys", "/keys", "API keys", ledger.Owner}, {"people", "/people", "People", ledger.Owner},
	{"activity", "/activity", "Activity", ledger.Owner},
}

// Upload reports whether the member may upload.
func (f *frame) Upload() bool { return f.Member != nil && f.Member.Role.Allows(ledger.Member) }

func (d *Dashboard) render(w http.ResponseWriter, r *http.Request, status int, name string, f *frame) {
	if f.Secret {
		w.Header().Set("Referrer-Policy", "no-referrer")
	}
	f.RequestID, f.Colours = httpd.PageRequestOf(r.Context()).ID, web.ColoursOf(r)
	f.Contact, f.Version = d.o.Contact, d.o.Version
	d.Pages.Render(w, status, name, f)
}

// show answers with a page for a signed-in user. The page also has the user's workspace and its balance.
func (d *Dashboard) show(w http.ResponseWriter, r *request, status int, name string, f *frame) error {
	if !r.in.User.Created.IsZero() || r.in.User.Email != "" {
		f.User = &r.in.User
	}
	if r.member.Role != "" {
		balance, err := d.o.Book.Balance(r.Context(), r.workspace())
		if err != nil {
			return at("read balance", err)
		}
		f.Member, f.Available = &r.member, &balance.Available
		for _, m := range menu {
			if r.may(m.role) {
				f.Nav = append(f.Nav, web.Entry{Key: m.key, Link: r.base() + m.path, Word: m.word})
			}
		}
	}
	for _, m := range r.in.Memberships {
		if m.Workspace != r.member.Workspace {
			f.Others = append(f.Others, m)
		}
	}
	f.AskCodes = asksForCodes(r.in.User, r.in.Memberships)
	d.render(w, r.Request, status, name, f)
	return nil
}

func seeOther(w http.ResponseWriter, r *request, to string) error {
	http.Redirect(w, r.Request, to, http.StatusSeeOther)
	return nil
}
