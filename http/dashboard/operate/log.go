package operate

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"rollcall/http/dashboard/view"
	"rollcall/ledger"
)

// logShown is how many lines a page of the log has.
const logShown = 100

// logView is a page of the operator log.
type logView struct {
	Lines []logLine
	Older string // a link; "" on the last page
	First bool
}

// logLine is one line. On names what it is about, and in which workspace.
type logLine struct {
	ledger.LogLine
	On string
}

// showLog answers GET /log.
func showLog(p *Pages, w http.ResponseWriter, r *request) {
	q := ledger.LogQuery{Limit: logShown}
	if text := r.URL.Query().Get("before"); text != "" {
		var err error
		if q.Before, err = time.Parse(time.RFC3339Nano, text); err == nil {
			q.After, err = uuid.Parse(r.URL.Query().Get("after"))
		}
		if err != nil {
			http.Redirect(w, r.Request, "/log", http.StatusSeeOther)
			return
		}
	}
	found, err := p.desk.Log(r.Context(), q)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	names, err := p.names(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	v := logView{First: q.Before.IsZero()}
	for _, l := range found {
		v.Lines = append(v.Lines, logLine{l, logSubject(l, names[l.Workspace])})
	}
	if n := len(found); n == logShown {
		v.Older = "/log?before=" + found[n-1].At.UTC().Format(time.RFC3339Nano) + "&after=" + found[n-1].ID.String()
	}
	p.show(w, r, http.StatusOK, "log", &frame{Here: "log", Body: v, Frame: view.Frame{Title: "Log"}})
}

// logSubject is what a line is about, with the name of its workspace in place of its id.
func logSubject(l ledger.LogLine, workspace string) string {
	switch {
	case workspace == "":
		return l.Subject
	case l.Subject == l.Workspace.String():
		return workspace
	}
	return l.Subject + " in " + workspace
}
