package operate_test

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger"
)

// noted counts the lines of the operator log by an author about an action.
func noted(t *testing.T, g *pagetest.Rig, author, action string) int {
	t.Helper()
	n := 0
	for _, l := range g.Log(t) {
		if l.Author == author && l.Action == action {
			n++
		}
	}
	return n
}

func TestAWorkspaceShowsWhatItHas(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	_, page := v.follow(v.get("/workspaces?find=acme"), "/workspaces/")
	page.has(t, "the workspace", "acme &lt;b&gt;", "1\u202f000 granted", "997 available", "1 held", "2 spent",
		"Unfinished verifications", "late &lt;i&gt;.csv", "slow &lt;i&gt;.csv", "Newest grants", ">1\u202f000</td>", "test", "API keys", "billing &lt;b&gt;",
		"People", "anna@acme.test", "Limits and weight", ">5</td>", ">2</td>")
	_, grants, _ := strings.Cut(page.body, "Newest grants")
	grants, _, _ = strings.Cut(grants, "API keys")
	effort.Is(t, strings.Count(grants, `<th scope="row">`), 1, "grants shown", grants)
	effort.Lacks(t, page.body, "gone.csv", "what was cancelled stands among the open ones")
}

func TestAKeyIsRevokedOnce(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	v.get(ofWorkspace("")(g)).has(t, "the workspace", "billing &lt;b&gt;", "works", "rc_"+g.Key.ID, "never", ofKey("")(g))
	v.get(ofKey("")(g)).has(t, "the question", "Revoke the key “billing &lt;b&gt;”?", "rc_"+g.Key.ID, "never used", "Keep it")
	k := pagetest.Of(t, g, g.Book.Keys)[0]
	effort.FatalIf(t, !k.Revoked.IsZero(), "asking revoked it")
	for range 2 {
		v.send("POST", ofKey("/revoke")(g), url.Values{}).must(t, 303)
	}
	k = pagetest.Of(t, g, g.Book.Keys)[0]
	effort.ErrorIf(t, k.Revoked.IsZero(), "it still works")
	effort.Is(t, noted(t, g, "eve", "key revoke"), 1, "noted times")
	v.get(ofKey("")(g)).has(t, "the question again", "already revoked")
	effort.Is(t, v.get(ofWorkspace("/keys/zzzzzzzz2345")(g)).status, 404, "no key")
	other := "/workspaces/" + g.Poor.Workspace.String() + "/keys/" + g.Key.ID
	effort.Is(t, v.send("POST", other+"/revoke", url.Values{}).status, 404, "a key of another workspace")
}

func TestAFileThatRunsWaitsForNoNode(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	pagetest.Running(t, g)
	page := visit(t, g, "eve", false).get(ofWorkspace("")(g))
	effort.Has(t, page.body, "Answers from receivers.", "the page of the workspace")
	effort.Lacks(t, page.body, "A node to continue it.", "the page of the workspace")
}

func TestTheLogNamesWorkspaces(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	page := visit(t, g, "eve", false).get("/log")
	effort.Has(t, page.body, "acme &lt;b&gt;", "the log")
	effort.Lacks(t, page.body, g.Workspace.ID.String(), "the log")
}

// once is a link in the one answer that shows it.
var once = regexp.MustCompile(`<code>(https://rollcall\.test/link/[^<]+)</code>`)

func TestAnInvitationIsMadeOnce(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	form := url.Values{"form": {uuid.NewString()}, "email": {" ben@acme.test "}, "role": {"viewer"}}
	var links []string
	for range 2 {
		a := v.send("POST", ofWorkspace("/invite")(g), form)
		m := once.FindStringSubmatch(a.body)
		effort.FatalIf(t, a.status != 200 || m == nil || !strings.Contains(a.body, "The link for ben@acme.test"),
			"%d %s", a.status, a.body)
		links = append(links, m[1])
	}
	open := pagetest.Of(t, g, g.Book.OpenLinks)
	effort.ErrorIf(t, links[0] != links[1] || len(open) != 1 || open[0].Email != "ben@acme.test" ||
		open[0].Role != ledger.Viewer || open[0].MadeBy != "operator eve", "links %q, open %+v", links, open)
	effort.Is(t, noted(t, g, "eve", "user invite"), 1, "noted times")
	a := v.get(ofWorkspace("")(g))
	effort.ErrorIf(t, once.MatchString(a.body), "the link is shown again")
	form.Set("role", "owner")
	v.send("POST", ofWorkspace("/invite")(g), form).says(t, 422, "sent before", "the same form for another role")
	for field, wrong := range map[string]string{"email": "ben", "role": "admin", "form": "x"} {
		bad := url.Values{"form": {uuid.NewString()}, "email": {"c@acme.test"}, "role": {"viewer"}}
		bad.Set(field, wrong)
		v.send("POST", ofWorkspace("/invite")(g), bad).says(t, 422, `id="problem"`, field, wrong)
	}
	effort.Is(t, len(pagetest.Of(t, g, g.Book.OpenLinks)), 1, "invitations are open")
}

