package operate

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/ledger"
)

const (
	// listShown bounds each list on the page of a workspace except grants. Guess: the page stays below two thirds of
	// its bound.
	listShown = 100
	// grantsShown is how many grants the page shows.
	grantsShown = 20
)

type workspacesView struct {
	Rows []admin.WorkspaceLine
	More int // matching workspaces that are not shown
	Find string
}

// Count returns the number of matches.
func (v workspacesView) Count() int { return len(v.Rows) + v.More }

func workspaces(p *Pages, w http.ResponseWriter, r *request) error {
	v := workspacesView{Find: r.URL.Query().Get("find")}
	var err error
	if v.Rows, v.More, err = p.service.Workspaces(r.Context(), v.Find); err != nil {
		return err
	}
	return p.show(w, r, http.StatusOK, "workspaces", titled("Workspaces", "workspaces", v))
}

type workspaceView struct {
	admin.WorkspaceLine
	Limits     []limitRow
	Keys       []keyView
	MoreKeys   int
	Members    []ledger.Membership
	MoreOf     int       // members that are not shown
	People     bool      // somebody can sign in here
	Open       []openRow // without the name of the workspace
	MoreOpen   bool
	Grants     []ledger.Move
	MoreGrants bool
	Path       string
	Changes    bool
	Invites    bool
	In         workspaceForm
	Done       string // result of a form; "": none
	Link       *admin.UserLink
}

// Files are the unfinished verifications, for their table.
func (v workspaceView) Files() filesView { return filesView{v.Open} }

// workspaceForm is a filled-in form on the page of a workspace, with its problem.
type workspaceForm struct {
	Form                 string
	Credits, Reason      string // of a grant
	Weight               string
	Open, Stored, Unpaid string // limits
	Why                  string // of the limits
	Email                string // of an invitation
	Role                 ledger.Role
	Grant, Turns, Bounds string // the problem of each form
	Invite               string
}

type limitRow struct {
	Name string
	admin.Limit
	Bytes bool
}

type keyView struct{ ledger.Key }

// Name is the key's label, or its id.
func (k keyView) Name() string { return web.KeyName(k.Key) }

var errNoWorkspace = &admin.Refusal{Status: http.StatusNotFound, Message: "there is no such workspace; see GET /v1/workspaces"}

func workspace(p *Pages, w http.ResponseWriter, r *request) error {
	done := map[string]string{
		"granted":  "The credits were granted.",
		"weight":   "The weight was set. It applies on all nodes within two seconds.",
		"limits":   "The limits were set. They apply from the next file on.",
		"revoked":  "The key was revoked. It stops within 5 seconds.",
		"sessions": "All sessions of that member were ended. They stop within 5 seconds.",
		"disabled": "That member can no longer sign in. Their sessions stop within 5 seconds.",
		"enabled":  "That member can sign in again.",
	}[r.URL.Query().Get("done")]
	return p.showWorkspace(w, r, http.StatusOK, workspaceView{Done: done})
}

func (p *Pages) showWorkspace(w http.ResponseWriter, r *request, status int, v workspaceView) error {
	v.Path, v.Changes, v.Invites = "/workspaces/"+r.id.String(), !r.in.ReadOnly, p.service.Invites()
	for _, read := range []func(*request, uuid.UUID, *workspaceView) error{p.readAccount, p.readAccess, p.readWork} {
		if err := read(r, r.id, &v); err != nil {
			return err
		}
	}
	if v.In.Form == "" {
		v.In.Form = uuid.NewString()
	}
	if v.In.Weight == "" {
		v.In.Weight = strconv.Itoa(v.Weight)
	}
	v.In.Role = cmp.Or(v.In.Role, ledger.Member)
	return p.show(w, r, status, "workspace", titled(v.Name+" · Workspaces", "workspaces", v))
}

func (p *Pages) readAccount(r *request, id uuid.UUID, v *workspaceView) (err error) {
	if v.WorkspaceLine, err = p.service.ReadWorkspace(r.Context(), id); err != nil {
		return err
	}
	limits, err := p.service.ReadLimits(r.Context(), id)
	if err != nil {
		return err
	}
	v.Limits = []limitRow{{"Open verifications", limits.Open, false}, {"Stored bytes", limits.Stored, true},
		{"Unpaid verifications in 24 hours", limits.Unpaid, false}}
	if v.In.Bounds == "" {
		own := func(l admin.Limit) string {
			if l.Default {
				return "0"
			}
			return strconv.FormatInt(l.Limit, 10)
		}
		v.In.Open, v.In.Stored, v.In.Unpaid = own(limits.Open), own(limits.Stored), own(limits.Unpaid)
	}
	v.Grants, v.MoreGrants, err = p.service.ListGrants(r.Context(), id, grantsShown)
	return err
}

