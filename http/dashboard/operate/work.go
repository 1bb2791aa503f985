package operate

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	waiting "rollcall/actors/view"
	"rollcall/http/admin"
	"rollcall/http/dashboard/view"
	"rollcall/ledger"
)

// openShown bounds the list of open verifications.
const openShown = 100

// openView is what is not done, of all workspaces.
type openView struct {
	Rows []openRow
	All  bool // nothing was left out
	Find string
}

// openRow is a verification that is not done.
type openRow struct {
	ledger.Verification
	Workspace string // its name, or its id
	Name      string
	Age       float64 // seconds
	Done      int64
}

// verifications answers GET /verifications.
func verifications(p *Pages, w http.ResponseWriter, r *request) {
	found, err := p.desk.Open(r.Context(), openShown)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	names, err := p.names(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	v := openView{All: len(found) < openShown, Find: strings.ToLower(strings.TrimSpace(r.URL.Query().Get("find")))}
	for _, f := range found {
		row := openRow{f, names[f.Workspace], fileName(f), p.now().Sub(f.Created).Seconds(), f.Counts.Sum()}
		if row.Workspace == "" {
			row.Workspace = f.Workspace.String()
		}
		if strings.Contains(strings.ToLower(row.Workspace), v.Find) || strings.Contains(strings.ToLower(row.Name), v.Find) ||
			strings.HasPrefix(f.ID.String(), v.Find) {
			v.Rows = append(v.Rows, row)
		}
	}
	p.show(w, r, http.StatusOK, "verifications", &frame{Here: "verifications", Body: v,
		Frame: view.Frame{Title: "Verifications"}})
}

// fileName is what a verification is called: the customer's name of the file, or what it is.
func fileName(v ledger.Verification) string {
	switch {
	case v.Kind == ledger.Single:
		return "check of one address"
	case v.Filename != "":
		return v.Filename
	}
	return v.ID.String()
}

// names are the names of the workspaces.
func (p *Pages) names(r *request) (map[uuid.UUID]string, error) {
	found, err := p.desk.Names(r.Context())
	if err != nil {
		return nil, err
	}
	names := map[uuid.UUID]string{}
	for _, w := range found {
		names[w.ID] = w.Name
	}
	return names, nil
}

// waitsView is what one verification waits for.
type waitsView struct {
	waiting.Verification
	Waits []waitView
	Every string // "": it is over
}

// waitView is a wait with a link to who it is for.
type waitView struct {
	waiting.Wait
	Words string
}

// waitWords say what addresses wait for.
var waitWords = map[string]string{
	waiting.ForRoute:    "what DNS says of their domain",
	waiting.ForReceiver: "their turn",
	waiting.ForRetry:    "another try, since they were put off",
	waiting.ForControl:  "the answer whether their domain takes everything",
	waiting.ForDomain:   "other domains of the file",
	waiting.ForLedger:   "the ledger, which writes what came out",
}

// waitsEvery is how often what a verification waits for is asked for again.
const waitsEvery = "5s"

// readWaits asks what a verification waits for.
func (p *Pages) readWaits(r *request) (v waitsView, err error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return v, &admin.Refusal{Status: http.StatusNotFound, Message: "there is no verification with this id: compare it with the " +
			"one that its customer was given"}
	}
	if v.Verification, err = p.desk.Waits(r.Context(), id); err != nil {
		return v, err
	}
	if !ledger.Status(v.Status).Final() {
		v.Every = waitsEvery
	}
	slices.SortStableFunc(v.Verification.Waits, func(a, b waiting.Wait) int { return b.Addresses - a.Addresses })
	for _, wait := range v.Verification.Waits {
		v.Waits = append(v.Waits, waitView{wait, waitWords[wait.For]})
	}
	return v, nil
}

// verification answers GET /verifications/{id}.
func verification(p *Pages, w http.ResponseWriter, r *request) {
	v, err := p.readWaits(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	p.show(w, r, http.StatusOK, "verification", &frame{Here: "verifications", Body: v,
		Frame: view.Frame{Title: "What it waits for · Verifications", Live: true}})
}

// workspacesView is the workspaces with what they have.
type workspacesView struct {
	Rows    []admin.WorkspaceLine
	More    int
	Find    string
	Form    string
	Changes bool
	Problem string
	In      grantForm
}

// grantForm is what somebody filled in.
type grantForm struct{ Form, Workspace, Credits, Reason string }

// workspaces answers GET /workspaces.
func workspaces(p *Pages, w http.ResponseWriter, r *request) {
	p.showWorkspaces(w, r, http.StatusOK, grantForm{Form: uuid.NewString()}, "")
}

func (p *Pages) showWorkspaces(w http.ResponseWriter, r *request, status int, in grantForm, problem string) {
	v := workspacesView{Find: r.URL.Query().Get("find"), Changes: !r.in.ReadOnly, Problem: problem, In: in}
	var err error
	if v.Rows, v.More, err = p.desk.Workspaces(r.Context(), v.Find); err != nil {
		p.refuse(w, r, err)
		return
	}
	p.show(w, r, status, "workspaces", &frame{Here: "workspaces", Body: v, Frame: view.Frame{Title: "Workspaces"}})
}

// grant answers POST /workspaces/grant. The same form again is the same grant.
func grant(p *Pages, w http.ResponseWriter, r *request) {
	of := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	in := grantForm{of("form"), of("workspace"), of("credits"), of("reason")}
	id, wrongForm := uuid.Parse(in.Form)
	workspace, wrongWorkspace := uuid.Parse(in.Workspace)
	credits, wrongCredits := strconv.ParseInt(strings.NewReplacer(",", "", " ", "", "\u202f", "").Replace(in.Credits), 10, 64)
	problem := ""
	switch {
	case wrongForm != nil:
		problem, in.Form = "The form was too old. Send it once more.", uuid.NewString()
	case wrongWorkspace != nil:
		problem = "Choose a workspace."
	case wrongCredits != nil:
		problem = "Write how many credits as a whole number, such as 100000."
	case in.Reason == "":
		problem = "Say why: the customer's statement and the operator log keep it."
	}
	if problem != "" {
		p.showWorkspaces(w, r, http.StatusUnprocessableEntity, in, problem)
		return
	}
	_, err := p.desk.Grant(r.Context(), admin.GrantCall{ID: id, Workspace: workspace, Credits: credits, Reason: in.Reason})
	if status := statusOf(err); status == http.StatusBadRequest || status == http.StatusConflict {
		in.Form = uuid.NewString()
		p.showWorkspaces(w, r, http.StatusUnprocessableEntity, in, "This was not granted: "+plainly(err)+".")
		return
	}
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	http.Redirect(w, r.Request, "/workspaces?find="+workspace.String(), http.StatusSeeOther)
}

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
