package operate_test

import (
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/dashboard/operate"
	"rollcall/http/dashboard/pagetest"
)

// asked is one request to a route, and the status that nobody, an observer and an operator get.
type asked struct {
	path func(*pagetest.Rig) string
	form func(*pagetest.Rig) url.Values
	want [3]int
}

func at(path string) func(*pagetest.Rig) string {
	return func(*pagetest.Rig) string { return path }
}

func with(pairs ...string) func(*pagetest.Rig) url.Values {
	return func(*pagetest.Rig) url.Values {
		form := url.Values{"form": {uuid.NewString()}}
		for i := 0; i < len(pairs); i += 2 {
			form.Set(pairs[i], pairs[i+1])
		}
		return form
	}
}

func ofNode(rest string) func(*pagetest.Rig) string {
	return func(g *pagetest.Rig) string { return "/cluster/" + g.Node.String() + rest }
}

func ofWorkspace(rest string) func(*pagetest.Rig) string {
	return func(g *pagetest.Rig) string { return "/workspaces/" + g.Workspace.ID.String() + rest }
}

func ofKey(rest string) func(*pagetest.Rig) string {
	return func(g *pagetest.Rig) string { return ofWorkspace("/keys/" + g.Key.ID + rest)(g) }
}

func ofAnna(rest string) func(*pagetest.Rig) string {
	return func(g *pagetest.Rig) string { return ofWorkspace("/people/" + g.Anna.String() + rest)(g) }
}

var override = with("name", "mx.slow.test", "field", "connections", "value", "1", "for", "1h", "reason", "x")

