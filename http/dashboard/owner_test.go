package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger"
)

// key makes a key of the rig's workspace, and returns its public part.
func (g *rig) key(label string) string {
	g.t.Helper()
	_, k := api.NewKey()
	effort.Must(g.book.CreateKey(context.Background(), ledger.Key{ID: k.ID, Workspace: g.workspace, Label: label,
		SecretSHA256: k.SHA256}))(g.t)
	return k.ID
}

// member returns the id of a member of the rig's workspace, and makes a new person a viewer.
func (g *rig) member(email string) string {
	g.t.Helper()
	u, err := g.book.UserByEmail(context.Background(), email)
	if err != nil {
		g.join(email, g.workspace, ledger.Viewer)
		u, err = g.book.UserByEmail(context.Background(), email)
	}
	effort.OK(g.t, err)
	return u.ID.String()
}

// path returns a path below the rig's workspace.
func (g *rig) path(below string) string { return "/w/" + g.workspace.String() + below }

// credits requests the balance from the API with a key, and returns the status.
func (g *rig) credits(key string) int {
	g.t.Helper()
	return g.as["nobody"].get("/v1/credits", "X-API-Key", key).Status
}

// believedAtMost is how long a revoked key may still work, as documented.
const believedAtMost = 5 * time.Second

var keyPattern = regexp.MustCompile(`rc_[0-9a-z]{12}_[0-9A-Za-z]{49}`)

func TestAKeyIsShownOnceWorksAndIsRevoked(t *testing.T) {
	g := newRig(t)
	owner, form := g.as["owner"], uuid.NewString()
	made := owner.post(g.path("/keys"), "form", form, "label", `<b>"billing"`)
	key := keyPattern.FindString(made.Body)
	effort.FatalIf(t, made.Status != 200 || key == "" || !strings.Contains(made.Body, "&lt;b&gt;"),
		"%d %s", made.Status, made.Body)
	effort.Is(t, g.credits(key), 200, "the key at the API")
	again := owner.post(g.path("/keys"), "form", form, "label", `<b>"billing"`)
	if again.Status != 409 || keyPattern.MatchString(again.Body) || strings.Count(again.Body, `class="mono" data-label="Begins with">rc_`) != 1 {
		t.Errorf("the form again: %d %s", again.Status, again.Body)
	}
	list := owner.get(g.path("/keys"))
	effort.ErrorIf(t, keyPattern.MatchString(list.Body) || !strings.Contains(list.Body, key[:15]) ||
		!strings.Contains(list.Body, "owner@acme.test"), "the list: %s", list.Body)
	id := key[3:15]
	owner.get(g.path("/keys/"+id)).Says(t, 200, "within 5 seconds")
	for range 2 {
		effort.Is(t, owner.post(g.path("/keys/"+id+"/revoke"), "form", uuid.NewString()).Status, 303, "revoked")
	}
	g.pass(believedAtMost)
	effort.Is(t, g.credits(key), 401, "a revoked key is answered with")
	effort.Has(t, owner.get(g.path("/keys/"+id)).Body, "already revoked")
}

// TestAKeyStopsWithItsMaker: a key works only while the user who made it is an owner, and the page says so.
func TestAKeyStopsWithItsMaker(t *testing.T) {
	g := newRig(t)
	second, user := g.join("second@acme.test", g.workspace, ledger.Owner), uuid.MustParse(g.member("second@acme.test"))
	key := keyPattern.FindString(second.post(g.path("/keys"), "form", uuid.NewString(), "label", "laptop").Body)
	effort.MustBe(t, g.credits(key), 200, "the key at the API")
	lines, err := g.book.OperatorLog(t.Context(), ledger.LogQuery{Limit: 1})
	effort.ErrorIf(t, err != nil || len(lines) != 1 || lines[0].Action != "key create" ||
		lines[0].Author != "second@acme.test", "the operator log: %+v, %v", lines, err)
	for _, c := range []struct {
		role  ledger.Role
		want  int
		shows string
	}{{ledger.Member, 401, "suspended"}, {ledger.Owner, 200, "works"}, {"", 401, "suspended"}} {
		effort.OK(t, g.book.SetRole(t.Context(), g.workspace, user, c.role))
		g.pass(believedAtMost)
		effort.Is(t, g.credits(key), c.want, fmt.Sprintf("made by a %q it opens the API with", c.role))
		effort.Has(t, g.as["owner"].get(g.path("/keys")).Body, c.shows, "made by a", c.role, "the page does not say")
		if c.role == ledger.Owner {
			continue
		}
		err := g.book.SetRole(t.Context(), g.workspace, user, ledger.Owner)
		effort.FatalIf(t, c.role != "" && err != nil, "%v", err)
	}
}

