package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/dashboard"
	"rollcall/http/dashboard/pagetest"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

// who are the five kinds of people who send requests: the columns of the table below.
var who = []string{"nobody", "viewer", "member", "owner", "stranger"}

// asked is one request to a route, and the status that each of who gets.
type asked struct {
	path   func(*rig) string
	form   url.Values
	header []string
	want   [5]int
}

func at(path string) func(*rig) string { return func(*rig) string { return path } }

// inWorkspace returns a path below the rig's workspace. It replaces {id} by a verification with results.
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

// table lists every route, with who may use it and what the others get.
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
	last := "POST /sign-out" // last, because it ends the sessions that other routes need
	check := func(pattern string) {
		a := table[pattern]
		method, _, _ := strings.Cut(pattern, " ")
		path := a.path(g)
		for i, name := range who {
			got := g.as[name].send(method, path, a.form, a.header...)
			effort.Is(t, got.Status, a.want[i], pattern, "by", name, got.Body)
			effort.Not(t, got.Header.Get("X-Request-Id"), "", pattern, "by", name, "no request id")
			effort.ErrorIf(t, got.Status != 200 && strings.Contains(got.Body, "list.csv"),
				"%s by %s: status %d tells the name of a file", pattern, name, got.Status)
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
		effort.Is(t, g.as[name].get("/you").Status, 303, name, "has signed out and may still see /you")
	}
	effort.Is(t, len(table), len(dashboard.Patterns()), "rows of the table, of which each route has one")
}

func TestWhatARoleMayNotDoIsNotDrawn(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 3, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	list, detail := "/w/"+g.workspace.String(), "/w/"+g.workspace.String()+"/verifications/"+v.ID.String()
	for name, may := range map[string]bool{"viewer": false, "member": true, "owner": true} {
		effort.Is(t, strings.Contains(g.as[name].get(list).Body, "/upload"), may, "the list offers an upload to a", name)
		effort.Is(t, strings.Contains(g.as[name].get(list).Body, `id="upload"`), may, "the list takes a file that a", name,
			"drops")
		effort.Is(t, strings.Contains(g.as[name].get(detail).Body, "/cancel"), may,
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
		effort.Is(t, got.Status, c.want, c.method, c.path)
		effort.Is(t, got.Header.Get("Allow"), c.allow, c.method, c.path)
		effort.ErrorIf(t, c.want >= 400 && !strings.Contains(got.Body, "</html>"),
			"%s %s: no page: %.100s", c.method, c.path, got.Body)
		effort.ErrorIf(t, c.want >= 400 && !strings.Contains(got.Body, got.Header.Get("X-Request-Id")),
			"%s %s: the page does not say which request it was", c.method, c.path)
	}
}

// TestAWorkspaceLeavesRoomForOthers: with four places, a workspace whose pages hang gets two; every other tenant gets
// a place from the rest.
func TestAWorkspaceLeavesRoomForOthers(t *testing.T) {
	g := newRigWith(t, func(*dashboard.Options) {}, func(l *httpd.Limits) { l.InFlightMax = 4 })
	held := &hold{workspace: g.workspace, come: make(chan struct{}), free: make(chan struct{})}
	g.book.held.Store(held)
	list := "/w/" + g.workspace.String()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			effort.Is(t, g.as["viewer"].get(list).Status, 200, "a page that was held up")
		})
		<-held.come
	}
	if a := g.as["member"].get(list); a.Status != 503 || a.Header.Get("Retry-After") == "" || !strings.Contains(a.Body, "Too much at once") {
		t.Errorf("a third page: %d %.300s", a.Status, a.Body)
	}
	effort.Is(t, g.as["nobody"].get("/sign-in").Status, 200, "a stranger")
	effort.Is(t, g.as["stranger"].get("/w/"+g.other.String()).Status, 200, "another workspace")
	effort.Is(t, g.as["viewer"].get("/you").Status, 200, "a page of no workspace")
	g.book.held.Store(nil)
	close(held.free)
	all.Wait()
	effort.Is(t, g.as["member"].get(list).Status, 200, "afterwards")
}

// pageMax bounds a page, as package view enforces it.
const pageMax = 512 << 10

// bounded checks that a page is answered and takes at most half of its bound.
func (g *rig) bounded(path string) answer {
	g.t.Helper()
	a := g.as["owner"].get(path)
	effort.ErrorIf(g.t, a.Status != 200 || len(a.Body) > pageMax/2, "%s: %d with %d bytes", path, a.Status, len(a.Body))
	return a
}