func TestAMemberIsSignedOutAndDisabled(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	page := v.get(ofWorkspace("")(g))
	page.has(t, "the member", "anna@acme.test", "owner", "Anna &lt;b&gt;", "may sign in", "End all sessions", "Disable the user")
	effort.MustBe(t, g.Sessions(t), 1, "sessions of Anna")
	for range 2 {
		v.send("POST", ofAnna("/end-sessions")(g), url.Values{})
	}
	effort.Is(t, g.Sessions(t), 0, "sessions hold")
	before := len(g.Log(t))
	for range 2 {
		v.send("POST", ofAnna("/disable")(g), url.Values{}).must(t, 303)
		m := pagetest.Of(t, g, g.Book.Members)[0]
		effort.ErrorIf(t, !m.Disabled, "she is not disabled")
	}
	lines := g.Log(t)
	if once := slices.IndexFunc(lines, func(l ledger.LogLine) bool { return l.Action == "user disable" && l.New == "true" && l.Author == "eve" }); once < 0 {
		t.Errorf("not noted: %+v", lines)
	}
	first := len(lines) - before
	v.send("POST", ofAnna("/disable")(g), url.Values{})
	effort.Is(t, len(g.Log(t))-before, first, fmt.Sprintf("noted again: %d lines, then", first))
	v.get(ofWorkspace("")(g)).has(t, "the member", "disabled", "Let them sign in")
	v.send("POST", ofAnna("/enable")(g), url.Values{})
	m := pagetest.Of(t, g, g.Book.Members)[0]
	effort.ErrorIf(t, m.Disabled, "she is still disabled")
	stranger := ofWorkspace("/people/" + uuid.NewString())(g)
	elsewhere := "/workspaces/" + g.Poor.Workspace.String() + "/people/" + g.Anna.String()
	for _, path := range []string{stranger, elsewhere} {
		a := v.send("POST", path+"/disable", url.Values{})
		effort.ErrorIf(t, a.status != 404 || pagetest.Of(t, g, g.Book.Members)[0].Disabled, "%s: %d", path, a.status)
	}
}

func TestWeightAndLimitsAreSet(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	for range 2 {
		v.send("POST", ofWorkspace("/weight")(g), url.Values{"weight": {"3"}})
		v.send("POST", ofWorkspace("/limits")(g), url.Values{"open": {"7"}, "stored": {"1,000"}, "unpaid": {"0"}, "reason": {"contract"}})
	}
	u := pagetest.Of(t, g, g.Book.Usage)
	effort.ErrorIf(t, u.Weight != 3 || u.Own != (ledger.Limits{Open: 7, Stored: 1000}), "%+v", u)
	effort.Is(t, noted(t, g, "eve", "workspace weight"), 1, "the weight is noted times")
	v.get(ofWorkspace("")(g)).has(t, "the workspace", "Unfinished verifications", ">7</td>", "an operator", "1.0 kB", "the node's configuration",
		`value="7"`, `value="1000"`, `value="0"`, `value="3"`)
	v.send("POST", ofWorkspace("/weight")(g), url.Values{"weight": {"101"}}).has(t, "a weight above the bound",
		"Weight must be a whole number from 1 to 100.")
	for path, form := range map[string]url.Values{"/weight": {"weight": {"101"}}, "/weight?": {"weight": {"much"}}, "/weight?2": {"weight": {"0"}},
		"/limits": {"open": {"-1"}, "stored": {"0"}, "unpaid": {"0"}}, "/limits?": {"open": {""}, "stored": {"0"}, "unpaid": {"0"}},
		"/limits?2": {"open": {"1"}, "stored": {"0"}, "unpaid": {"0"}, "reason": {strings.Repeat("x", 201)}}} {
		v.send("POST", ofWorkspace(path)(g), form).says(t, 422, `id="problem"`, path, form)
	}
	if u := pagetest.Of(t, g, g.Book.Usage); u.Weight != 3 || u.Own != (ledger.Limits{Open: 7, Stored: 1000}) {
		t.Errorf("what was refused changed something: %+v", u)
	}
	for _, path := range []string{"/workspaces/x", "/workspaces/" + uuid.NewString()} {
		effort.Is(t, v.get(path).status, 404, path)
		effort.Is(t, v.send("POST", path+"/weight", url.Values{"weight": {"3"}}).status, 404, "POST", path)
	}
}
