package operate

import (
	"net/http"
	"slices"

	"github.com/google/uuid"

	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/ledger"
)

// keyOf finds the key of a path; if the workspace does not have it it answers and returns false.
func (p *Pages) keyOf(w http.ResponseWriter, r *request) (keyView, uuid.UUID, bool) {
	id, ok := p.workspaceOf(w, r)
	if !ok {
		return keyView{}, id, false
	}
	keys, err := p.desk.ListKeys(r.Context(), id)
	if err != nil {
		p.refuse(w, r, err)
		return keyView{}, id, false
	}
	i := slices.IndexFunc(keys, func(k ledger.Key) bool { return k.ID == r.PathValue("key") })
	if i < 0 {
		p.fail(w, r.Request, web.Failure{Status: http.StatusNotFound, Title: "There is no such key",
			Text: "This workspace has no key with this name.", Next: "Look at the list.",
			Link: "/workspaces/" + id.String(), Label: "To the workspace"})
		return keyView{}, id, false
	}
	return keyView{keys[i]}, id, true
}

// askRevoke answers GET /workspaces/{id}/keys/{key}: it asks for confirmation.
func askRevoke(p *Pages, w http.ResponseWriter, r *request) {
	k, id, ok := p.keyOf(w, r)
	if !ok {
		return
	}
	path := "/workspaces/" + id.String()
	v := web.Confirm{Title: "Revoke the key “" + k.Name() + "”?", Up: "The workspace", Back: path, Verb: "Revoke the key",
		Text: []string{"The customer's programs that use it will be refused, within 5 seconds. This can't be undone.",
			"It begins with rc_" + k.ID + " and was " + web.Used(k.LastUsed) + "."}, Stay: "Keep it"}
	if !k.Revoked.IsZero() {
		v.Done = "This key was already revoked on " + web.When(k.Revoked) + " UTC."
	}
	if !r.in.ReadOnly {
		v.Action = path + "/keys/" + k.ID + "/revoke"
	}
	p.show(w, r, http.StatusOK, "confirm", titled(v.Title+" · Workspaces", "workspaces", v))
}

// revokeKey answers POST /workspaces/{id}/keys/{key}/revoke. A second time changes nothing.
func revokeKey(p *Pages, w http.ResponseWriter, r *request) {
	k, id, ok := p.keyOf(w, r)
	if !ok {
		return
	}
	if _, err := p.desk.RevokeKey(r.Context(), k.ID); err != nil {
		p.refuse(w, r, err)
		return
	}
	back(w, r, id, "revoked")
}

// invite answers POST /workspaces/{id}/invite with the link, once. A repeated form gives the same link.
func invite(p *Pages, w http.ResponseWriter, r *request) {
	id, ok := p.workspaceOf(w, r)
	if !ok {
		return
	}
	in := workspaceForm{Form: r.PostFormValue("form"), Email: web.Text(r.Request, "email"),
		Role: ledger.Role(r.PostFormValue("role"))}
	form, err := uuid.Parse(in.Form)
	if err != nil || form == uuid.Nil {
		in.Invite, in.Form = "The form was too old. Please send it again.", ""
		p.showWorkspace(w, r, http.StatusUnprocessableEntity, workspaceView{In: in})
		return
	}
	made, err := p.desk.Invite(r.Context(), admin.InviteCall{Form: form, Workspace: id, Email: in.Email, Role: in.Role})
	if err == nil {
		p.showWorkspace(w, r, http.StatusOK, workspaceView{Link: &made})
		return
	}
	if in.Invite, ok = p.refused(w, r, err); ok {
		in.Form = ""
		p.showWorkspace(w, r, http.StatusUnprocessableEntity, workspaceView{In: in})
	}
}

// personOf finds the member of a path; if there is none it answers and returns false. The path has an id, no email.
func (p *Pages) personOf(w http.ResponseWriter, r *request) (m ledger.Membership, ok bool) {
	id, ok := p.workspaceOf(w, r)
	if !ok {
		return m, false
	}
	members, err := p.desk.ListMembers(r.Context(), id)
	if err != nil {
		p.refuse(w, r, err)
		return m, false
	}
	for _, m := range members {
		if m.User.String() == r.PathValue("user") {
			return m, true
		}
	}
	p.fail(w, r.Request, web.Failure{Status: http.StatusNotFound, Title: "There is no such member",
		Text: "They aren't a member of this workspace, or no longer are.", Next: "Look at the list.",
		Link: "/workspaces/" + id.String(), Label: "To the workspace"})
	return m, false
}

// endSessions answers POST /workspaces/{id}/people/{user}/end-sessions. A second time there is nothing to end.
func endSessions(p *Pages, w http.ResponseWriter, r *request) {
	m, ok := p.personOf(w, r)
	if !ok {
		return
	}
	if _, _, err := p.desk.EndSessions(r.Context(), m.Email); err != nil {
		p.refuse(w, r, err)
		return
	}
	back(w, r, m.Workspace, "sessions")
}

// disable and enable answer the forms of a member. A second time changes nothing and is not noted.
func disable(p *Pages, w http.ResponseWriter, r *request) { p.setDisabled(w, r, true, "disabled") }
func enable(p *Pages, w http.ResponseWriter, r *request)  { p.setDisabled(w, r, false, "enabled") }

