package operate

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"rollcall/http/web"
	"rollcall/ledger"
)

// logShown is how many lines a page of the log has.
const logShown = 100

// logView is a page of the operator log.
type logView struct {
	Lines []logLine
	Pager web.Pager
}

// logLine is one line. On names its subject, and the workspace.
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
	v := logView{}
	if !q.Before.IsZero() {
		v.Pager.First = "/log"
	}
	for _, l := range found {
		v.Lines = append(v.Lines, logLine{l, logSubject(l, names[l.Workspace])})
	}
	if n := len(found); n == logShown {
		v.Pager.More = "/log?before=" + found[n-1].At.UTC().Format(time.RFC3339Nano) + "&after=" + found[n-1].ID.String()
	}
	p.show(w, r, http.StatusOK, "log", titled("Log", "log", v))
}

// logSubject is the subject of a line, with the workspace's name in place of its id.
func logSubject(l ledger.LogLine, workspace string) string {
	switch {
	case workspace == "":
		return l.Subject
	case l.Subject == l.Workspace.String(), uuid.Validate(l.Subject) == nil: // the id of a grant means nothing to people
		return workspace
	}
	return l.Subject + " in " + workspace
}