func TestKeysOfOthersAndBrokenFormsAreRefused(t *testing.T) {
	g := newRig(t)
	id := g.key("laptop")
	other := "/w/" + g.other.String()
	for _, a := range []answer{g.as["stranger"].get(other + "/keys/" + id),
		g.as["stranger"].post(other+"/keys/"+id+"/revoke", "form", uuid.NewString())} {
		effort.Is(t, a.Status, 404, "a key of another workspace")
	}
	k, err := g.book.KeyByID(context.Background(), id)
	effort.ErrorIf(t, err != nil || !k.Revoked.IsZero(), "%+v %v", k, err)
	for name, values := range map[string]url.Values{"no label": {"form": {uuid.NewString()}, "label": {" "}},
		"a long label": {"form": {uuid.NewString()}, "label": {strings.Repeat("x", 201)}}, "no form": {"label": {"x"}},
		"NUL": {"form": {uuid.NewString()}, "label": {"a\x00"}}, "turned text": {"form": {uuid.NewString()}, "label": {"a\u202eb"}}} {
		a := g.as["owner"].send(http.MethodPost, g.path("/keys"), values)
		effort.ErrorIf(t, a.Status != 422 || !strings.Contains(a.Body, `id="problem"`) ||
			keyPattern.MatchString(a.Body), "%s: %d", name, a.Status)
	}
}

func TestUsesOfKeysAreNoted(t *testing.T) {
	g := newRig(t)
	made := g.as["owner"].post(g.path("/keys"), "form", uuid.NewString(), "label", "laptop")
	key := keyPattern.FindString(made.Body)
	effort.FatalIf(t, !strings.Contains(made.Body, "never") || g.credits(key) != 200, "%s", made.Body)
	effort.OK(t, g.server.Stop(t.Context())) // stopping writes the last uses of keys
	k, err := g.book.KeyByID(context.Background(), key[3:15])
	effort.ErrorIf(t, err != nil || k.LastUsed.IsZero(), "%+v %v", k, err)
}

func TestSomebodyIsInvitedChangedAndRemoved(t *testing.T) {
	g := newRig(t)
	owner, form := g.as["owner"], uuid.NewString()
	send := func() string {
		a := owner.post(g.path("/people"), "form", form, "email", "new@acme.test", "role", "member")
		found := regexp.MustCompile(`/link/([\w-]{43})`).FindStringSubmatch(a.Body)
		effort.FatalIf(t, a.Status != 200 || found == nil, "%d %s", a.Status, a.Body)
		return found[1]
	}
	token := send()
	effort.Is(t, send(), token, "the form again made another link")
	people := owner.get(g.path("/people"))
	effort.Lacks(t, people.Body, token)
	effort.Is(t, strings.Count(people.Body, `name="link"`), 1)
	joined := g.as["nobody"].post("/link/"+token, "form", uuid.NewString(), "password", "a password of mine")
	effort.MustBe(t, joined.Status, 303, joined.Body)
	them := g.browser(joined.cookie())
	effort.Is(t, them.get(g.path("/upload")).Status, 200, "a page of a member")
	effort.Is(t, them.get(g.path("/people")).Status, 403, "a page of a member")
	page := g.path("/people/" + g.member("new@acme.test"))
	for range 2 {
		owner.post(page+"/role", "form", uuid.NewString(), "role", "viewer").Is(t, 303, "role")
	}
	effort.Is(t, them.get(g.path("/upload")).Status, 403, "who is a viewer now still uploads")
	a := owner.post(page+"/sessions", "form", uuid.NewString())
	effort.ErrorIf(t, a.Status != 303 || them.get(g.path("")).Status != 303, "sessions: %d", a.Status)
	owner.post(page+"/role", "form", uuid.NewString(), "remove", "1").Is(t, 303, "remove")
	effort.Is(t, owner.get(page).Status, 404, "who was removed is still there")
	log := owner.get(g.path("/activity")).Body
	for _, want := range []string{"invited new@acme.test as member", "joined as member: new@acme.test",
		"changed the role of new@acme.test: member to viewer", "ended all sessions of new@acme.test",
		"removed new@acme.test, who was viewer"} {
		effort.Has(t, log, want, "the log does not say that somebody")
	}
}

