package dashboard

import (
	"net/http"

	httpd "rollcall/http"
	"rollcall/http/dashboard/view"
	"rollcall/ledger"
)

// uploadView is the page to upload a file.
type uploadView struct {
	Base      string // the path of the workspace
	MaxBytes  int64
	MaxRows   int64
	Available ledger.Credits
	API       string // the public URL, for curl
	Workspace string
}

// uploadForm answers GET /w/{ws}/upload.
func (d *Dashboard) uploadForm(w http.ResponseWriter, r *request) {
	balance, err := d.o.Book.Balance(r.Context(), r.workspace())
	if err != nil {
		d.unavailable(w, r.Request, "read balance", err)
		return
	}
	d.show(w, r, http.StatusOK, "upload", &frame{Frame: view.Frame{Title: "Upload a CSV", Script: "upload.js"}, Here: "upload",
		Body: uploadView{Base: "/w/" + r.workspace().String(), MaxBytes: d.o.MaxFileBytes, MaxRows: d.o.MaxRows,
			Available: balance.Available, API: d.o.PublicURL(), Workspace: r.workspace().String()}})
}

// create answers POST /w/{ws}/verifications: what the API answers to the same headers.
func (d *Dashboard) create(_ http.ResponseWriter, r *request) {
	r.page.Do(httpd.Act{Operation: httpd.Create, Workspace: r.workspace(), User: r.in.User.ID})
}

// uploadState answers GET /w/{ws}/verifications/{id}/upload: what the API answers about the verification, with the URL of
// its upload while bytes are missing.
func (d *Dashboard) uploadState(_ http.ResponseWriter, r *request) {
	r.page.Do(httpd.Act{Operation: httpd.Detail, Workspace: r.workspace(), User: r.in.User.ID,
		Verification: r.id.String()})
}
