package operate

import (
	"net/http"
	"slices"

	"github.com/google/uuid"

	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/ledger"
)

func (p *Pages) keyOf(r *request) (k keyView, err error) {
	keys, err := p.service.ListKeys(r.Context(), r.id)
	if err != nil {
		return k, err
	}
	i := slices.IndexFunc(keys, func(k ledger.Key) bool { return k.ID == r.PathValue("key") })
	if i < 0 {
		return k, web.Failure{Status: http.StatusNotFound, Title: "There is no such key",
			Text: "This workspace has no key with this name.", Next: "Look at the list.",
			Link: "/workspaces/" + r.id.String(), Label: "To the workspace"}
	}
	return keyView{keys[i]}, nil
}

// askRevoke answers GET /workspaces/{id}/keys/{key}: it asks for confirmation.
func askRevoke(p *Pages, w http.ResponseWriter, r *request) error {
	k, err := p.keyOf(r)
	if err != nil {
		return err
	}
	path := "/workspaces/" + r.id.String()
	v := web.Confirm{Title: "Revoke the key “" + k.Name() + "”?", Up: "The workspace", Back: path, Verb: "Revoke the key",
		Text: []string{"The customer's programs that use it will be refused, within 5 seconds. This can't be undone.",
			"It begins with rc_" + k.ID + " and was " + web.Used(k.LastUsed) + "."}, Stay: "Keep it"}
	if !k.Revoked.IsZero() {
		v.Done = "This key was already revoked on " + web.When(k.Revoked) + " UTC."
	}
	if !r.in.ReadOnly {
		v.Action = path + "/keys/" + k.ID + "/revoke"
	}
	return p.show(w, r, http.StatusOK, "confirm", titled(v.Title+" · Workspaces", "workspaces", v))
}

// revokeKey answers POST /workspaces/{id}/keys/{key}/revoke. A repeated form changes nothing.
func revokeKey(p *Pages, w http.ResponseWriter, r *request) error {
	k, err := p.keyOf(r)
	if err != nil {
		return err
	}
	if _, err := p.service.RevokeKey(r.Context(), k.ID); err != nil {
		return err
	}
	return back(w, r, "revoked")
}

// invite answers POST /workspaces/{id}/invite with the link, once. A repeated form gives the same link.
func invite(p *Pages, w http.ResponseWriter, r *request) error {
	in := workspaceForm{Form: r.PostFormValue("form"), Email: web.Text(r.Request, "email"),
		Role: ledger.Role(r.PostFormValue("role"))}
	form, err := uuid.Parse(in.Form)
	if err != nil || form == uuid.Nil {
		in.Invite, in.Form = "The form was too old. Please send it again.", ""
		return p.showWorkspace(w, r, http.StatusUnprocessableEntity, workspaceView{In: in})
	}
	call := admin.InviteCall{Form: form, Workspace: r.id, Email: in.Email, Role: in.Role}
	made, err := p.service.Invite(r.Context(), call)
	if err == nil {
		return p.showWorkspace(w, r, http.StatusOK, workspaceView{Link: &made})
	}
	if in.Invite, err = problemOf(err); err != nil {
		return err
	}
	in.Form = ""
	return p.showWorkspace(w, r, http.StatusUnprocessableEntity, workspaceView{In: in})
}

// personOf finds the member in a path. The path has the member's id, not the email.
func (p *Pages) personOf(r *request) (m ledger.Membership, err error) {
	members, err := p.service.ListMembers(r.Context(), r.id)
	if err != nil {
		return m, err
	}
	for _, m := range members {
		if m.User.String() == r.PathValue("user") {
			return m, nil
		}
	}
	return m, web.Failure{Status: http.StatusNotFound, Title: "There is no such member",
		Text: "They aren't a member of this workspace, or no longer are.", Next: "Look at the list.",
		Link: "/workspaces/" + r.id.String(), Label: "To the workspace"}
}

// endSessions answers POST /workspaces/{id}/people/{user}/end-sessions. A repeated form finds nothing to end.
func endSessions(p *Pages, w http.ResponseWriter, r *request) error {
	m, err := p.personOf(r)
	if err != nil {
		return err
	}
	if _, _, err := p.service.EndSessions(r.Context(), m.Email); err != nil {
		return err
	}
	return back(w, r, "sessions")
}

// disable and enable answer the forms of a member. A repeated form changes nothing and is not noted.
var disable, enable = setDisabled(true, "disabled"), setDisabled(false, "enabled")

// setDisabled keeps the member of a path from signing in, or allows it again.
func setDisabled(disabled bool, done string) handler {
	return func(p *Pages, w http.ResponseWriter, r *request) error {
		m, err := p.personOf(r)
		if err != nil {
			return err
		}
		if m.Disabled != disabled {
			if _, err := p.service.DisableUser(r.Context(), m.Email, disabled); err != nil {
				return err
			}
		}
		return back(w, r, done)
	}
}

type route struct {
	pattern string
	open    bool // for everybody
	part    bool // requested by a script: refused without a page, and not counted as use of the session
	changes bool // refused to observers
	handle  handler
}

// handler answers a request, or returns why it can't: see Pages.refuse.
type handler func(*Pages, http.ResponseWriter, *request) error

// live answers requests for the part of a page that refreshes itself.
func live[V any](page, part string, read func(*Pages, *request) (V, error)) handler {
	return func(p *Pages, w http.ResponseWriter, r *request) error {
		v, err := read(p, r)
		if err != nil {
			return err
		}
		web.WritePart(w, r.Request, p.Pages.Part(page, part, v))
		return nil
	}
}

// sources answers with a page whose refreshing part shows the same content, see live.
func sources(p *Pages, w http.ResponseWriter, r *request) error {
	v, err := p.readSources(r)
	if err != nil {
		return err
	}
	return p.show(w, r, http.StatusOK, "sources", refreshing("Sources", "sources", v))
}

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
	{pattern: "POST /verifications/{id}/evidence", handle: showEvidence}, // changes nothing, so observers may use it
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

	{pattern: "GET /sources", handle: sources},
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
