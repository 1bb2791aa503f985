package operate_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/http/dashboard/operate"
	"rollcall/http/dashboard/pagetest"
)

// pageMax bounds a page, as package view enforces it.
const pageMax = 512 << 10

// bounded fails unless a page is answered and takes two thirds of what it may.
func (v *visitor) bounded(path string) string {
	v.t.Helper()
	a := v.get(path)
	effort.ErrorIf(v.t, a.status != 200 || len(a.body) > pageMax*2/3,
		"%s: %d with %d bytes", path, a.status, len(a.body))
	return a.body
}

func TestTextsOfCustomersFillAPageAndNoMore(t *testing.T) {
	effort.NotShort(t, "makes long texts")
	effort.Unraced(t, "one call after the other")
	t.Parallel()
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

// elsewhere are the forms that change nothing in the ledger, or nothing in the state in which this test finds it.
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

// TestEveryFormTwiceIsOnce: the first time changes the ledger, the second time nothing does.
func TestEveryFormTwiceIsOnce(t *testing.T) {
	effort.NotShort(t, "a ledger for each form")
	effort.Unraced(t, "one call after the other")
	t.Parallel()
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
		effort.Not(t, before, once, pattern, "changes nothing", first.status, first.body)
		second := v.send("POST", path, form)
		if again := kept(g); again != once || second.status >= 500 {
			t.Errorf("%s twice (%d, %d) is not once:\n%s\n%s", pattern, first.status, second.status, once, again)
		}
	}
}
