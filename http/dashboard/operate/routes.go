package operate

import (
	"net/http"

	"rollcall/http/web"
)

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
