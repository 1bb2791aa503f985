package browser_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"rollcall/http/dashboard/operate/operatetest"
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
func operatorPath(g *operatetest.Rig, s shown) string {
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
	text, err := os.ReadFile("../operate/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range regexp.MustCompile(`pattern: "GET ([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		route := "GET " + r[1]
		if strings.HasSuffix(route, "/live") || strings.Contains("/assets/{name} /docs/{page} /openapi.yaml /status", r[1]) {
			continue
		}
		if !slices.ContainsFunc(operatorTable, func(s shown) bool { return s.route == route }) {
			t.Errorf("%s is not in the table of pages", route)
		}
	}
}

// operatorTab opens a tab at the pages of operators, signed in unless author is "".
func operatorTab(t *testing.T, g *operatetest.Rig, author string) *tab {
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
	t.Parallel()
	chromium(t)
	validate := module(t, "html-validate/bin/html-validate.mjs")
	g := operatetest.Start(t)
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
			if status != http.StatusOK {
				t.Errorf("%s answers %d", path, status)
			}
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
func operatorCookie(t *testing.T, g *operatetest.Rig) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+g.Link("eve", false), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	for _, c := range a.Cookies() {
		return c.Name + "=" + c.Value
	}
	t.Fatal("the link gave no cookie")
	return ""
}

// fetchAs gives a page as it is served with a cookie.
func fetchAs(t testing.TB, url, cookie string) (string, int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), a.StatusCode
}

func TestAnOperatorAsksWhatAnAddressWasAnswered(t *testing.T) {
	t.Parallel()
	chromium(t)
	g := operatetest.Start(t)
	b := operatorTab(t, g, "eve")
	b.press("Verifications")
	b.press("late <i>.csv") // the overdue one, which stands first
	b.shows("still held")
	lookOver(t, b, "operator-verification-money", "/verifications/"+g.Overdue.ID.String())
	b.fill("address", operatetest.Asked)
	b.press("Show the evidence")
	b.shows("by rule")
	b.shows(operatetest.Rule)
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
	checkHTML(t, module(t, "html-validate/bin/html-validate.mjs"), []served{
		{"operator-evidence", postAs(t, g, "/verifications/"+g.Overdue.ID.String()+"/evidence", url.Values{"address": {operatetest.Asked}})},
		{"operator-invitation", postAs(t, g, "/workspaces/"+g.Workspace.ID.String()+"/invite",
			url.Values{"form": {uuid.NewString()}, "email": {"cleo@acme.test"}, "role": {"owner"}})},
	})
}

// postAs gives the page that an operator's form is answered with.
func postAs(t *testing.T, g *operatetest.Rig, path string, form url.Values) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Cookie", operatorCookie(t, g))
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v %s", path, a.StatusCode, err, body)
	}
	return string(body)
}

func TestOperatorsSeeReceiversWithoutTheLedger(t *testing.T) {
	t.Parallel()
	chromium(t)
	g := operatetest.Start(t)
	b := operatorTab(t, g, "eve")
	b.bear("status of 503")
	waiting := map[string]*tab{}
	g.Away(true)
	for path, text := range map[string]string{"/verifications": "slow <i>.csv", "/workspaces": "acme <b>", "/log": "ticket <812>"} {
		other := operatorTab(t, g, "eve")
		other.bear("status of 503")
		other.goTo(path)
		other.shows("The ledger did not answer")
		other.shows("This page reloads by itself in a moment.")
		waiting[text] = other
	}
	b.goTo("/throttles")
	b.shows("The ledger isn't answering, so overrides aren't shown.")
	b.goTo("/health")
	b.shows("The ledger isn't answering.")

	// The first page goes on by itself: the time on it does.
	b.goTo("/")
	b.shows("mx.slow.test")
	at := eval[string](b, "document.querySelector('#live time').dateTime")
	b.until("document.querySelector('#live time').dateTime !== " + quote(at))
	if !eval[bool](b, "document.getElementById('poll').hidden") {
		t.Errorf("the page of the receivers says that something is wrong: %s", b.text())
	}
	g.Away(false)
	for text, other := range waiting {
		other.shows(text) // by itself
	}
}
