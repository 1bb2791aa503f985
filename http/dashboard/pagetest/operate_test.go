package pagetest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/dashboard/pagetest"
)

// operatorTable lists every page of operators.
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
	{name: "operator-docs-page", route: "GET /docs/{page}"},
	{name: "operator-status", route: "GET /status"},
	{name: "operator-sign-in", route: "GET /sign-in"},
	{name: "operator-link", route: "GET /link/{code}"},
}

// operatorPath returns the path of a page: its route with the placeholders filled in.
func operatorPath(g *pagetest.Rig, s shown) string {
	path := strings.NewReplacer("GET ", "", "{$}", "", "/workspaces/{id}", "/workspaces/"+g.Workspace.ID.String(),
		"/keys/{key}", "/keys/"+g.Key.ID, "{key}", "mx.slow.test", "{page}", "errors",
		"{id}", g.Open.ID.String(), "{node}", g.Node.String(),
		"/link/{code}", g.Link("eve", false)).Replace(s.route) + s.query
	switch path {
	case "/sources/change":
		return path + "?source=192.0.2.7&to=pause"
	}
	return path
}

// operatorTab opens a tab at the pages of operators, signed in unless author is "".
func operatorTab(t *testing.T, g *pagetest.Rig, author string) *tab {
	t.Helper()
	b := &tab{t: t, root: g.URL}
	b.open(g.URL)
	if author != "" {
		b.do(chromedp.Navigate(g.URL + g.Link(author, false))) // the page of the link signs in by itself
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
			if s.name == "operator-link" { // this page signs in at once, so axe can't look at it
				b.script(false)
				b.goTo(path)
				b.shoot(s.name)
			} else {
				lookOver(t, b, s.name, path)
			}
		}
	})
	checkHTML(t, validate, all)
}

// operatorCookie signs in as a program does.
func operatorCookie(t *testing.T, g *pagetest.Rig) string {
	t.Helper()
	a := nettest.Send(t, http.MethodPost, g.URL+g.Link("eve", false), "")
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		return c.Name + "=" + c.Value
	}
	t.Fatal("the link gave no cookie")
	return ""
}

// fetchAs returns a page as it is served to the browser with a cookie.
func fetchAs(t testing.TB, address, cookie string) (string, int) {
	t.Helper()
	a := nettest.Send(t, http.MethodGet, address, "", "Cookie", cookie)
	return a.Body, a.Status
}

// TestPagesThatOperatorsPostTo: what they do, the tests of the operators' pages ask.
func TestPagesThatOperatorsPostTo(t *testing.T) {
	chromium(t)
	g := pagetest.Start(t)
	b := operatorTab(t, g, "eve")
	lookOver(t, b, "operator-verification-money", "/verifications/"+g.Overdue.ID.String())
	b.fill("address", pagetest.Asked)
	b.press("Show the evidence")
	b.shows("by rule")
	b.clean("evidence")
	b.press("late <i>.csv")
	b.press("acme <b>")
	b.press("Invite somebody…")
	b.fill("email", "ben@acme.test")
	b.press("Create an invitation")
	b.shows("The link for ben@acme.test")
	b.clean("invitation")
}
