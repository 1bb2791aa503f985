package dashboard

import (
	"embed"
	"net/http"

	httpd "rollcall/http"
	"rollcall/http/web"
	"rollcall/ledger"
)

// access is who may use a route.
type access int

const (
	anybody  access = iota
	signedIn        // who is signed in
	inside          // members of the workspace with the role of the route
)

// route is one path and method.
type route struct {
	pattern string
	access  access
	role    ledger.Role // least role, for a route inside a workspace
	part    bool        // requested by a script: refused without a page
	handle  func(*Dashboard, http.ResponseWriter, *request)
}

// routes is every route. The comment of its function says what it does.
var routes = []route{
	{pattern: "GET /{$}", access: anybody, handle: (*Dashboard).home},
	{pattern: "GET /assets/{name}", access: anybody, handle: asset},
	{pattern: "GET /docs", access: anybody, handle: guide},
	{pattern: "GET /docs/{page}", access: anybody, handle: guide},
	{pattern: "GET /status", access: anybody, handle: status},
	{pattern: "GET /sign-in", access: anybody, handle: (*Dashboard).showSignIn},
	{pattern: "POST /sign-in", access: anybody, handle: (*Dashboard).signInNow},
	{pattern: "POST /sign-in/code", access: anybody, handle: (*Dashboard).giveCode},
	{pattern: "POST /sign-out", access: anybody, handle: (*Dashboard).signOut},
	{pattern: "GET /oidc/start", access: anybody, handle: (*Dashboard).startProvider},
	{pattern: "GET " + backPath, access: anybody, handle: (*Dashboard).backFromProvider},
	{pattern: "POST /oidc/join", access: anybody, handle: choose},
	{pattern: "GET /link/{token}", access: anybody, handle: (*Dashboard).showLink},
	{pattern: "POST /link/{token}", access: anybody, handle: (*Dashboard).acceptLink},
	{pattern: "GET /you", access: signedIn, handle: (*Dashboard).you},
	{pattern: "POST /you/password", access: signedIn, handle: (*Dashboard).changePassword},
	{pattern: "POST /you/provider", access: signedIn, handle: (*Dashboard).bindProvider},
	{pattern: "POST /you/provider/off", access: signedIn, handle: (*Dashboard).unbindProvider},
	{pattern: "GET /you/codes", access: signedIn, handle: (*Dashboard).codes},
	{pattern: "POST /you/codes", access: signedIn, handle: (*Dashboard).codesOn},
	{pattern: "POST /you/codes/off", access: signedIn, handle: (*Dashboard).codesOff},
	{pattern: "POST /you/codes/new", access: signedIn, handle: (*Dashboard).renewRecovery},
	{pattern: "POST /you/codes/saved", access: signedIn, handle: (*Dashboard).savedRecovery},
	{pattern: "POST /you/sessions", access: signedIn, handle: (*Dashboard).endSessions},
	{pattern: "POST /you/colours", access: signedIn, handle: (*Dashboard).setColours},
	{pattern: "GET /w/{ws}", access: inside, role: ledger.Viewer, handle: (*Dashboard).list},
	{pattern: "GET /w/{ws}/upload", access: inside, role: ledger.Member, handle: (*Dashboard).uploadForm},
	{pattern: "GET /w/{ws}/example.csv", access: inside, role: ledger.Member, handle: example},
	{pattern: "POST /w/{ws}/verifications", access: inside, role: ledger.Member, part: true, handle: (*Dashboard).create},
	{pattern: "GET /w/{ws}/verifications/{id}", access: inside, role: ledger.Viewer, handle: (*Dashboard).detail},
	{pattern: "GET /w/{ws}/verifications/{id}/live", access: inside, role: ledger.Viewer, part: true,
		handle: (*Dashboard).live},
	{pattern: "GET /w/{ws}/verifications/{id}/upload", access: inside, role: ledger.Member, part: true,
		handle: (*Dashboard).uploadState},
	{pattern: "GET /w/{ws}/verifications/{id}/cancel", access: inside, role: ledger.Member, handle: askCancel},
	{pattern: "POST /w/{ws}/verifications/{id}/cancel", access: inside, role: ledger.Member, handle: (*Dashboard).cancel},
	{pattern: "GET /w/{ws}/verifications/{id}/results.csv", access: inside, role: ledger.Viewer,
		handle: (*Dashboard).results},
	{pattern: "GET /w/{ws}/verifications/{id}/results", access: inside, role: ledger.Viewer, handle: showResults},
	{pattern: "POST /w/{ws}/verifications/{id}/results", access: inside, role: ledger.Viewer, handle: showResults},
	{pattern: "GET /w/{ws}/verifications/{id}/reasons", access: inside, role: ledger.Viewer, handle: showBreakdown},
	{pattern: "GET /w/{ws}/verifications/{id}/addresses/{ordinal}", access: inside, role: ledger.Viewer, handle: showAddress},
	{pattern: "GET /w/{ws}/check", access: inside, role: ledger.Member, handle: checkForm},
	{pattern: "POST /w/{ws}/check", access: inside, role: ledger.Member, handle: checkOne},
	{pattern: "GET /w/{ws}/credits", access: inside, role: ledger.Viewer, handle: showCredits},
	{pattern: "GET /w/{ws}/keys", access: inside, role: ledger.Owner, handle: showKeys},
	{pattern: "POST /w/{ws}/keys", access: inside, role: ledger.Owner, handle: makeKey},
	{pattern: "GET /w/{ws}/keys/{key}", access: inside, role: ledger.Owner, handle: askRevoke},
	{pattern: "POST /w/{ws}/keys/{key}/revoke", access: inside, role: ledger.Owner, handle: revokeKey},
	{pattern: "GET /w/{ws}/people", access: inside, role: ledger.Owner, handle: showPeople},
	{pattern: "POST /w/{ws}/people", access: inside, role: ledger.Owner, handle: invite},
	{pattern: "POST /w/{ws}/people/links", access: inside, role: ledger.Owner, handle: endLink},
	{pattern: "GET /w/{ws}/people/{user}", access: inside, role: ledger.Owner, handle: showMember},
	{pattern: "POST /w/{ws}/people/{user}/role", access: inside, role: ledger.Owner, handle: setRole},
	{pattern: "POST /w/{ws}/people/{user}/sessions", access: inside, role: ledger.Owner, handle: endMemberSessions},
	{pattern: "GET /w/{ws}/activity", access: inside, role: ledger.Owner, handle: showLog},
}

