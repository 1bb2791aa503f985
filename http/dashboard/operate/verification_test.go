package operate_test

import (
	"net/url"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
)

// has checks that a page has some texts, in this order.
func (a answer) has(t *testing.T, what string, texts ...string) {
	t.Helper()
	rest := a.body
	for _, text := range texts {
		i := strings.Index(rest, text)
		if i < 0 {
			t.Errorf("%s has no %q, or it stands before another one:\n%s", what, text, a.body)
			return
		}
		rest = rest[i+len(text):]
	}
}

func TestStuckVerificationsStandFirstAndSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
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
		effort.ErrorIf(t, find == "UNPAID" && strings.Contains(a.body, "late "), "%s finds another file too", find)
	}
	effort.Has(t, v.get("/verifications?find=anna").body, "No unfinished verification matches",
		"what no file and no workspace is called finds something")
}

func TestTheCreditsOfAVerificationAddUp(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	page := v.get("/verifications/" + g.Overdue.ID.String())
	page.has(t, "the page", "late &lt;i&gt;.csv", `<a href="/workspaces/`+g.Workspace.ID.String()+`">acme &lt;b&gt;</a>`, "by the key billing &lt;b&gt; (rc_"+g.Key.ID+")", "overdue by 60 min")
	page.has(t, "its waits", "No node that answers is working on it;")
	page.has(t, "its entries", "Credit movements", ">release</td>", ">charge</td>", ">hold</td>", "<tfoot>", "3 moves",
		`>4</td><td class="n" data-label="Charged">2</td><td class="n" data-label="Released">1</td></tr></tfoot>`)
	page.has(t, "the sum", "4 held in all", "2 charged", "1 released", "1 still held")
	effort.Lacks(t, page.body, "does not add up", "what adds up is said not to")
	effort.Has(t, v.get("/verifications/"+g.Open.ID.String()).body, "It has moved no credits yet.",
		"a verification without entries does not say so")
	v.get("/verifications/"+g.Overdue.ID.String()+"?after=x").is(t, 400, "a page that begins nowhere")
	v.get("/verifications/"+g.Over.ID.String()).has(t, "one that is over", "gone.csv", "cancelled", "by anna@acme.test", "Finished")
	g.Book.Away.Store(true)
	a := v.get("/verifications/" + g.Open.ID.String())
	effort.ErrorIf(t, a.status != 200 || !strings.Contains(a.body, "Its name, credits") ||
		!strings.Contains(a.body, "mx.slow.test"), "without the ledger: %d %s", a.status, a.body)
}

func TestEntriesComeInPagesWithTheSumsOfAll(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	path := "/verifications/" + g.Settled(t, 110).ID.String()
	rows := func(a answer) int {
		_, table, _ := strings.Cut(a.body, `aria-label="Credit movements`)
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
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true) // an observer may: it changes nothing
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
		effort.Is(t, a.status, want, address)
		effort.Has(t, a.body, "There's no evidence", address)
	}
	v.send("POST", "/verifications/x/evidence", url.Values{"address": {"a@b.test"}}).is(t, 404, "no verification")
	effort.Is(t, len(g.Log(t)), len(pagetest.Start(t).Log(t)), "asking wrote to the operator log lines")
}