// setDisabled keeps the member of a path from signing in, or allows it again.
func (p *Pages) setDisabled(w http.ResponseWriter, r *request, disabled bool, done string) {
	m, ok := p.personOf(w, r)
	if !ok {
		return
	}
	if m.Disabled != disabled {
		if _, err := p.desk.DisableUser(r.Context(), m.Email, disabled); err != nil {
			p.refuse(w, r, err)
			return
		}
	}
	back(w, r, m.Workspace, done)
}

// route is one path and method.
type route struct {
	pattern string
	open    bool // for everybody
	part    bool // requested by a script: refused without a page, and not counted as use of the session
	changes bool // refused to observers
	handle  func(*Pages, http.ResponseWriter, *request)
}

// live answers for the part of a page that refreshes itself.
func live[V any](page, part string, read func(*Pages, *request) (V, error)) func(*Pages, http.ResponseWriter, *request) {
	return func(p *Pages, w http.ResponseWriter, r *request) {
		v, err := read(p, r)
		if err != nil {
			p.refuse(w, r, err)
			return
		}
		web.WritePart(w, r.Request, p.Pages.Part(page, part, v))
	}
}

// whole answers with a page that shows the result of one function. Its refreshing part shows the same, see live.
func whole[V any](page, title string, read func(*Pages, *request) (V, error)) func(*Pages, http.ResponseWriter, *request) {
	return func(p *Pages, w http.ResponseWriter, r *request) {
		v, err := read(p, r)
		if err != nil {
			p.refuse(w, r, err)
			return
		}
		p.show(w, r, http.StatusOK, page, living(title, page, v))
	}
}

// routes is every route. The comment of its function says what it does.
var routes = []route{
	{pattern: "GET /sign-in", open: true, handle: signIn},
	{pattern: "GET /link/{code}", open: true, handle: showLink},
	{pattern: "POST /link/{code}", open: true, handle: useLink},
	{pattern: "POST /sign-out", open: true, handle: signOut},
	{pattern: "GET /assets/{name}", open: true, handle: asset},
	{pattern: "GET /docs", open: true, handle: guide},
	{pattern: "GET /docs/{page}", open: true, handle: guide},
	{pattern: "GET /openapi.yaml", open: true, handle: openAPI},
	{pattern: "GET /status", handle: health},

	{pattern: "GET /{$}", handle: receivers},
	{pattern: "GET /receivers/live", part: true, handle: live("receivers", "live", (*Pages).readReceivers)},
	{pattern: "GET /receivers/{key}", handle: receiver},
	{pattern: "GET /receivers/{key}/live", part: true, handle: live("receiver", "live", (*Pages).readReceiver)},
	{pattern: "GET /receivers/{key}/trace/live", part: true, handle: live("receiver", "trace", (*Pages).readTrace)},
	{pattern: "POST /receivers/{key}/close", changes: true, handle: closeSession},
	{pattern: "POST /receivers/{key}/forget", changes: true, handle: forget},

	{pattern: "GET /verifications", handle: verifications},
	{pattern: "GET /verifications/{id}", handle: verification},
	{pattern: "POST /verifications/{id}/evidence", handle: showEvidence}, // it changes nothing, so observers may use it
	{pattern: "GET /verifications/{id}/live", part: true, handle: live("verification", "live", (*Pages).readWaits)},

	{pattern: "GET /throttles", handle: throttles},
	{pattern: "GET /throttles/live", part: true, handle: live("throttles", "live", (*Pages).readThrottles)},
	{pattern: "POST /throttles/preview", changes: true, handle: preview},
	{pattern: "POST /throttles/set", changes: true, handle: setOverride},
	{pattern: "POST /throttles/clear", changes: true, handle: clearOverrides},

	{pattern: "GET /cluster", handle: cluster},
	{pattern: "GET /cluster/{node}", handle: member},
	{pattern: "POST /cluster/{node}/drain", changes: true, handle: drain},
	{pattern: "POST /cluster/{node}/undrain", changes: true, handle: undrain},
	{pattern: "POST /cluster/{node}/forget", changes: true, handle: forgetNode},

	{pattern: "GET /sources", handle: whole("sources", "Sources", (*Pages).readSources)},
	{pattern: "GET /sources/live", part: true, handle: live("sources", "live", (*Pages).readSources)},
	{pattern: "GET /sources/change", handle: askSource},
	{pattern: "POST /sources/change", changes: true, handle: changeSource},
	{pattern: "GET /workspaces", handle: workspaces},
	{pattern: "GET /workspaces/{id}", handle: workspace},
	{pattern: "POST /workspaces/{id}/grant", changes: true, handle: grant},
	{pattern: "POST /workspaces/{id}/weight", changes: true, handle: setWeight},
	{pattern: "POST /workspaces/{id}/limits", changes: true, handle: setLimits},
	{pattern: "GET /workspaces/{id}/keys/{key}", handle: askRevoke},
	{pattern: "POST /workspaces/{id}/keys/{key}/revoke", changes: true, handle: revokeKey},
	{pattern: "POST /workspaces/{id}/invite", changes: true, handle: invite},
	{pattern: "POST /workspaces/{id}/people/{user}/end-sessions", changes: true, handle: endSessions},
	{pattern: "POST /workspaces/{id}/people/{user}/disable", changes: true, handle: disable},
	{pattern: "POST /workspaces/{id}/people/{user}/enable", changes: true, handle: enable},

	{pattern: "GET /log", handle: showLog},
	{pattern: "GET /health", handle: health},
	{pattern: "GET /health/live", part: true, handle: live("health", "live", (*Pages).readAudit)},
	{pattern: "POST /health/audit", changes: true, handle: runAudit},
}