func (p *Pages) readAccess(r *request, id uuid.UUID, v *workspaceView) error {
	keys, err := p.service.ListKeys(r.Context(), id)
	if err != nil {
		return err
	}
	for _, k := range web.WorkingFirst(keys) {
		if len(v.Keys) < listShown {
			v.Keys = append(v.Keys, keyView{k})
		}
	}
	v.MoreKeys = len(keys) - len(v.Keys)
	v.Members, err = p.service.ListMembers(r.Context(), id)
	if status := statusOf(err); status == http.StatusConflict { // this process serves no pages
		return nil
	}
	v.People, v.MoreOf = err == nil, max(0, len(v.Members)-listShown)
	v.Members = v.Members[:len(v.Members)-v.MoreOf]
	return err
}

func (p *Pages) readWork(r *request, id uuid.UUID, v *workspaceView) error {
	open, err := p.service.ListOpen(r.Context(), id, listShown+1)
	if err != nil {
		return err
	}
	taken, err := p.service.Open(r.Context(), openRead) // a history does not have the node that works on a file
	if err != nil {
		return err
	}
	v.MoreOpen = len(open) > listShown
	for _, one := range open[:min(len(open), listShown)] {
		if at := slices.IndexFunc(taken, func(t ledger.Verification) bool { return t.ID == one.ID }); at >= 0 {
			one = taken[at]
		}
		v.Open = append(v.Open, rowOf(one, "", nil, p.now()))
	}
	return nil
}

// asNumber reads a whole number as people write it, with or without separators of groups.
func asNumber(text string) (int64, error) {
	return strconv.ParseInt(strings.NewReplacer(",", "", " ", "", "\u202f", "").Replace(text), 10, 64)
}

// problemOf returns the problem that the caller can correct in the form, or else the error.
func problemOf(err error) (problem string, other error) {
	if status := statusOf(err); status == http.StatusBadRequest || status == http.StatusConflict {
		return web.Sentence(plainly(err)), nil
	}
	return "", err
}

// back redirects to the page of a workspace. done tells the page what was done.
func back(w http.ResponseWriter, r *request, done string) error {
	return seeOther(w, r, "/workspaces/"+r.id.String()+"?done="+done)
}

// grant answers POST /workspaces/{id}/grant. A repeated form grants once.
func grant(p *Pages, w http.ResponseWriter, r *request) error {
	of := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	in := workspaceForm{Form: of("form"), Credits: of("credits"), Reason: of("reason")}
	id, wrongForm := uuid.Parse(in.Form)
	credits, wrongCredits := asNumber(in.Credits)
	switch {
	case wrongForm != nil:
		in.Grant, in.Form = "The form was too old. Please send it again.", ""
	case wrongCredits != nil:
		in.Grant = "Write how many credits as a whole number, such as 100000."
	case in.Reason == "":
		in.Grant = "Say why: the customer's statement and the operator log keep it."
	}
	if in.Grant == "" {
		call := admin.GrantCall{ID: id, Workspace: r.id, Credits: credits, Reason: in.Reason}
		_, err := p.service.Grant(r.Context(), call)
		if err == nil {
			return back(w, r, "granted")
		}
		if in.Grant, err = problemOf(err); err != nil {
			return err
		}
		in.Form, in.Grant = "", "This wasn't granted. "+in.Grant
	}
	return p.showWorkspace(w, r, http.StatusUnprocessableEntity, workspaceView{In: in})
}

// setWeight answers POST /workspaces/{id}/weight. Setting the same weight changes nothing.
func setWeight(p *Pages, w http.ResponseWriter, r *request) error {
	in := workspaceForm{Weight: web.Text(r.Request, "weight")}
	weight, err := strconv.Atoi(in.Weight)
	if err != nil {
		in.Turns = fmt.Sprintf("Write the weight as a whole number from 1 to %d.", ledger.WeightMax)
	} else if _, err = p.service.SetWeight(r.Context(), r.id, weight); err == nil {
		return back(w, r, "weight")
	} else if in.Turns, err = problemOf(err); err != nil {
		return err
	}
	return p.showWorkspace(w, r, http.StatusUnprocessableEntity, workspaceView{In: in})
}

// setLimits answers POST /workspaces/{id}/limits. Setting the same limits changes nothing.
func setLimits(p *Pages, w http.ResponseWriter, r *request) error {
	of := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	in := workspaceForm{Open: of("open"), Stored: of("stored"), Unpaid: of("unpaid"), Why: of("reason")}
	call := admin.LimitsCall{Reason: in.Why}
	for _, field := range []struct {
		text string
		to   **int64
	}{{in.Open, &call.Open}, {in.Stored, &call.Stored}, {in.Unpaid, &call.Unpaid}} {
		n, err := asNumber(field.text)
		if err != nil {
			in.Bounds = "Write each limit as a whole number, or 0 for the default of the node."
		}
		*field.to = &n
	}
	if in.Bounds == "" {
		_, err := p.service.SetLimits(r.Context(), r.id, call)
		if err == nil {
			return back(w, r, "limits")
		}
		if in.Bounds, err = problemOf(err); err != nil {
			return err
		}
	}
	return p.showWorkspace(w, r, http.StatusUnprocessableEntity, workspaceView{In: in})
}