func TestAnOwnerStaysAndInvitationsEnd(t *testing.T) {
	g := newRig(t)
	owner := g.as["owner"]
	self := g.path("/people/" + g.member("owner@acme.test"))
	for _, pair := range [][2]string{{"remove", "1"}, {"role", "viewer"}} {
		a := owner.post(self+"/role", "form", uuid.NewString(), pair[0], pair[1])
		effort.ErrorIf(t, a.Status != 409 || !strings.Contains(a.Body, "last owner"),
			"%v: %d %s", pair, a.Status, a.Body)
	}
	token := g.invite("late@acme.test", g.workspace, ledger.Viewer)
	hex := regexp.MustCompile(`name="link" value="([0-9a-f]{64})"`).FindStringSubmatch(owner.get(g.path("/people")).Body)
	effort.FatalIf(t, hex == nil, "the invitation is not listed")
	for range 2 {
		effort.Is(t, owner.post(g.path("/people/links"), "link", hex[1]).Status, 303, "withdraw")
	}
	effort.Is(t, g.as["nobody"].get("/link/"+string(token)).Status, 404, "a link that was withdrawn")
	for name, pairs := range map[string][]string{"no email": {"email", "x", "role", "viewer"}, "no role": {"email", "a@b", "role", "king"}} {
		effort.Is(t, owner.post(g.path("/people"), append(pairs, "form", uuid.NewString())...).Status, 422, name)
	}
}

func TestTheLogHasPages(t *testing.T) {
	g := newRig(t)
	for range 105 {
		effort.OK(t, g.book.LogWorkspace(ledger.WithActor(context.Background(), "operator"), g.workspace,
			ledger.WorkspaceLine{Action: "<i>odd", Subject: "x"}))
	}
	first := g.as["owner"].get(g.path("/activity")).Body
	next := regexp.MustCompile(`href="([^"]*after=[^"]*)">Next page`).FindStringSubmatch(first)
	effort.FatalIf(t, next == nil || strings.Contains(first, "<i>odd") || !strings.Contains(first, "an operator"),
		"%s", first)
	second := g.as["owner"].get(next[1]).Body
	lines := strings.Count(first, `<th scope="row">`) + strings.Count(second, `<th scope="row">`)
	found, err := g.book.WorkspaceLog(context.Background(), ledger.WorkspaceLogQuery{Workspace: g.workspace, Limit: 200})
	effort.ErrorIf(t, err != nil || lines != len(found), "%d lines on two pages, want %d, %v", lines, len(found), err)
}

func TestInvitingAgainSaysWhatItDoes(t *testing.T) {
	g := newRig(t)
	invite := func(email string) answer {
		return g.as["owner"].post(g.path("/people"), "form", uuid.NewString(), "email", email, "role", "viewer")
	}
	first := invite("new@acme.test")
	effort.Is(t, first.Status, 200, "the first")
	effort.Lacks(t, first.Body, "older invitation", "the first")
	invite("New@acme.test").Says(t, 200, "The older invitation for them no longer works.", "the second")
	token := regexp.MustCompile(`/link/([\w-]{43})`).FindStringSubmatch(first.Body)[1]
	effort.Is(t, g.as["nobody"].get("/link/"+token).Status, 404, "the older link")
	invite("MEMBER@acme.test").Says(t, 409, "member@acme.test is already a member, as member.", "a member")
}