// table has every route.
var table = map[string]asked{
	"GET /sign-in":                    {path: at("/sign-in"), want: [3]int{200, 303, 303}},
	"GET /link/{code}":                {path: at("/link/none"), want: [3]int{404, 404, 404}},
	"POST /link/{code}":               {path: at("/link/none"), form: with(), want: [3]int{404, 404, 404}},
	"GET /assets/{name}":              {path: at("/assets/none.css"), want: [3]int{404, 404, 404}},
	"GET /{$}":                        {path: at("/"), want: [3]int{303, 200, 200}},
	"GET /receivers/live":             {path: at("/receivers/live"), want: [3]int{401, 200, 200}},
	"GET /receivers/{key}":            {path: at("/receivers/mx.slow.test"), want: [3]int{303, 200, 200}},
	"GET /receivers/{key}/live":       {path: at("/receivers/mx.slow.test/live"), want: [3]int{401, 200, 200}},
	"GET /receivers/{key}/trace/live": {path: at("/receivers/mx.slow.test/trace/live"), want: [3]int{401, 200, 200}},
	"POST /receivers/{key}/close":     {path: at("/receivers/mx.slow.test/close"), form: with("node", "node-1", "session", "7"), want: [3]int{401, 403, 303}},
	"POST /receivers/{key}/forget":    {path: at("/receivers/mx.slow.test/forget"), form: with("what", "pace", "reason", "x"), want: [3]int{401, 403, 303}},
	"GET /verifications":              {path: at("/verifications"), want: [3]int{303, 200, 200}},
	"GET /verifications/{id}": {path: func(g *pagetest.Rig) string { return "/verifications/" + g.Open.ID.String() },
		want: [3]int{303, 200, 200}},
	"GET /throttles/live":     {path: at("/throttles/live"), want: [3]int{401, 200, 200}},
	"GET /throttles":          {path: at("/throttles"), want: [3]int{303, 200, 200}},
	"POST /throttles/preview": {path: at("/throttles/preview"), form: override, want: [3]int{401, 403, 200}},
	"POST /throttles/set":     {path: at("/throttles/set"), form: override, want: [3]int{401, 403, 303}},
	"POST /throttles/clear": {path: at("/throttles/clear"), form: func(g *pagetest.Rig) url.Values {
		return url.Values{"id": {g.Override.ID.String()}, "reason": {"over"}}
	}, want: [3]int{401, 403, 303}},
	"GET /cluster":                 {path: at("/cluster"), want: [3]int{303, 200, 200}},
	"GET /cluster/{node}":          {path: ofNode(""), want: [3]int{303, 200, 200}},
	"POST /cluster/{node}/drain":   {path: ofNode("/drain"), form: with("name", "node-2"), want: [3]int{401, 403, 303}},
	"POST /cluster/{node}/undrain": {path: ofNode("/undrain"), form: with(), want: [3]int{401, 403, 303}},
	"POST /cluster/{node}/forget": {path: func(g *pagetest.Rig) string { return "/cluster/" + g.Lost().String() + "/forget" },
		form: with("name", "node-3"), want: [3]int{401, 403, 303}},
	"GET /sources":        {path: at("/sources"), want: [3]int{303, 200, 200}},
	"GET /sources/live":   {path: at("/sources/live"), want: [3]int{401, 200, 200}},
	"GET /sources/change": {path: at("/sources/change?source=192.0.2.7&to=pause"), want: [3]int{303, 200, 200}},
	"POST /sources/change": {path: at("/sources/change"), form: with("source", "192.0.2.7", "to", "drain", "for", "1h", "reason", "x"),
		want: [3]int{401, 403, 303}},
	"GET /workspaces":                                  {path: at("/workspaces"), want: [3]int{303, 200, 200}},
	"GET /workspaces/{id}":                             {path: ofWorkspace(""), want: [3]int{303, 200, 200}},
	"POST /workspaces/{id}/grant":                      {path: ofWorkspace("/grant"), form: with("credits", "5", "reason", "x"), want: [3]int{401, 403, 303}},
	"POST /workspaces/{id}/weight":                     {path: ofWorkspace("/weight"), form: with("weight", "3"), want: [3]int{401, 403, 303}},
	"POST /workspaces/{id}/limits":                     {path: ofWorkspace("/limits"), form: with("open", "7", "stored", "0", "unpaid", "0"), want: [3]int{401, 403, 303}},
	"POST /workspaces/{id}/invite":                     {path: ofWorkspace("/invite"), form: with("email", "ben@acme.test", "role", "viewer"), want: [3]int{401, 403, 200}},
	"GET /workspaces/{id}/keys/{key}":                  {path: ofKey(""), want: [3]int{303, 200, 200}},
	"POST /workspaces/{id}/keys/{key}/revoke":          {path: ofKey("/revoke"), form: with(), want: [3]int{401, 403, 303}},
	"POST /workspaces/{id}/people/{user}/end-sessions": {path: ofAnna("/end-sessions"), form: with(), want: [3]int{401, 403, 303}},
	"POST /workspaces/{id}/people/{user}/disable":      {path: ofAnna("/disable"), form: with(), want: [3]int{401, 403, 303}},
	"POST /workspaces/{id}/people/{user}/enable":       {path: ofAnna("/enable"), form: with(), want: [3]int{401, 403, 303}},
	"POST /verifications/{id}/evidence": {path: func(g *pagetest.Rig) string { return "/verifications/" + g.Overdue.ID.String() + "/evidence" },
		form: with("address", pagetest.Asked), want: [3]int{303, 200, 200}}, // observers may: it changes nothing
	"GET /verifications/{id}/live": {path: func(g *pagetest.Rig) string { return "/verifications/" + g.Open.ID.String() + "/live" },
		want: [3]int{401, 200, 200}},
	"GET /docs":          {path: at("/docs"), want: [3]int{200, 200, 200}},
	"GET /docs/{page}":   {path: at("/docs/errors"), want: [3]int{200, 200, 200}},
	"GET /openapi.yaml":  {path: at("/openapi.yaml"), want: [3]int{200, 200, 200}},
	"GET /status":        {path: at("/status"), want: [3]int{303, 200, 200}},
	"GET /health/live":   {path: at("/health/live"), want: [3]int{401, 200, 200}},
	"POST /health/audit": {path: at("/health/audit"), form: with(), want: [3]int{401, 403, 303}},
	"GET /log":           {path: at("/log"), want: [3]int{303, 200, 200}},
	"GET /health":        {path: at("/health"), want: [3]int{303, 200, 200}},
	"POST /sign-out":     {path: at("/sign-out"), form: with(), want: [3]int{303, 303, 303}},
}

