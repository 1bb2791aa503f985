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

// noted counts the lines of the operator log with this author and this action.
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
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	_, page := v.follow(v.get("/workspaces?find=acme"), "/workspaces/")
	page.has(t, "the workspace", "acme &lt;b&gt;", "1\u202f000 granted", "997 available", "1 held", "2 spent",
		"Unfinished verifications", "late &lt;i&gt;.csv", "slow &lt;i&gt;.csv", "Newest grants", ">1\u202f000</td>", "test", "API keys", "billing &lt;b&gt;",
		"People", "anna@acme.test", "Limits and weight", ">5</td>", ">2</td>")
	_, grants, _ := strings.Cut(page.Body, "Newest grants")
	grants, _, _ = strings.Cut(grants, "API keys")
	effort.Is(t, strings.Count(grants, `<th scope="row">`), 1, "grants shown", grants)
	effort.Lacks(t, page.Body, "gone.csv", "what was cancelled stands among the open ones")
}

func TestAKeyIsRevokedOnce(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	v.get(ofWorkspace("")(g)).has(t, "the workspace", "billing &lt;b&gt;", "works", "rc_"+g.Key.ID, "never", ofKey("")(g))
	v.get(ofKey("")(g)).has(t, "the question", "Revoke the key “billing &lt;b&gt;”?", "rc_"+g.Key.ID, "never used", "Keep it")
	k := pagetest.Of(t, g, g.Book.Keys)[0]
	effort.FatalIf(t, !k.Revoked.IsZero(), "asking revoked it")
	for range 2 {
		v.send("POST", ofKey("/revoke")(g), url.Values{}).Must(t, 303)
	}
	k = pagetest.Of(t, g, g.Book.Keys)[0]
	effort.ErrorIf(t, k.Revoked.IsZero(), "it still works")
	effort.Is(t, noted(t, g, "eve", "key revoke"), 1, "noted times")
	v.get(ofKey("")(g)).has(t, "the question again", "already revoked")
	effort.Is(t, v.get(ofWorkspace("/keys/zzzzzzzz2345")(g)).Status, 404, "no key")
	other := "/workspaces/" + g.Poor.Workspace.String() + "/keys/" + g.Key.ID
	effort.Is(t, v.send("POST", other+"/revoke", url.Values{}).Status, 404, "a key of another workspace")
}

func TestAFileThatRunsWaitsForNoNode(t *testing.T) {
	g := pagetest.Start(t)
	pagetest.Running(t, g)
	page := visit(t, g, "eve", false).get(ofWorkspace("")(g))
	effort.Has(t, page.Body, "Answers from receivers.", "the page of the workspace")
	effort.Lacks(t, page.Body, "A node to continue it.", "the page of the workspace")
}

func TestTheLogNamesWorkspaces(t *testing.T) {
	g := pagetest.Start(t)
	page := visit(t, g, "eve", false).get("/log")
	effort.Has(t, page.Body, "acme &lt;b&gt;", "the log")
	effort.Lacks(t, page.Body, g.Workspace.ID.String(), "the log")
}

// once matches a link in the only answer that shows it.
var once = regexp.MustCompile(`<code>(https://rollcall\.test/link/[^<]+)</code>`)

