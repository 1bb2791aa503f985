package dashboard_test

import (
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/dashboard"
	"rollcall/smtp"
)

// who are the five who ask: the columns of the table below.
var who = []string{"nobody", "viewer", "member", "owner", "stranger"}

// asked is one request to a route, and what each of who is answered.
type asked struct {
	path   func(*rig) string
	form   url.Values
	header []string
	want   [5]int
}

func at(path string) func(*rig) string { return func(*rig) string { return path } }

// inWorkspace is a path below the rig's workspace, with {id} replaced by a verification that has results.
func inWorkspace(path string) func(*rig) string {
	return func(g *rig) string {
		if strings.Contains(path, "{id}") {
			v := g.verification("list.csv", 3, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
			path := strings.ReplaceAll(path, "{id}", v.ID.String())
			return "/w/" + g.workspace.String() + path
		}
		if strings.Contains(path, "{key}") {
			path := strings.ReplaceAll(path, "{key}", g.key("laptop"))
			return "/w/" + g.workspace.String() + path
		}
		if strings.Contains(path, "{user}") {
			path := strings.ReplaceAll(path, "{user}", g.member("other@acme.test"))
			return "/w/" + g.workspace.String() + path
		}
		return "/w/" + g.workspace.String() + path
	}
}

// table has every route: who may use it, and what all others are told.
var table = map[string]asked{
	"GET /{$}":               {path: at("/"), want: [5]int{303, 303, 303, 303, 303}},
	"GET /assets/{name}":     {path: at("/assets/none.css"), want: [5]int{404, 404, 404, 404, 404}},
	"GET /sign-in":           {path: at("/sign-in"), want: [5]int{200, 303, 303, 303, 303}},
	"POST /sign-in":          {path: at("/sign-in"), form: url.Values{"email": {"x"}, "form": {uuid.NewString()}}, want: [5]int{401, 401, 401, 401, 401}},
	"POST /sign-in/code":     {path: at("/sign-in/code"), form: url.Values{"step": {"x"}}, want: [5]int{401, 401, 401, 401, 401}},
	"GET /oidc/start":        {path: at("/oidc/start"), want: [5]int{404, 404, 404, 404, 404}}, // without a provider; see provider_test.go
	"GET /oidc/back":         {path: at("/oidc/back"), want: [5]int{404, 404, 404, 404, 404}},
	"GET /docs":              {path: at("/docs"), want: [5]int{200, 200, 200, 200, 200}},
	"GET /docs/{page}":       {path: at("/docs/api"), want: [5]int{200, 200, 200, 200, 200}},
	"GET /status":            {path: at("/status"), want: [5]int{200, 200, 200, 200, 200}},
	"POST /you/codes/saved":  {path: at("/you/codes/saved"), form: url.Values{"code": {"x"}}, want: [5]int{401, 422, 422, 422, 422}},
	"POST /you/provider":     {path: at("/you/provider"), form: form(), want: [5]int{401, 404, 404, 404, 404}},
	"GET /you/codes":         {path: at("/you/codes"), want: [5]int{303, 200, 200, 200, 200}},
	"POST /you/codes":        {path: at("/you/codes"), form: url.Values{"password": {"x"}}, want: [5]int{401, 422, 422, 422, 422}},
	"POST /you/codes/off":    {path: at("/you/codes/off"), form: url.Values{"password": {"x"}}, want: [5]int{401, 422, 422, 422, 422}},
	"POST /you/codes/new":    {path: at("/you/codes/new"), form: url.Values{"form": form()["form"], "password": {"x"}}, want: [5]int{401, 422, 422, 422, 422}},
	"POST /you/provider/off": {path: at("/you/provider/off"), form: url.Values{"password": {"x"}}, want: [5]int{401, 404, 404, 404, 404}},
	"POST /oidc/join":        {path: at("/oidc/join"), form: url.Values{"step": {"x"}}, want: [5]int{401, 401, 401, 401, 401}},
	"GET /link/{token}":      {path: at("/link/none"), want: [5]int{404, 404, 404, 404, 404}},
	"POST /link/{token}":     {path: at("/link/none"), form: form(), want: [5]int{404, 404, 404, 404, 404}},
	"GET /you":               {path: at("/you"), want: [5]int{303, 200, 200, 200, 200}},
	"POST /you/password":     {path: at("/you/password"), form: url.Values{"password": {"short"}}, want: [5]int{401, 422, 422, 422, 422}},
	"POST /you/sessions":     {path: at("/you/sessions"), form: url.Values{"all": {"1"}}, want: [5]int{401, 303, 303, 303, 303}},
	"POST /you/colours":      {path: at("/you/colours"), form: url.Values{"colours": {"dark"}}, want: [5]int{401, 303, 303, 303, 303}},
	"GET /w/{ws}":            {path: inWorkspace(""), want: [5]int{303, 200, 200, 200, 404}},
	"GET /w/{ws}/upload":     {path: inWorkspace("/upload"), want: [5]int{303, 403, 200, 200, 404}},
	"POST /w/{ws}/verifications": {path: inWorkspace("/verifications"), header: []string{"Idempotency-Key",
		"6f2c0d0e-0000-4000-8000-000000000001", "X-Upload-Content-Length", "10"}, want: [5]int{401, 403, 201, 200, 404}},
	"GET /w/{ws}/verifications/{id}":                     {path: inWorkspace("/verifications/{id}"), want: [5]int{303, 200, 200, 200, 404}},
	"GET /w/{ws}/verifications/{id}/live":                {path: inWorkspace("/verifications/{id}/live"), want: [5]int{401, 200, 200, 200, 404}},
	"GET /w/{ws}/verifications/{id}/upload":              {path: inWorkspace("/verifications/{id}/upload"), want: [5]int{401, 403, 200, 200, 404}},
	"GET /w/{ws}/verifications/{id}/cancel":              {path: inWorkspace("/verifications/{id}/cancel"), want: [5]int{303, 403, 200, 200, 404}},
	"GET /w/{ws}/example.csv":                            {path: inWorkspace("/example.csv"), want: [5]int{303, 403, 200, 200, 404}},
	"POST /w/{ws}/verifications/{id}/cancel":             {path: inWorkspace("/verifications/{id}/cancel"), form: form(), want: [5]int{401, 403, 303, 303, 404}},
	"GET /w/{ws}/verifications/{id}/results.csv":         {path: inWorkspace("/verifications/{id}/results.csv"), want: [5]int{303, 200, 200, 200, 404}},
	"GET /w/{ws}/verifications/{id}/results":             {path: inWorkspace("/verifications/{id}/results"), want: [5]int{303, 200, 200, 200, 404}},
	"POST /w/{ws}/verifications/{id}/results":            {path: inWorkspace("/verifications/{id}/results"), form: url.Values{"find": {"A@X"}}, want: [5]int{401, 200, 200, 200, 404}},
	"GET /w/{ws}/verifications/{id}/reasons":             {path: inWorkspace("/verifications/{id}/reasons"), want: [5]int{303, 409, 409, 409, 404}},
	"GET /w/{ws}/verifications/{id}/addresses/{ordinal}": {path: inWorkspace("/verifications/{id}/addresses/0?in=1"), want: [5]int{303, 200, 200, 200, 404}},
	"GET /w/{ws}/check":                                  {path: inWorkspace("/check"), want: [5]int{303, 403, 200, 200, 404}},
	"POST /w/{ws}/check":                                 {path: inWorkspace("/check"), form: url.Values{"form": form()["form"], "address": {"a@x.test"}}, want: [5]int{401, 403, 303, 303, 404}},
	"GET /w/{ws}/credits":                                {path: inWorkspace("/credits"), want: [5]int{303, 200, 200, 200, 404}},
	"GET /w/{ws}/keys":                                   {path: inWorkspace("/keys"), want: [5]int{303, 403, 403, 200, 404}},
	"POST /w/{ws}/keys":                                  {path: inWorkspace("/keys"), form: url.Values{"form": form()["form"], "label": {"x"}}, want: [5]int{401, 403, 403, 200, 404}},
	"GET /w/{ws}/keys/{key}":                             {path: inWorkspace("/keys/{key}"), want: [5]int{303, 403, 403, 200, 404}},
	"POST /w/{ws}/keys/{key}/revoke":                     {path: inWorkspace("/keys/{key}/revoke"), form: form(), want: [5]int{401, 403, 403, 303, 404}},
	"GET /w/{ws}/people":                                 {path: inWorkspace("/people"), want: [5]int{303, 403, 403, 200, 404}},
	"POST /w/{ws}/people":                                {path: inWorkspace("/people"), form: url.Values{"form": form()["form"], "email": {"n@acme.test"}, "role": {"viewer"}}, want: [5]int{401, 403, 403, 200, 404}},
	"POST /w/{ws}/people/links":                          {path: inWorkspace("/people/links"), form: url.Values{"link": {"00"}}, want: [5]int{401, 403, 403, 409, 404}},
	"GET /w/{ws}/people/{user}":                          {path: inWorkspace("/people/{user}"), want: [5]int{303, 403, 403, 200, 404}},
	"POST /w/{ws}/people/{user}/role":                    {path: inWorkspace("/people/{user}/role"), form: url.Values{"form": form()["form"], "role": {"viewer"}}, want: [5]int{401, 403, 403, 303, 404}},
	"POST /w/{ws}/people/{user}/sessions":                {path: inWorkspace("/people/{user}/sessions"), form: form(), want: [5]int{401, 403, 403, 303, 404}},
	"GET /w/{ws}/activity":                               {path: inWorkspace("/activity"), want: [5]int{303, 403, 403, 200, 404}},
	"POST /sign-out":                                     {path: at("/sign-out"), form: url.Values{}, want: [5]int{303, 303, 303, 303, 303}},
}

func form() url.Values { return url.Values{"form": {uuid.NewString()}} }

func TestEveryRouteAnswersEveryoneAsTheTableSays(t *testing.T) {
	g := newRig(t)
	last := "POST /sign-out" // ends the sessions that the others need
	check := func(pattern string) {
		a := table[pattern]
		method, _, _ := strings.Cut(pattern, " ")
		path := a.path(g)
		for i, name := range who {
			got := g.as[name].send(method, path, a.form, a.header...)
			effort.Is(t, got.status, a.want[i], pattern, "by", name, got.body)
			effort.Not(t, got.header.Get("X-Request-Id"), "", pattern, "by", name, "no request id")
			effort.ErrorIf(t, got.status != 200 && strings.Contains(got.body, "list.csv"),
				"%s by %s: status %d tells the name of a file", pattern, name, got.status)
		}
	}
	for _, pattern := range dashboard.Patterns() {
		if _, ok := table[pattern]; !ok {
			t.Errorf("the table has no row for %s", pattern)
			continue
		}
		if pattern != last {
			check(pattern)
		}
	}
	check(last)
	for _, name := range who[1:] {
		effort.Is(t, g.as[name].get("/you").status, 303, name, "has signed out and may still see /you")
	}
	effort.Is(t, len(table), len(dashboard.Patterns()), "rows of the table, of which each route has one")
}

func TestWhatARoleMayNotDoIsNotDrawn(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 3, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	list, detail := "/w/"+g.workspace.String(), "/w/"+g.workspace.String()+"/verifications/"+v.ID.String()
	for name, may := range map[string]bool{"viewer": false, "member": true, "owner": true} {
		effort.Is(t, strings.Contains(g.as[name].get(list).body, "/upload"), may, "the list offers an upload to a", name)
		effort.Is(t, strings.Contains(g.as[name].get(list).body, `id="upload"`), may, "the list takes a file that a", name,
			"drops")
		effort.Is(t, strings.Contains(g.as[name].get(detail).body, "/cancel"), may,
			"the page of a verification offers to cancel to a", name)
	}
}

func TestMethodsAndPathsThatAreNotThereGetAPage(t *testing.T) {
	g := newRig(t)
	for _, c := range []struct {
		method, path string
		want         int
		allow        string
	}{
		{"GET", "/nothing", 404, ""}, {"GET", "/w", 404, ""}, {"GET", "/w/x/", 404, ""},
		{"PUT", "/sign-in", 405, "GET, POST"}, {"POST", "/you", 405, "GET"}, {"DELETE", "/you", 405, "GET"},
		{"OPTIONS", "/sign-in", 405, "GET, POST"}, {"GET", "/sign-out", 405, "POST"}, {"HEAD", "/sign-in", 303, ""},
	} {
		got := g.as["owner"].send(c.method, c.path, nil, "Sec-Fetch-Site", "same-origin")
		effort.Is(t, got.status, c.want, c.method, c.path)
		effort.Is(t, got.header.Get("Allow"), c.allow, c.method, c.path)
		effort.ErrorIf(t, c.want >= 400 && !strings.Contains(got.body, "</html>"),
			"%s %s: no page: %.100s", c.method, c.path, got.body)
		effort.ErrorIf(t, c.want >= 400 && !strings.Contains(got.body, got.header.Get("X-Request-Id")),
			"%s %s: the page does not say which request it was", c.method, c.path)
	}
}

// TestAWorkspaceLeavesRoomForOthers: of four places one whose pages hang gets two, and every other tenant what is left.
func TestAWorkspaceLeavesRoomForOthers(t *testing.T) {
	g := newRigWith(t, func(*dashboard.Options) {}, func(l *httpd.Limits) { l.InFlightMax = 4 })
	held := &hold{workspace: g.workspace, come: make(chan struct{}), free: make(chan struct{})}
	g.book.held.Store(held)
	list := "/w/" + g.workspace.String()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			effort.Is(t, g.as["viewer"].get(list).status, 200, "a page that was held up")
		})
		<-held.come
	}
	if a := g.as["member"].get(list); a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "Too much at once") {
		t.Errorf("a third page: %d %.300s", a.status, a.body)
	}
	effort.Is(t, g.as["nobody"].get("/sign-in").status, 200, "a stranger")
	effort.Is(t, g.as["stranger"].get("/w/"+g.other.String()).status, 200, "another workspace")
	effort.Is(t, g.as["viewer"].get("/you").status, 200, "a page of no workspace")
	g.book.held.Store(nil)
	close(held.free)
	all.Wait()
	effort.Is(t, g.as["member"].get(list).status, 200, "afterwards")
}
