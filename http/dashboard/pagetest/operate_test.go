package pagetest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
)

// operatorTable has every page of operators.
var operatorTable = []shown{
	{name: "operator-receivers", route: "GET /{$}"},
	{name: "operator-receiver", route: "GET /receivers/{key}", query: "?trace=1"},
	{name: "operator-verifications", route: "GET /verifications"},
	{name: "operator-verification", route: "GET /verifications/{id}"},
	{name: "operator-throttles", route: "GET /throttles"},
	{name: "operator-explain", route: "GET /throttles", query: "?name=mx.slow.test&field=rcpt_rate"},
	{name: "operator-cluster", route: "GET /cluster"},
	{name: "operator-node", route: "GET /cluster/{node}"},
	{name: "operator-sources", route: "GET /sources"},
	{name: "operator-source", route: "GET /sources/change"},
	{name: "operator-workspaces", route: "GET /workspaces"},
	{name: "operator-workspace", route: "GET /workspaces/{id}"},
	{name: "operator-revoke", route: "GET /workspaces/{id}/keys/{key}"},
	{name: "operator-log", route: "GET /log"},
	{name: "operator-health", route: "GET /health"},
	{name: "operator-docs", route: "GET /docs"},
	{name: "operator-sign-in", route: "GET /sign-in"},
	{name: "operator-link", route: "GET /link/{code}"},
}

// operatorPath fills in a route.
func operatorPath(g *pagetest.Rig, s shown) string {
	path := strings.NewReplacer("GET ", "", "{$}", "", "/workspaces/{id}", "/workspaces/"+g.Workspace.ID.String(),
		"/keys/{key}", "/keys/"+g.Key.ID, "{key}", "mx.slow.test", "{id}", g.Open.ID.String(), "{node}", g.Node.String(),
		"/link/{code}", g.Link("eve", false)).Replace(s.route) + s.query
	switch path {
	case "/sources/change":
		return path + "?source=192.0.2.7&to=pause"
	}
	return path
}

func TestEveryPageOfOperatorsIsInTheTable(t *testing.T) {
	text := effort.Must(os.ReadFile("../operate/access.go"))(t)
	for _, r := range regexp.MustCompile(`pattern: "GET ([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		route := "GET " + r[1]
		if strings.HasSuffix(route, "/live") || strings.Contains("/assets/{name} /docs/{page} /openapi.yaml /status", r[1]) {
			continue
		}
		effort.ErrorIf(t, !slices.ContainsFunc(operatorTable, func(s shown) bool { return s.route == route }),
			"%s is not in the table of pages", route)
	}
}

// operatorTab opens a tab at the pages of operators, signed in unless author is "".
func operatorTab(t *testing.T, g *pagetest.Rig, author string) *tab {
	t.Helper()
	b := &tab{t: t, root: g.URL}
	b.open(g.URL)
	if author != "" {
		b.do(chromedp.Navigate(g.URL + g.Link(author, false))) // its page signs in by itself
		b.shows("Sign out")
	}
	return b
}

func TestPagesOfOperators(t *testing.T) {
	chromium(t)
	validate := module(t, "html-validate/bin/html-validate.mjs")
	g := pagetest.Start(t)
	cookie := operatorCookie(t, g)
	var all []served
	t.Run("each", func(t *testing.T) {
		for _, s := range operatorTable {
			author := "eve"
			if s.name == "operator-sign-in" || s.name == "operator-link" {
				author = ""
			}
			b := operatorTab(t, g, author)
			path := operatorPath(g, s)
			sent := cookie
			if author == "" {
				sent = ""
			}
			html, status := fetchAs(t, g.URL+path, sent)
			effort.Is(t, status, http.StatusOK, fmt.Sprintf("%s answers", path))
			all = append(all, served{s.name, html})
			if s.name == "operator-link" { // it signs in by itself at once: axe has nothing to look at
				b.script(false)
				b.goTo(path)
				b.shoot(s.name)
			} else {
				lookOver(t, b, s.name, path)
			}
			weigh(t, b, s.name, html)
		}
	})
	checkHTML(t, validate, all)
}

// operatorCookie signs in as a program does.
func operatorCookie(t *testing.T, g *pagetest.Rig) string {
	t.Helper()
	a := effort.Send(t, http.MethodPost, g.URL+g.Link("eve", false), "")
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		return c.Name + "=" + c.Value
	}
	t.Fatal("the link gave no cookie")
	return ""
}

// fetchAs returns a page as it is served to the browser with a cookie. If there is a form, it is posted.
func fetchAs(t testing.TB, address, cookie string, form ...url.Values) (string, int) {
	t.Helper()
	method, sent := http.MethodGet, ""
	if form != nil {
		method, sent = http.MethodPost, form[0].Encode()
	}
	headers := []string{"Content-Type", "application/x-www-form-urlencoded"}
	if cookie != "" {
		headers = append(headers, "Cookie", cookie)
	}
	a := effort.Send(t, method, address, sent, headers...)
	return a.Body, a.Status
}

func TestAnOperatorAsksWhatAnAddressWasAnswered(t *testing.T) {
	chromium(t)
	g := pagetest.Start(t)
	b := operatorTab(t, g, "eve")
	b.press("Verifications")
	b.press("late <i>.csv") // the overdue one, which stands first
	b.shows("still held")
	lookOver(t, b, "operator-verification-money", "/verifications/"+g.Overdue.ID.String())
	b.fill("address", pagetest.Asked)
	b.press("Show the evidence")
	b.shows("by rule")
	b.shows(pagetest.Rule)
	b.axe()
	for _, v := range b.violations(false) {
		t.Errorf("evidence: %s", v)
	}
	b.shoot("operator-evidence")
	b.press("late <i>.csv")
	b.press("acme <b>")
	b.press("Invite somebody…")
	b.fill("email", "ben@acme.test")
	b.press("Create an invitation")
	b.shows("The link for ben@acme.test")
	b.axe()
	for _, v := range b.violations(false) {
		t.Errorf("invitation: %s", v)
	}
	b.shoot("operator-invitation")
	cookie := operatorCookie(t, g)
	evidence, _ := fetchAs(t, g.URL+"/verifications/"+g.Overdue.ID.String()+"/evidence", cookie,
		url.Values{"address": {pagetest.Asked}})
	invited, _ := fetchAs(t, g.URL+"/workspaces/"+g.Workspace.ID.String()+"/invite", cookie,
		url.Values{"form": {uuid.NewString()}, "email": {"cleo@acme.test"}, "role": {"owner"}})
	checkHTML(t, module(t, "html-validate/bin/html-validate.mjs"),
		[]served{{"operator-evidence", evidence}, {"operator-invitation", invited}})
}
