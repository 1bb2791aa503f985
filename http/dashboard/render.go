package dashboard

import (
	"embed"
	"net/http"

	httpd "rollcall/http"
	"rollcall/http/web"
	"rollcall/ledger"
)

//go:embed pages
var pageFiles embed.FS

// frame is what the layout of every page shows, around the body of one.
type frame struct {
	web.Frame
	User      *ledger.User
	Member    *ledger.Membership
	Others    []ledger.Membership // the user's other workspaces
	Available *ledger.Credits
	AskCodes  bool // an owner should turn on two-step sign-in
	Body      any
}

// titled is the frame of a page. here is the entry of the menu that it belongs to.
func titled(title, here string, body any) *frame {
	return &frame{Frame: web.Frame{Title: title, Here: here}, Body: body}
}

// proof is what somebody types to show that it's them: the password and, where two-step sign-in is on, a code.
type proof struct {
	Key   string // of the ids of its fields
	User  *ledger.User
	Codes bool
}

func proofOf(key string, user *ledger.User, codes bool) proof { return proof{key, user, codes} }

// menu is what a member finds in the head of each page, by the least role.
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

// show answers with a page for who is signed in: with their workspace and what it has.
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