func TestAnInvitationIsMadeOnce(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	form := url.Values{"form": {uuid.NewString()}, "email": {" ben@acme.test "}, "role": {"viewer"}}
	var links []string
	for range 2 {
		a := v.send("POST", ofWorkspace("/invite")(g), form)
		m := once.FindStringSubmatch(a.Body)
		effort.FatalIf(t, a.Status != 200 || m == nil || !strings.Contains(a.Body, "The link for ben@acme.test"),
			"%d %s", a.Status, a.Body)
		links = append(links, m[1])
	}
	open := pagetest.Of(t, g, g.Book.OpenLinks)
	effort.ErrorIf(t, links[0] != links[1] || len(open) != 1 || open[0].Email != "ben@acme.test" ||
		open[0].Role != ledger.Viewer || open[0].MadeBy != "operator eve", "links %q, open %+v", links, open)
	effort.Is(t, noted(t, g, "eve", "user invite"), 1, "noted times")
	a := v.get(ofWorkspace("")(g))
	effort.ErrorIf(t, once.MatchString(a.Body), "the link is shown again")
	form.Set("role", "owner")
	v.send("POST", ofWorkspace("/invite")(g), form).Says(t, 422, "sent before", "the same form for another role")
	for field, wrong := range map[string]string{"email": "ben", "role": "admin", "form": "x"} {
		bad := url.Values{"form": {uuid.NewString()}, "email": {"c@acme.test"}, "role": {"viewer"}}
		bad.Set(field, wrong)
		v.send("POST", ofWorkspace("/invite")(g), bad).Says(t, 422, `id="problem"`, field, wrong)
	}
	effort.Is(t, len(pagetest.Of(t, g, g.Book.OpenLinks)), 1, "invitations are open")
}

func TestAMemberIsSignedOutAndDisabled(t *testing.T) {
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
		v.send("POST", ofAnna("/disable")(g), url.Values{}).Must(t, 303)
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
		effort.ErrorIf(t, a.Status != 404 || pagetest.Of(t, g, g.Book.Members)[0].Disabled, "%s: %d", path, a.Status)
	}
}

func TestWeightAndLimitsAreSet(t *testing.T) {
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
		v.send("POST", ofWorkspace(path)(g), form).Says(t, 422, `id="problem"`, path, form)
	}
	if u := pagetest.Of(t, g, g.Book.Usage); u.Weight != 3 || u.Own != (ledger.Limits{Open: 7, Stored: 1000}) {
		t.Errorf("what was refused changed something: %+v", u)
	}
	for _, path := range []string{"/workspaces/x", "/workspaces/" + uuid.NewString()} {
		effort.Is(t, v.get(path).Status, 404, path)
		effort.Is(t, v.send("POST", path+"/weight", url.Values{"weight": {"3"}}).Status, 404, "POST", path)
	}
}

// has checks that a page has these texts in this order.
func (a answer) has(t *testing.T, what string, texts ...string) {
	t.Helper()
	rest := a.Body
	for _, text := range texts {
		i := strings.Index(rest, text)
		if i < 0 {
			t.Errorf("%s has no %q, or has it before an earlier text:\n%s", what, text, a.Body)
			return
		}
		rest = rest[i+len(text):]
	}
}

func TestStuckVerificationsStandFirstAndSayWhatTheyWaitFor(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	v.get("/verifications").has(t, "the list",
		`href="/verifications/`+g.Overdue.ID.String(), "late &lt;i&gt;.csv", "/workspaces/"+g.Workspace.ID.String(), "waiting for receivers",
		"1 address waits for slow.test, which asked us to come &lt;b&gt;later&lt;/b&gt;. Next try at", "overdue by 60 min", "node-2",
		`href="/verifications/`+g.Poor.ID.String(), "poor &amp; co", "3 credits.", "not known",
		`href="/verifications/`+g.Open.ID.String(), "The rest of its file: 0 of 64 bytes have arrived.")
	for find, want := range map[string]string{"UNPAID": "unpaid.csv", "acme": "slow &lt;i&gt;.csv", g.Overdue.ID.String()[:12]: "late &lt;i&gt;.csv"} {
		a := v.get("/verifications?find=" + find)
		a.has(t, find, want)
		effort.ErrorIf(t, find == "UNPAID" && strings.Contains(a.Body, "late "), "%s finds another file too", find)
	}
	effort.Has(t, v.get("/verifications?find=anna").Body, "No unfinished verification matches",
		"what no file and no workspace is called finds something")
}

