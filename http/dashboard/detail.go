package dashboard

import (
	"errors"
	"html/template"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"rollcall/http/dashboard/view"
	"rollcall/ledger"
	"rollcall/smtp"
)

// detailView is the page of one verification.
type detailView struct {
	Name    string
	Base    string // its path
	By      string // who made it; "": nobody said
	Live    template.HTML
	Form    string // the id of the form that cancels
	Cancel  bool
	Reasons []smtp.Reason
	Words   []smtp.Outcome
	Single  bool          // it is a check of one address
	Newest  *registerView // the newest results of a file; nil: there are none to show
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
	part := d.livePart(live, keyOf(live))
	by, err := d.makers(r, v)
	if err != nil {
		d.unavailable(w, r.Request, "read who made it", err)
		return
	}
	show := detailView{By: by.of(v.MadeBy), Name: nameOf(v), Base: baseOf(r, v), Live: template.HTML(part.html("")), Form: uuid.NewString(),
		Cancel: r.may(ledger.Member) && !v.Status.Final(), Words: smtp.Outcomes[:], Single: v.Kind == ledger.Single}
	if v.Kind == ledger.Bulk && live.Results {
		if show.Newest, err = d.newest(r, v); err != nil {
			d.unavailable(w, r.Request, "read results", err)
			return
		}
	}
	for reason := smtp.ReasonNone + 1; reason.Known(); reason++ {
		show.Reasons = append(show.Reasons, reason)
	}
	d.show(w, r, http.StatusOK, "detail", &frame{Here: "list", Body: show,
		Frame: view.Frame{Title: show.Name + " · Verifications", Live: !v.Status.Final()}})
}

func baseOf(r *request, v ledger.Verification) string {
	return "/w/" + r.workspace().String() + "/verifications/" + v.ID.String()
}

// askCancel answers GET /w/{ws}/verifications/{id}/cancel: what is lost and what stays.
func askCancel(d *Dashboard, w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	base := baseOf(r, v)
	d.show(w, r, http.StatusOK, "confirm", &frame{Frame: view.Frame{Title: "Cancel " + nameOf(v)}, Here: "list",
		Body: confirmView{Title: "Cancel " + nameOf(v) + "?", Up: nameOf(v), Back: base, Done: v.Status.Final(),
			Text: []string{"Addresses without a final outcome won't be checked, and their credits are released. This can't be undone.",
				"Existing results stay, and so does what they cost."},
			Already: "This verification is already over.", Action: base + "/cancel", Verb: "Cancel the verification",
			Stay: "Keep it running", Form: uuid.NewString()}})
}

// cancel answers POST /w/{ws}/verifications/{id}/cancel. A second time changes nothing: the ledger answers how it is.
func (d *Dashboard) cancel(w http.ResponseWriter, r *request) {
	if _, ok := parseID(r.PostFormValue("form")); !ok {
		d.fail(w, r.Request, failure{Status: http.StatusUnprocessableEntity, Title: "The form was incomplete",
			Text: "Nothing was changed.", Next: "Open the verification again and cancel it there.",
			Link: "/w/" + r.workspace().String() + "/verifications/" + r.id.String(), Label: "To the verification"})
		return
	}
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
