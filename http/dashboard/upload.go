package dashboard

import (
	"net/http"

	httpd "rollcall/http"
	"rollcall/http/web"
	"rollcall/ledger"
)

// uploadScripts are those of a page with the panel.
var uploadScripts = []string{"rows.js", "upload.js"}

// panelView is the part of a page that uploads a file.
type panelView struct {
	Base      string // the path of the workspace
	Workspace string
	MaxBytes  int64
	OnDrop    bool // it is not shown before a file is dropped on the page
}

func (d *Dashboard) panel(r *request, onDrop bool) panelView {
	id := r.workspace().String()
	return panelView{Base: "/w/" + id, Workspace: id, MaxBytes: d.o.MaxFileBytes, OnDrop: onDrop}
}

// uploadView is the page to upload a file.
type uploadView struct {
	Panel   panelView
	MaxRows int64
	Curl    string
	Dev     string // what the receivers of a developer's node know; "": it is none
}

// uploadForm answers GET /w/{ws}/upload.
func (d *Dashboard) uploadForm(w http.ResponseWriter, r *request) {
	d.show(w, r, http.StatusOK, "upload", &frame{Frame: web.Frame{Title: "Upload a CSV", Here: "upload", Scripts: uploadScripts},
		Body: uploadView{Panel: d.panel(r, false), MaxRows: d.o.MaxRows, Curl: curlOf(d.o.PublicURL()), Dev: d.devNote()}})
}

// devNote says that a developer's node asks simulated receivers; "" for others.
func (d *Dashboard) devNote() string {
	if !d.o.Dev {
		return ""
	}
	return "This is serve --dev: its simulated receivers know only addresses that end with .test, such as anna@acme-clean.test."
}

// create answers POST /w/{ws}/verifications: what the API answers to the same headers.
func (d *Dashboard) create(_ http.ResponseWriter, r *request) {
	acting, _ := ledger.ActingOf(r.Context())
	r.page.Do(httpd.Act{Operation: httpd.Create, Workspace: r.workspace(), User: r.in.User.ID, Acting: acting})
}

// uploadState answers GET /w/{ws}/verifications/{id}/upload: what the API answers about the verification, with the URL of
// its upload while bytes are missing.
func (d *Dashboard) uploadState(_ http.ResponseWriter, r *request) {
	r.page.Do(httpd.Act{Operation: httpd.Detail, Workspace: r.workspace(), User: r.in.User.ID,
		Verification: r.id.String()})
}