// named makes an owner with a name of the longest allowed length, and returns the context in which that owner acts.
func (g *rig) named(number int) context.Context {
	g.t.Helper()
	in, _ := pagetest.Join(g.t, g.book, g.workspace, pagetest.Ands(ledger.EmailMax-len("@acme.test"), number)+"@acme.test",
		pagetest.Ands(ledger.NameMax, number), ledger.Owner)
	return ledger.WithActor(g.t.Context(), "user:"+in.User.ID.String())
}

// morePattern matches the link to the next page of a list.
var morePattern = regexp.MustCompile(`<a href="([^"]+)">Next page ›</a>`)

// walk reads all pages of a list and returns their bodies.
func (g *rig) walk(path string) (pages []string) {
	g.t.Helper()
	for path != "" && len(pages) < 20 {
		a := g.bounded(path)
		pages = append(pages, a.Body)
		path = ""
		if m := morePattern.FindStringSubmatch(a.Body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	return pages
}

func rowsOn(page string) int { return strings.Count(page, `<th scope="row"`) }

func TestPeopleFillAPageAndNoMore(t *testing.T) {
	effort.NotShort(t, "makes many people")
	effort.Unraced(t, "one call after the other")
	g := newRig(t)
	const invited, members = 450, 550 // as many as one workspace may have
	ctx := g.named(0)
	for i := 4; i < members; i++ {
		g.named(i)
	}
	for i := range invited {
		effort.Must(g.book.MakeLink(ctx, ledger.Link{ID: ledger.Hash{1, byte(i), byte(i >> 8)}, Purpose: ledger.InviteLink,
			Workspace: g.workspace, Email: pagetest.Ands(ledger.EmailMax-len("@acme.test"), 10_000+i) + "@acme.test", Role: ledger.Viewer,
			MadeBy: ledger.Actor(ctx)}))(t)
	}
	pages := g.walk(g.path("/people"))
	effort.MustBe(t, len(pages), 5, "pages")
	for i, want := range []struct{ withdraw, members int }{{200, 0}, {200, 0}, {50, 150}, {0, 200}, {0, 200}} {
		withdraw, all := strings.Count(pages[i], ">Withdraw<"), rowsOn(pages[i])
		effort.Is(t, withdraw, want.withdraw, "page", i+1, want)
		effort.Is(t, all, want.withdraw+want.members, "page", i+1)
	}
	for path, want := range map[string]int{"?page=5": 200, "?page=6": 200, "?page=99999999999": 200, "?page=0": 404, "?page=-1": 404,
		"?page=x": 404, "?page=99999999999999999999": 404} {
		effort.Is(t, g.as["owner"].get(g.path("/people")+path).Status, want, path)
	}
	link := regexp.MustCompile(`href="(/w/[^"]+/people/[^"?]+)"`).FindStringSubmatch(pages[4])
	effort.FatalIf(t, link == nil, "no member has a link")
	name := pagetest.Ands(ledger.NameMax, 0)
	effort.Lacks(t, pages[4], html.EscapeString(name[:web.ShortMax]), "a register has a whole text")
	effort.Has(t, g.bounded(link[1]).Body, html.EscapeString(name[:ledger.NameMax-3]),
		"the page of a member does not show the whole name")
}

func TestKeysFillAPageAndNoMore(t *testing.T) {
	effort.NotShort(t, "fills pages")
	effort.Unraced(t, "one call after the other")
	g := newRig(t)
	ctx := g.named(0)
	key := func(i int) string { return fmt.Sprintf("key%09d", i) }
	for i := range 450 {
		k := ledger.Key{ID: key(i), Workspace: g.workspace, Label: pagetest.Ands(200, i)}
		_, err := g.book.CreateKey(ctx, k)
		if err == nil && i >= 250 {
			_, err = g.book.RevokeKey(ctx, k.ID)
		}
		effort.OK(t, err)
	}
	pages := g.walk(g.path("/keys"))
	effort.MustBe(t, len(pages), 3, "pages")
	for i, want := range []struct{ works, revoked int }{{200, 0}, {50, 150}, {0, 50}} {
		works, all := strings.Count(pages[i], ">Revoke…<"), rowsOn(pages[i])
		effort.Is(t, works, want.works, "page", i+1, want)
		effort.Is(t, all, want.works+want.revoked, "page", i+1)
	}
	for i, first := range []int{249, 49, 299} { // newest first
		if at := strings.Index(pages[i], "rc_key"); !strings.HasPrefix(pages[i][at:], "rc_"+key(first)) {
			t.Errorf("page %d begins with %.20s, want %s", i+1, pages[i][at:], key(first))
		}
	}
	effort.Is(t, g.as["owner"].get(g.path("/keys?page=x")).Status, 404, "no page")
	effort.Has(t, g.bounded(g.path("/keys/"+key(7))).Body, html.EscapeString(pagetest.Ands(200, 7)),
		"the page of a key does not show its whole label")
}

func TestNamesOfFilesFillAPageAndNoMore(t *testing.T) {
	effort.NotShort(t, "fills pages")
	effort.Unraced(t, "one call after the other")
	g := newRig(t)
	ctx := g.named(0)
	var last ledger.Verification
	for i := range 101 {
		v, _, err := g.book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: g.workspace, Identity: uuid.New(),
			Filename: pagetest.Ands(1024, i), Bytes: 4, BytesMax: 1 << 20, UploadExpiry: time.Hour,
			Limits: ledger.Limits{Open: 1000, Stored: 1 << 30, Unpaid: 1000}})
		effort.OK(t, err)
		last = v
	}
	effort.Is(t, rowsOn(g.bounded(g.path("")).Body), 50, "the list has rows")
	effort.Is(t, rowsOn(g.bounded(g.path("/activity")).Body), 100, "the log has rows")
	for _, below := range []string{"", "/cancel"} {
		a := g.bounded(g.path("/verifications/" + last.ID.String() + below))
		effort.Has(t, a.Body, html.EscapeString(last.Filename), "the page", below, "of the file does not show its whole name")
	}
}