//go:embed pages
var pageFiles embed.FS

// frame is the content of the layout around a page's body.
type frame struct {
	web.Frame
	User      *ledger.User
	Member    *ledger.Membership
	Others    []ledger.Membership // the user's other workspaces
	Available *ledger.Credits
	AskCodes  bool // an owner should turn on two-step sign-in
	Body      any
}

// titled is the frame of a page. here is its entry in the menu.
func titled(title, here string, body any) *frame {
	return &frame{Frame: web.Frame{Title: title, Here: here}, Body: body}
}

// proof is the fields that prove who the user is: the password and, with two-step sign-in, a code.
type proof struct {
	Key   string // of the ids of its fields
	User  *ledger.User
	Codes bool
}

func proofOf(key string, user *ledger.User, codes bool) proof { return proof{key, user, codes} }

// menu is the menu of a member, with the least role of each entry.
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

// render answers with a whole page.
func (d *Dashboard) render(w http.ResponseWriter, r *http.Request, status int, name string, f *frame) {
	if f.Secret {
		w.Header().Set("Referrer-Policy", "no-referrer")
	}
	f.RequestID, f.Colours = httpd.PageRequestOf(r.Context()).ID, web.ColoursOf(r)
	f.Contact, f.Version = d.o.Contact, d.o.Version
	d.Pages.Render(w, status, name, f)
}

// show answers with a page for a signed-in user, with their workspace and its balance.
func (d *Dashboard) show(w http.ResponseWriter, r *request, status int, name string, f *frame) {
	if !r.in.User.Created.IsZero() || r.in.User.Email != "" {
		f.User = &r.in.User
	}
	if r.member.Role != "" {
		balance, err := d.o.Book.Balance(r.Context(), r.workspace())
		if err != nil {
			d.unavailable(w, r.Request, "read balance", err)
			return
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
}