func TestTheCreditsOfAVerificationAddUp(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	page := v.get("/verifications/" + g.Overdue.ID.String())
	page.has(t, "the page", "late &lt;i&gt;.csv", `<a href="/workspaces/`+g.Workspace.ID.String()+`">acme &lt;b&gt;</a>`, "by the key billing &lt;b&gt; (rc_"+g.Key.ID+")", "overdue by 60 min")
	page.has(t, "its waits", "No node that answers is working on it;")
	page.has(t, "its entries", "Credit movements", ">release</td>", ">charge</td>", ">hold</td>", "<tfoot>", "3 moves",
		`>4</td><td class="n" data-label="Charged">2</td><td class="n" data-label="Released">1</td></tr></tfoot>`)
	page.has(t, "the sum", "4 held in all", "2 charged", "1 released", "1 still held")
	effort.Lacks(t, page.Body, "does not add up", "what adds up is said not to")
	effort.Has(t, v.get("/verifications/"+g.Open.ID.String()).Body, "It has moved no credits yet.",
		"a verification without entries does not say so")
	v.get("/verifications/"+g.Overdue.ID.String()+"?after=x").Is(t, 400, "a page that begins nowhere")
	v.get("/verifications/"+g.Over.ID.String()).has(t, "one that is over", "gone.csv", "cancelled", "by anna@acme.test", "Finished")
	g.Book.Away.Store(true)
	a := v.get("/verifications/" + g.Open.ID.String())
	effort.ErrorIf(t, a.Status != 200 || !strings.Contains(a.Body, "Its name, credits") ||
		!strings.Contains(a.Body, "mx.slow.test"), "without the ledger: %d %s", a.Status, a.Body)
}

func TestEntriesComeInPagesWithTheSumsOfAll(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	path := "/verifications/" + g.Settled(t, 110).ID.String()
	rows := func(a answer) int {
		_, table, _ := strings.Cut(a.Body, `aria-label="Credit movements`)
		table, _, _ = strings.Cut(table, "<tfoot>")
		return strings.Count(table, `<th scope="row">`)
	}
	newest := v.get(path)
	newest.has(t, "the first page", "111 moves", "110 held in all", "110 charged", "0 still held", "Next page")
	_, older := v.follow(newest, path+"?after=")
	older.has(t, "the second page", ">hold</td>", "111 moves", "110 held in all", "First page")
	a, b := rows(newest), rows(older)
	effort.ErrorIf(t, a != 100 || b != 11, "%d entries and then %d", a, b)
}

func TestEvidenceIsFoundByAddress(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true) // observers may do this: it changes nothing
	path := "/verifications/" + g.Overdue.ID.String() + "/evidence"
	asks := func(address string) answer { return v.send("POST", path, url.Values{"address": {address}}) }
	found := asks(" " + pagetest.Asked + " ")
	found.has(t, "the evidence", pagetest.Asked, "invalid</span>", "The receiver says", "mx1.slow.test", "from <code>"+pagetest.Source,
		"&gt; RCPT TO:&lt;"+pagetest.Asked+"&gt;", "&lt; 450 4.7.1 &lt;script&gt;", "Read as a reason to ask again (greylisted), by rule",
		"grey@00000003", " · TLS", "550 5.1.1 &lt;b&gt;‹the address›&lt;/b&gt; is nobody here", "Read as invalid (mailbox_not_found)",
		pagetest.Rule)
	asks(pagetest.Unkept).has(t, "an outcome without evidence", "valid</span>", "No evidence was kept")
	asks("ben@slow.test").has(t, "what was given up", "unknown</span>", "We stopped asking")
	for address, want := range map[string]int{"nobody@slow.test": 404, "": 400} {
		a := asks(address)
		effort.Is(t, a.Status, want, address)
		effort.Has(t, a.Body, "There's no evidence", address)
	}
	v.send("POST", "/verifications/x/evidence", url.Values{"address": {"a@b.test"}}).Is(t, 404, "no verification")
	effort.Is(t, len(g.Log(t)), len(pagetest.Start(t).Log(t)), "asking wrote to the operator log lines")
}
