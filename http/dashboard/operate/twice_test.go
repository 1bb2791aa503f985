package operate_test

import (
	"fmt"
	"strings"
	"testing"

	"rollcall/http/dashboard/operate"
	"rollcall/http/dashboard/operate/operatetest"
)

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
	t.Parallel()
	kept := func(g *operatetest.Rig) string {
		people := g.People(t)
		for i := range people {
			people[i].Seen = people[i].Created
		}
		return fmt.Sprint(g.Balance(t), g.APIKeys(t), people, g.Links(t), g.Sessions(t), g.Usage(t), g.Overrides(t))
	}
	for _, pattern := range operate.Patterns() {
		row := table[pattern]
		if !strings.HasPrefix(pattern, "POST ") || row.want[1] != 403 || elsewhere[pattern] != "" {
			continue
		}
		g := operatetest.Start(t)
		v := visit(t, g, "eve", false)
		path, form := row.path(g), row.form(g)
		before := kept(g)
		first := v.send("POST", path, form)
		once := kept(g)
		if before == once {
			t.Errorf("%s changes nothing: %d %s", pattern, first.status, first.body)
		}
		second := v.send("POST", path, form)
		if again := kept(g); again != once || second.status >= 500 {
			t.Errorf("%s twice (%d, %d) is not once:\n%s\n%s", pattern, first.status, second.status, once, again)
		}
	}
}