func TestEveryRouteAnswersEveryoneAsTheTableSays(t *testing.T) {
	g := pagetest.Start(t)
	who := []*visitor{{t: t, g: g}, visit(t, g, "ben", true), visit(t, g, "eve", false)}
	check := func(pattern string) {
		row := table[pattern]
		method, _, _ := strings.Cut(pattern, " ")
		for i, v := range who {
			var form url.Values
			if row.form != nil {
				form = row.form(g)
			}
			got := v.send(method, row.path(g), form)
			effort.Is(t, got.Status, row.want[i], pattern, "by", i, got.Body)
			checkPage(t, pattern, got)
			changed := g.Asked()
			effort.ErrorIf(t, i < 2 && len(changed) > 0, "%s by %d changed %q", pattern, i, changed)
		}
	}
	last := "POST /sign-out"
	for _, pattern := range operate.Patterns() {
		if _, ok := table[pattern]; !ok {
			t.Errorf("%s is not in the table", pattern)
		} else if pattern != last {
			check(pattern)
		}
	}
	check(last)
	for _, v := range who[1:] {
		effort.Is(t, v.get("/").Status, 303, "who signed out is answered")
	}
	effort.Is(t, len(table), len(operate.Patterns()), "rows of the table, of which each route has one")
}

// checkPage checks what is required of every answer.
func checkPage(t *testing.T, pattern string, got answer) {
	t.Helper()
	if got.Header.Get("X-Request-Id") == "" || !strings.Contains(got.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%s: headers %v", pattern, got.Header)
	}
	for _, bad := range []string{"<script>", " style=", " onclick=", "<i>.csv", "<b>", "<here>", "<812>", "<eve"} {
		effort.Lacks(t, got.Body, bad, pattern, "the page")
	}
}

// pageMax bounds a page, as package view enforces it.
const pageMax = 512 << 10

// bounded checks that a page is answered and takes at most two thirds of its bound.
func (v *visitor) bounded(path string) string {
	v.t.Helper()
	a := v.get(path)
	effort.ErrorIf(v.t, a.Status != 200 || len(a.Body) > pageMax*2/3,
		"%s: %d with %d bytes", path, a.Status, len(a.Body))
	return a.Body
}

func TestTextsOfCustomersFillAPageAndNoMore(t *testing.T) {
	effort.NotShort(t, "makes long texts")
	effort.Unraced(t, "one call after the other")
	g := pagetest.Start(t)
	w := g.Crowd(t, 130)
	v := visit(t, g, strings.Repeat("&", 200), false)
	path := "/workspaces/" + w.ID.String()
	page := v.bounded(path)
	for what, want := range map[string]int{">Revoke…<": 10, `href="/verifications/`: 100, `>rc_`: 100,
		`formaction="` + path + `/people/`: 200, "/verifications?find=": 1, "30 more aren't shown": 2} {
		effort.Is(t, strings.Count(page, what), want, fmt.Sprintf("%q stands times on the page of the workspace", what))
	}
	for path, rows := range map[string]int{"/verifications": 100, "/workspaces": 3} {
		effort.Is(t, strings.Count(v.bounded(path), `<th scope="row"`), rows, fmt.Sprintf("%s has rows", path))
	}
	v.bounded("/")
	whole := func(pattern string, bytes int) {
		t.Helper()
		link := regexp.MustCompile(`href="(` + pattern + `[^"?]+)"`).FindStringSubmatch(page)
		effort.FatalIf(t, link == nil, "nothing leads to %s", pattern)
		if !strings.Contains(v.bounded(link[1]), html.EscapeString(strings.Repeat("&", bytes-len("129")))) {
			t.Errorf("%s does not show the whole text", link[1])
		}
	}
	whole("/verifications/", 1024)
	whole(path+"/keys/", 200)
}

