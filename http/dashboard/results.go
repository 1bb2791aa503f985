package dashboard

import (
	"net/http"
	"strings"

	httpd "rollcall/http"
	"rollcall/ledger"
	"rollcall/smtp"
)

// results answers GET /w/{ws}/verifications/{id}/results.csv: package http sends the rows. The owners of a workspace read
// in its log who has downloaded what.
func (d *Dashboard) results(w http.ResponseWriter, r *request) {
	query := r.URL.Query()
	outcome, okOutcome := outcomeNamed(query.Get("outcome"))
	reason, okReason := reasonNamed(query.Get("reason"))
	use := query.Get("for")
	if !okOutcome || !okReason || use != "" && use != "program" {
		d.fail(w, r.Request, failure{Status: http.StatusUnprocessableEntity, Title: "These results don't exist",
			Text: "The link asks for an outcome, a reason or a kind of file that does not exist.",
			Next: "Choose on the page of the verification."})
		return
	}
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	name, detail := shortName(strings.TrimSuffix(nameOf(v), ".csv"))+"-results", "all"
	for _, part := range []string{query.Get("outcome"), query.Get("reason")} {
		if part != "" {
			name, detail = name+"-"+part, strings.TrimPrefix(detail+" "+part, "all ")
		}
	}
	if r.Method == http.MethodGet {
		line := ledger.WorkspaceLine{Actor: "user:" + r.in.User.ID.String(), Action: "results downloaded",
			Subject: v.ID.String(), Detail: detail}
		if err := d.o.Book.LogWorkspace(r.Context(), r.workspace(), line); err != nil {
			d.unavailable(w, r.Request, "log the download", err)
			return
		}
	}
	r.page.Do(httpd.Act{Operation: httpd.Download, Workspace: r.workspace(), User: r.in.User.ID, Verification: r.id.String(),
		Rows: httpd.Rows{Outcome: outcome, Reason: reason, Spreadsheet: use == ""}, Name: name + ".csv"})
}

// savedMax bounds what a download takes of the name of the file, in bytes: file systems take names of 255, and a browser that
// cannot save a file under its name saves none.
const savedMax = 160

// shortName is a name that has room for what a download puts behind it.
func shortName(name string) string {
	if len(name) <= savedMax {
		return name
	}
	return strings.ToValidUTF8(name[:savedMax], "") + "…"
}

// outcomeNamed finds an outcome; all of them for "".
func outcomeNamed(text string) (smtp.Outcome, bool) {
	if text == "" {
		return smtp.Undecided, true
	}
	for _, o := range smtp.Outcomes {
		if o.String() == text {
			return o, true
		}
	}
	return smtp.Undecided, false
}

// reasonNamed finds a reason; all of them for "".
func reasonNamed(text string) (smtp.Reason, bool) {
	if text == "" {
		return smtp.ReasonNone, true
	}
	for r := smtp.ReasonNone + 1; r.Known(); r++ {
		if r.String() == text {
			return r, true
		}
	}
	return smtp.ReasonNone, false
}