func TestAddressesFillAPageAndNoMore(t *testing.T) {
	effort.NotShort(t, "fills pages")
	effort.Unraced(t, "one call after the other")
	g := newRig(t)
	effort.Must(g.book.Grant(t.Context(), uuid.New(), g.workspace, 10_000, pagetest.Ands(ledger.OperatorTextMax, 0)))(t)
	var results []ledger.Result
	for i := range 60 {
		email := pagetest.Ands(ledger.EmailBytesMax/2-1, i) + "@" + pagetest.Ands(ledger.EmailBytesMax/2, i)
		results = append(results, result(int64(i), email, smtp.Unknown, smtp.Greylisted))
	}
	results[59].Outcome, results[59].Reason = smtp.Valid, smtp.MailboxExists // costs a credit, so that a chart appears
	var v ledger.Verification
	for i := range 49 { // with the two grants these make 51 moves of credits
		v = g.verification(pagetest.Ands(1024, i), 60, results...)
	}
	base := g.path("/verifications/" + v.ID.String())
	for path, want := range map[string]int{base: 10 + 6, base + "/results": 50, base + "/reasons": 21 + 2,
		g.path("/credits"): 50 + ledger.StatementDays + 2} {
		effort.Is(t, rowsOn(g.bounded(path).Body), want, fmt.Sprintf("%s has rows", path))
	}
	effort.Has(t, g.bounded(base+"/addresses/3?in=1").Body, html.EscapeString(results[3].Email),
		"the page of an address does not show it whole")
}

// kept describes everything that forms may change. Two snapshots do not differ if only the times of use of users and
// keys differ.
func (g *rig) kept() string {
	g.t.Helper()
	ctx := g.t.Context()
	var all []any
	for _, w := range []uuid.UUID{g.workspace, g.other} {
		for _, v := range effort.Must(g.book.Store.History(ctx, ledger.HistoryQuery{Workspace: w, Limit: 100}))(g.t) {
			all = append(all, v.ID, v.Status, v.Counts, v.Held, v.MadeBy)
		}
		for _, k := range effort.Must(g.book.Keys(ctx, w))(g.t) {
			all = append(all, k.ID, k.Label, k.MadeBy, k.Revoked, k.RevokedBy)
		}
		for _, m := range effort.Must(g.book.Members(ctx, w))(g.t) {
			sessions := effort.Must(g.book.Sessions(ctx, m.User, time.Hour))(g.t)
			u := effort.Must(g.book.UserByEmail(ctx, m.Email))(g.t)
			all = append(all, m.Email, m.Name, m.Role, m.Disabled, u.Password, len(sessions))
		}
		all = append(all, effort.Must(g.book.Balance(ctx, w))(g.t), effort.Must(g.book.OpenLinks(ctx, w))(g.t),
			effort.Must(g.book.WorkspaceLog(ctx, ledger.WorkspaceLogQuery{Workspace: w, Limit: 100}))(g.t))
	}
	return fmt.Sprint(append(all, effort.Must(g.book.OperatorLog(ctx, ledger.LogQuery{Limit: 100}))(g.t))...)
}