// elsewhere lists the forms that change nothing in the ledger, or nothing in the state in which this test finds it.
var elsewhere = map[string]string{
	"POST /receivers/{key}/close":                "ends a session of a node: a second time there is none",
	"POST /receivers/{key}/forget":               "drops what nodes know: a second time they know nothing",
	"POST /throttles/preview":                    "shows what an override would change",
	"POST /cluster/{node}/drain":                 "is a wish about a node: a second time it is the same wish",
	"POST /cluster/{node}/undrain":               "takes that wish back",
	"POST /cluster/{node}/forget":                "asks the cluster, which refuses a node that is forgotten",
	"POST /health/audit":                         "reads; TestAnAuditGoesOnBehindItsPage",
	"POST /workspaces/{id}/people/{user}/enable": "TestAMemberIsSignedOutAndDisabled",
}

// TestEveryFormTwiceIsOnce: the first send changes the ledger, the second changes nothing.
func TestEveryFormTwiceIsOnce(t *testing.T) {
	effort.NotShort(t, "a ledger for each form")
	effort.Unraced(t, "one call after the other")
	kept := func(g *pagetest.Rig) string {
		people := pagetest.Of(t, g, g.Book.Members)
		for i := range people {
			people[i].Seen = people[i].Created
		}
		return fmt.Sprint(pagetest.Of(t, g, g.Book.Balance), pagetest.Of(t, g, g.Book.Keys), people,
			pagetest.Of(t, g, g.Book.OpenLinks), g.Sessions(t), pagetest.Of(t, g, g.Book.Usage), g.Overrides(t))
	}
	for _, pattern := range operate.Patterns() {
		row := table[pattern]
		if !strings.HasPrefix(pattern, "POST ") || row.want[1] != 403 || elsewhere[pattern] != "" {
			continue
		}
		g := pagetest.Start(t)
		v := visit(t, g, "eve", false)
		path, form := row.path(g), row.form(g)
		before := kept(g)
		first := v.send("POST", path, form)
		once := kept(g)
		effort.Not(t, before, once, pattern, "changes nothing", first.Status, first.Body)
		second := v.send("POST", path, form)
		if again := kept(g); again != once || second.Status >= 500 {
			t.Errorf("%s twice (%d, %d) is not once:\n%s\n%s", pattern, first.Status, second.Status, once, again)
		}
	}
}

const cookieName = "__Host-rollcall-operator"

// visitor is a browser that keeps the cookies of the pages.
type visitor struct {
	t      *testing.T
	g      *pagetest.Rig
	cookie string // of the session
	next   string // the page to show after signing in
}

// cookieOf returns the name of the session's cookie at a host.
func cookieOf(host string) string {
	if _, port, err := net.SplitHostPort(host); err == nil {
		return cookieName + "-" + port
	}
	return cookieName
}

// answer is what it got.
type answer struct{ nettest.Answer }

// send makes a request. If form is nil, the request has no body.
func (v *visitor) send(method, path string, form url.Values, header ...string) answer {
	v.t.Helper()
	host := strings.TrimPrefix(v.g.URL, "http://")
	if i := slices.Index(header, "Host"); i >= 0 {
		host = header[i+1]
	}
	name := cookieOf(host)
	var cookies []string
	if v.cookie != "" {
		cookies = append(cookies, name+"="+v.cookie)
	}
	if v.next != "" {
		cookies = append(cookies, name+"-next="+v.next)
	}
	if cookies != nil {
		header = append(header, "Cookie", strings.Join(cookies, "; "))
	}
	if form != nil {
		header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	}
	a := nettest.Send(v.t, method, v.g.URL+path, form.Encode(), header...)
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		if strings.HasPrefix(c.Name, "__Host-") && (!c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "") {
			v.t.Errorf("the cookie %s", c.Raw)
		}
		switch c.Name {
		case name:
			v.cookie = c.Value
		case name + "-next":
			v.next = c.Value
		}
	}
	return answer{a}
}

func (v *visitor) get(path string) answer { v.t.Helper(); return v.send("GET", path, nil) }

// visit signs somebody in.
func visit(t *testing.T, g *pagetest.Rig, author string, readOnly bool) *visitor {
	t.Helper()
	v := &visitor{t: t, g: g}
	a := v.send("POST", g.Link(author, readOnly), url.Values{})
	effort.FatalIf(t, a.Status != 303 || v.cookie == "", "the link answers %d, with the cookie %q", a.Status, v.cookie)
	return v
}
