package dashboard

import (
	"embed"
	"html/template"
	"net/http"

	"rollcall/http/dashboard/view"
	"rollcall/ledger"
)

//go:embed pages
var pageFiles embed.FS

// frame is what the layout of every page shows, around the body of one.
type frame struct {
	view.Frame
	Here      string // which entry of the head is this page
	User      *ledger.User
	Member    *ledger.Membership
	Others    []ledger.Membership // the user's other workspaces
	Available *ledger.Credits
	AskCodes  bool // an owner should switch codes on
	Body      any
}

// Upload reports whether the member may upload.
func (f *frame) Upload() bool { return f.Member != nil && f.Member.Role.Allows(ledger.Member) }

// Owns reports whether the member is an owner.
func (f *frame) Owns() bool { return f.Member != nil && f.Member.Role.Allows(ledger.Owner) }

// newPages parses every page.
func newPages(a *view.Assets) (*view.Pages, error) {
	return view.NewPages(a, pageFiles, []string{"pages/parts/*.html"},
		template.FuncMap{"credits": view.Thin[ledger.Credits], "role": roleText})
}

// render answers with a whole page.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, f *frame) {
	if f.Secret {
		w.Header().Set("Referrer-Policy", "no-referrer")
	}
	d.pages.Render(w, status, name, f)
}

// show answers with a page for who is signed in: with their workspace and what it has.
func (d *Dashboard) show(w http.ResponseWriter, r *request, status int, name string, f *frame) {
	f.RequestID, f.Colours, f.Contact = r.page.ID, view.ColoursOf(r.Request), d.o.Contact
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
	}
	for _, m := range r.in.Memberships {
		if m.Workspace != r.member.Workspace {
			f.Others = append(f.Others, m)
		}
	}
	f.AskCodes = asksForCodes(r.in.User, r.in.Memberships)
	d.render(w, status, name, f)
}

// roleText says what a role may do.
func roleText(r ledger.Role) string {
	switch r {
	case ledger.Owner:
		return "Owners can see and do everything, and manage keys and people."
	case ledger.Member:
		return "Members can see everything, and can upload, check and cancel."
	}
	return "Viewers can see everything and change nothing."
}