// twice lists the forms that change something: who sends each, where, and with which values. The test sends each
// twice, unchanged.
var twice = map[string]func(g *rig) (*browser, string, url.Values){
	"POST /sign-in": func(g *rig) (*browser, string, url.Values) {
		return g.as["nobody"], "/sign-in", url.Values{"form": {uuid.NewString()}, "email": {"viewer@acme.test"}, "password": {password}}
	},
	"POST /sign-out": func(g *rig) (*browser, string, url.Values) {
		return g.join("leaves@acme.test", g.workspace, ledger.Viewer), "/sign-out", url.Values{}
	},
	"POST /link/{token}": func(g *rig) (*browser, string, url.Values) {
		return g.as["nobody"], "/link/" + string(g.invite("new@acme.test", g.workspace, ledger.Member)),
			url.Values{"form": {uuid.NewString()}, "name": {"Ben"}, "password": {password}}
	},
	"POST /you/password": func(g *rig) (*browser, string, url.Values) {
		return g.join("changes@acme.test", g.workspace, ledger.Viewer), "/you/password",
			url.Values{"old": {password}, "password": {"another horse that nobody rides"}}
	},
	"POST /you/sessions": func(g *rig) (*browser, string, url.Values) {
		g.as["nobody"].signIn("owner@acme.test", password, "/")
		return g.as["owner"], "/you/sessions", url.Values{"all": {"1"}}
	},
	"POST /w/{ws}/verifications/{id}/cancel": func(g *rig) (*browser, string, url.Values) {
		v := g.verification("list.csv", 3, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
		return g.as["member"], g.path("/verifications/" + v.ID.String() + "/cancel"), form()
	},
	"POST /w/{ws}/check": func(g *rig) (*browser, string, url.Values) {
		return g.as["member"], g.path("/check"), with("address", "a@x.test")
	},
	"POST /w/{ws}/keys": func(g *rig) (*browser, string, url.Values) {
		return g.as["owner"], g.path("/keys"), with("label", "billing")
	},
	"POST /w/{ws}/keys/{key}/revoke": func(g *rig) (*browser, string, url.Values) {
		return g.as["owner"], g.path("/keys/" + g.key("laptop") + "/revoke"), form()
	},
	"POST /w/{ws}/people": func(g *rig) (*browser, string, url.Values) {
		return g.as["owner"], g.path("/people"), with("email", "late@acme.test", "role", "viewer")
	},
	"POST /w/{ws}/people/links": func(g *rig) (*browser, string, url.Values) {
		id, _ := g.invite("never@acme.test", g.workspace, ledger.Viewer).Hash()
		return g.as["owner"], g.path("/people/links"), url.Values{"link": {fmt.Sprintf("%x", id[:])}}
	},
	"POST /w/{ws}/people/{user}/role": func(g *rig) (*browser, string, url.Values) {
		return g.as["owner"], g.path("/people/" + g.member("rises@acme.test") + "/role"), with("role", "member")
	},
	"POST /w/{ws}/people/{user}/sessions": func(g *rig) (*browser, string, url.Values) {
		return g.as["owner"], g.path("/people/" + g.member("goes@acme.test") + "/sessions"), form()
	},
}

// elsewhere lists the other forms, with the test that sends them twice, or why no test is needed.
var elsewhere = map[string]string{
	"POST /sign-in/code":                      "TestOneCodeSignsInOnce",
	"POST /you/codes":                         "TestCodesAreSwitchedOnAndAskedFor",
	"POST /you/codes/off":                     "TestCodesAreSwitchedOffWithPasswordAndCode",
	"POST /you/codes/new":                     "TestNewCodesOfOneUseAreMadeOnce",
	"POST /you/codes/saved":                   "compares a code; it changes nothing",
	"POST /you/provider":                      "leads to the provider; TestAnAnswerBelongsToOneBrowserAndOneAttempt",
	"POST /you/provider/off":                  "TestAnAccountIsDisconnectedFromTheProvider",
	"POST /you/colours":                       "changes a cookie of the browser only",
	"POST /oidc/join":                         "TestSomebodyInvitedSignsInByTheProvider",
	"POST /w/{ws}/verifications":              "TestUploadsAreCreatedOnceAndRecovered",
	"POST /w/{ws}/verifications/{id}/results": "searches; it changes nothing",
}

// with returns a form with an id and more fields.
func with(pairs ...string) url.Values {
	v := form()
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

// TestEveryFormTwiceIsOnce: the first send changes something, the second changes nothing.
func TestEveryFormTwiceIsOnce(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	g := newRig(t)
	for _, pattern := range dashboard.Patterns() {
		if !strings.HasPrefix(pattern, "POST ") || elsewhere[pattern] != "" {
			continue
		}
		make := twice[pattern]
		if make == nil {
			t.Errorf("nobody sends the form of %s twice", pattern)
			continue
		}
		who, path, values := make(g)
		before := g.kept()
		first := who.send("POST", path, values)
		once := g.kept()
		effort.Not(t, before, once, pattern, "changes nothing", first.Status, first.Body)
		second := who.send("POST", path, values)
		effort.Is(t, g.kept(), once, pattern, "twice", first.Status, second.Status, ") is not once:\n", once, "\n")
		effort.ErrorIf(t, second.Status >= 500, "%s the second time: %d", pattern, second.Status)
	}
}
