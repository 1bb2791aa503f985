package dashboard

import (
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

// detailView is the page of one verification.
type detailView struct {
	Name            string
	Base            string // its path
	By              string // who made it; "": nobody said
	Created         time.Time
	Live            template.HTML
	Cancel          bool
	Reasons         []smtp.Reason
	Outcomes        []smtp.Outcome
	Outcome, Reason string // none is chosen
	Single          bool   // it is a check of one address
}

// find reads the verification of a request; it answers and gives false when there is none.
func (d *Dashboard) find(w http.ResponseWriter, r *request) (ledger.Verification, bool) {
	v, err := d.o.Book.Verification(r.Context(), r.workspace(), r.id)
	switch {
	case err == nil:
		return v, true
	case errors.Is(err, ledger.ErrNoSuchVerification):
		d.notFound(w, r.Request)
	default:
		d.unavailable(w, r.Request, "read verification", err)
	}
	return v, false
}

// detail answers GET /w/{ws}/verifications/{id}.
func (d *Dashboard) detail(w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	live, _, err := d.liveViewOf(r, v)
	if err != nil {
		d.unavailable(w, r.Request, "read balance", err)
		return
	}
	part, err := d.livePart(r, live, keyOf(live))
	by := namer{}
	if err == nil {
		by, err = d.makers(r, v)
	}
	if err != nil {
		d.unavailable(w, r.Request, "read results and who made it", err)
		return
	}
	show := detailView{By: by.of(v.MadeBy), Name: nameOf(v), Base: baseOf(r, v), Created: v.Created,
		Live: template.HTML(part.html("")), Cancel: live.Cancel, Outcomes: smtp.Outcomes[:], Reasons: allReasons(),
		Single: live.Single}
	f := web.Frame{Title: show.Name + " · Verifications", Here: "list", Live: !v.Status.Final()}
	if !show.Single {
		f.Scripts = []string{"join.js"}
	}
	d.show(w, r, http.StatusOK, "detail", &frame{Body: show, Frame: f})
}

func baseOf(r *request, v ledger.Verification) string {
	return r.base() + "/verifications/" + v.ID.String()
}

// askCancel answers GET /w/{ws}/verifications/{id}/cancel: what is lost and what stays.
func askCancel(d *Dashboard, w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	base, name := baseOf(r, v), nameOf(v)
	show := web.Confirm{Title: "Cancel " + name + "?", Up: name, Back: base, Action: base + "/cancel",
		Text: []string{"Addresses that aren't checked yet won't be, and their credits are released. This can't be undone.",
			"Existing results stay, and so does what they cost."},
		Verb: "Cancel the verification", Stay: "Keep it running"}
	if v.Status.Final() {
		show.Done = "This verification is already over."
	}
	d.show(w, r, http.StatusOK, "confirm", titled("Cancel "+name, "list", show))
}

// cancel answers POST /w/{ws}/verifications/{id}/cancel. A second time changes nothing: the ledger answers how it is.
func (d *Dashboard) cancel(w http.ResponseWriter, r *request) {
	v, err := d.o.Book.Cancel(r.Context(), r.workspace(), r.id)
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		d.notFound(w, r.Request)
		return
	case err != nil:
		d.unavailable(w, r.Request, "cancel", err)
		return
	}
	if d.o.Wake != nil {
		d.o.Wake()
	}
	http.Redirect(w, r.Request, baseOf(r, v), http.StatusSeeOther)
}

// percent is a part of a whole for an attribute of SVG.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 3, 64) + "%"
}
