package dashboard_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/http/dashboard"
	"rollcall/ledger"
	"rollcall/smtp"
)

// kept is all that forms may change, in words: what two snapshots have in common is not told apart by when somebody was seen
// or a key was used.
func (g *rig) kept() string {
	g.t.Helper()
	ctx := g.t.Context()
	var all []any
	must := func(err error) {
		if err != nil {
			g.t.Fatal(err)
		}
	}
	for _, w := range []uuid.UUID{g.workspace, g.other} {
		balance, err := g.book.Balance(ctx, w)
		must(err)
		history, err := g.book.Store.History(ctx, ledger.HistoryQuery{Workspace: w, Limit: 100})
		must(err)
		for _, v := range history {
			all = append(all, v.ID, v.Status, v.Counts, v.Held, v.MadeBy)
		}
		keys, err := g.book.Keys(ctx, w)
		must(err)
		for _, k := range keys {
			all = append(all, k.ID, k.Label, k.MadeBy, k.Revoked, k.RevokedBy)
		}
		links, err := g.book.OpenLinks(ctx, w)
		must(err)
		members, err := g.book.Members(ctx, w)
		must(err)
		for _, m := range members {
			sessions, err := g.book.Sessions(ctx, m.User, time.Hour)
			must(err)
			u, err := g.book.UserByEmail(ctx, m.Email)
			must(err)
			all = append(all, m.Email, m.Name, m.Role, m.Disabled, u.Password, len(sessions))
		}
		log, err := g.book.WorkspaceLog(ctx, ledger.WorkspaceLogQuery{Workspace: w, Limit: 100})
		must(err)
		all = append(all, balance, links, log)
	}
	log, err := g.book.OperatorLog(ctx, ledger.LogQuery{Limit: 100})
	must(err)
	return fmt.Sprint(append(all, log)...)
}

// twice are the forms that change something: who sends each, where, and what. Each is sent twice as it is.
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

// elsewhere are the other forms, and where it is shown that twice is once, or why there is nothing to show.
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

// with is a form with an id and more fields.
func with(pairs ...string) url.Values {
	v := form()
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

// TestEveryFormTwiceIsOnce: the first time changes something, the second time nothing.
func TestEveryFormTwiceIsOnce(t *testing.T) {
	t.Parallel()
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
		if before == once {
			t.Errorf("%s changes nothing: %d %s", pattern, first.status, first.body)
		}
		second := who.send("POST", path, values)
		if again := g.kept(); again != once {
			t.Errorf("%s twice (%d, %d) is not once:\n%s\n%s", pattern, first.status, second.status, once, again)
		}
		if second.status >= 500 {
			t.Errorf("%s the second time: %d", pattern, second.status)
		}
	}
}
