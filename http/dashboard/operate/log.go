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
	Lines []ledger.LogLine
	Older string // a link; "" on the last page
	First bool
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
	v := logView{Lines: found, First: q.Before.IsZero()}
	if n := len(found); n == logShown {
		v.Older = "/log?before=" + found[n-1].At.UTC().Format(time.RFC3339Nano) + "&after=" + found[n-1].ID.String()
	}
	p.show(w, r, http.StatusOK, "log", &frame{Here: "log", Body: v, Frame: view.Frame{Title: "Log"}})
}
