package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	httpd "rollcall/http"
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
	Single  bool // it is a check of one address
}

// liveView is the part that is asked for again.
type liveView struct {
	V        ledger.Verification
	Base     string
	State    stateView
	Outcomes []outcome
	Done     int64 // final, without what was cancelled
	Charged  int64
	Every    string // when to ask again; "" when it will not change any more
	ETag     string
	Cancel   bool
	Results  bool
	Go       string // where an upload goes on; "" for who may not
	Missing  string // what is missing of credits; "" unless it waits for them
	Say      string // what a reader is told when it changes
	Waits    []waitLine
	Talk     *talkView // of the check of one address that is over; nil: none
	Reasons  bool      // there is a summary of reasons
	Single   bool      // it is a check of one address: what belongs to a file is left out
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
	part, _, err := d.livePart(r, v)
	if err != nil {
		d.unavailable(w, r.Request, "read balance", err)
		return
	}
	by, err := d.makers(r, v)
	if err != nil {
		d.unavailable(w, r.Request, "read who made it", err)
		return
	}
	show := detailView{By: by.of(v.MadeBy), Name: nameOf(v), Base: baseOf(r, v), Live: template.HTML(part), Form: uuid.NewString(),
		Cancel: r.may(ledger.Member) && !v.Status.Final(), Words: smtp.Outcomes[:], Single: v.Kind == ledger.Single}
	for reason := smtp.ReasonNone + 1; reason.Known(); reason++ {
		show.Reasons = append(show.Reasons, reason)
	}
	d.show(w, r, http.StatusOK, "detail", &frame{Here: "list", Body: show,
		Frame: view.Frame{Title: show.Name + " · Verifications", Live: !v.Status.Final()}})
}

// live answers GET /w/{ws}/verifications/{id}/live: the part, or 304 when nothing has changed.
func (d *Dashboard) live(w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	part, etag, err := d.livePart(r, v)
	if err != nil {
		d.unavailable(w, r.Request, "read balance", err)
		return
	}
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(part)))
	_, _ = w.Write([]byte(part))
}

func baseOf(r *request, v ledger.Verification) string {
	return "/w/" + r.workspace().String() + "/verifications/" + v.ID.String()
}

// livePart makes the part that changes, with its tag. Only a file that waits for credits needs a second question to the
// ledger: how many there are.
func (d *Dashboard) livePart(r *request, v ledger.Verification) (part, etag string, err error) {
	show := liveView{V: v, Base: baseOf(r, v), State: stateOf(v), Outcomes: outcomesOf(v), Charged: v.Counts.Charged(),
		Done: v.Counts.Sum() - v.Counts.Cancelled, Cancel: r.may(ledger.Member) && !v.Status.Final(),
		Single: v.Kind == ledger.Single}
	show.Results = show.Done > 0
	show.Reasons = show.Results && v.Status.Final()
	show.Waits = d.waits(r.Context(), v)
	if v.Kind == ledger.Single && show.Results {
		if show.Talk, err = d.talk(r.Context(), v, 0, 0); err != nil && !errors.Is(err, ledger.ErrResultsExpired) {
			return "", "", err
		}
	}
	if again := httpd.RetryAfter(v, d.now()); again > 0 {
		if show.Single && v.Status == ledger.Verifying && d.now().Sub(v.Created) < soonFor {
			again = steps[0]
		}
		show.Every = strconv.Itoa(step(again)) + "s"
	}
	if v.Status == ledger.Uploading && r.may(ledger.Member) {
		show.Go = "/w/" + r.workspace().String() + "/upload"
	}
	if v.State() == ledger.WaitingCredits {
		balance, err := d.o.Book.Balance(r.Context(), r.workspace())
		if err != nil {
			return "", "", err
		}
		show.Missing = view.Plural(v.Total, "credit") + " are needed, " + view.Thin(balance.Available) + " are available."
	}
	show.Say = show.State.Word
	if v.Total > 0 {
		show.Say += ", " + view.Thin(show.Done) + " of " + view.Thin(v.Total) + " final"
	}
	made := d.pages.Part("detail", "live", show)
	sum := sha256.Sum256(made)
	etag = `"` + hex.EncodeToString(sum[:12]) + `"`
	const open = `data-etag=""`
	return strings.Replace(string(made), open, `data-etag="`+template.HTMLEscapeString(etag)+`"`, 1), etag, nil
}

// steps are the paces of a part that asks again, in seconds. There are few, since another pace is a changed part.
var steps = []int{2, 5, 10, 20, 30, 60}

// soonFor is how long the page of a check looks again at the fastest pace: most outcomes are there within a second or two, and
// somebody waits for each.
const soonFor = time.Minute

// step is the pace at which to ask for what is told to be new after some seconds: no faster.
func step(seconds int) int {
	for _, s := range steps {
		if seconds <= s {
			return s
		}
	}
	return steps[len(steps)-1]
}

// Expected says when the last address is expected to be final; nothing when it is not known or over.
func (l liveView) Expected() *time.Time {
	if l.V.Expected.IsZero() || l.V.Status.Final() {
		return nil
	}
	return &l.V.Expected
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
			Text: []string{"Addresses that are not final yet will not be checked, and their credits come back. This cannot be undone.",
				"Results that are there stay, and what they cost."},
			Already: "This verification is over already.", Action: base + "/cancel", Verb: "Cancel the verification",
			Stay: "Go on with it", Form: uuid.NewString()}})
}

// cancel answers POST /w/{ws}/verifications/{id}/cancel. A second time changes nothing: the ledger answers how it is.
func (d *Dashboard) cancel(w http.ResponseWriter, r *request) {
	if _, ok := parseID(r.PostFormValue("form")); !ok {
		d.fail(w, r.Request, failure{Status: http.StatusUnprocessableEntity, Title: "The form was not whole",
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
