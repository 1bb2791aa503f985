package dashboard_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/dashboard"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

// signIn sends the sign-in form.
func (b *browser) signIn(email, password, next string) answer {
	return b.post("/sign-in", "form", uuid.NewString(), "email", email, "password", password, "next", next)
}

func TestSigningInGivesACookieAndLeadsOn(t *testing.T) {
	g := newRig(t)
	next := "/w/" + g.workspace.String() + "/upload"
	effort.Is(t, g.as["nobody"].get(next).Header.Get("Location"),
		"/sign-in?next=%2Fw%2F"+g.workspace.String()+"%2Fupload", "nobody is led")
	a := g.as["nobody"].signIn("member@acme.test", password, next)
	effort.MustBe(t, a.Status, 303)
	effort.MustBe(t, a.Header.Get("Location"), next)
	if set := a.Header.Get("Set-Cookie"); !regexp.MustCompile(
		`^__Host-rollcall=[A-Za-z0-9_-]{43}; Path=/; Max-Age=86400; HttpOnly; Secure; SameSite=Lax$`).MatchString(set) {
		t.Errorf("Set-Cookie: %s", set)
	}
	signedIn := g.browser(a.cookie())
	signedIn.get(next).Says(t, 200, "member@acme.test", "with the cookie")
	effort.Is(t, g.as["nobody"].signIn("member@acme.test", password, "//evil.test").Header.Get("Location"), "/", "led")
	again := signedIn.signIn("member@acme.test", password, "/")
	effort.ErrorIf(t, again.Status != 303 || again.cookie() == a.cookie(),
		"signing in again: %d, the same session: %v", again.Status, again.cookie() == a.cookie())
	effort.Is(t, signedIn.get("/you").Status, 303, "the session before it still opens /you")
}

func TestSigningOutTwiceIsOnce(t *testing.T) {
	g := newRig(t)
	for range 2 {
		a := g.as["viewer"].post("/sign-out")
		effort.ErrorIf(t, a.Status != 303 || a.Header.Get("Clear-Site-Data") == "" ||
			!strings.Contains(a.Header.Get("Set-Cookie"), "Max-Age=0"), "%d %v", a.Status, a.Header)
		effort.Is(t, g.as["viewer"].get("/you").Status, 303, "signed out and still in")
	}
}

func TestFailuresAreToldInOneSentence(t *testing.T) {
	g := newRig(t)
	var texts []string
	for _, email := range []string{"owner@acme.test", "nobody@acme.test"} {
		a := g.as["nobody"].signIn(email, "wrong wrong wrong", "/")
		effort.Is(t, a.Status, 401, email)
		effort.Is(t, a.cookie(), "", email)
		text := strings.ReplaceAll(a.Body, email, "EMAIL")
		texts = append(texts, regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(text, "ID"))
	}
	effort.Is(t, texts[0], texts[1], "who is unknown is told something else")
	for range 5 {
		g.as["nobody"].signIn("owner@acme.test", "wrong wrong wrong", "/")
	}
	a := g.as["nobody"].signIn("owner@acme.test", password, "/")
	effort.ErrorIf(t, a.Status != 429 || a.Header.Get("Retry-After") == "" ||
		!strings.Contains(a.Body, "Try again at "), "after six failures: %d %v", a.Status, a.Header)
}

func TestNobodySignsInWithoutEncryption(t *testing.T) {
	g := newRig(t)
	far := "http://rollcall.example"
	g.public.Store(&far)
	if a := g.as["nobody"].get("/sign-in"); !strings.Contains(a.Body, "Sign-in is off") || strings.Contains(a.Body, "<form") {
		t.Errorf("the form is shown: %d", a.Status)
	}
	a := g.as["nobody"].signIn("owner@acme.test", password, "/")
	effort.ErrorIf(t, a.Status != 403 || a.cookie() != "", "%d", a.Status)
	link := "/link/" + string(g.invite("new@acme.test", g.workspace, ledger.Member))
	a = g.as["nobody"].post(link, "form", uuid.NewString(), "password", password)
	effort.ErrorIf(t, a.Status != 403 || a.cookie() != "", "a link: %d", a.Status)
	safe := "https://rollcall.example"
	g.public.Store(&safe)
	a = g.as["nobody"].get("/sign-in")
	effort.ErrorIf(t, a.Header.Get("Strict-Transport-Security") != "max-age=31536000" ||
		!strings.Contains(a.Body, "<form"), "over https: %v", a.Header)
}

func TestALinkIsShownOftenAndUsedOnce(t *testing.T) {
	g := newRig(t)
	link := "/link/" + string(g.invite("new@acme.test", g.workspace, ledger.Member))
	for range 3 { // as programs do that prefetch links
		a := g.as["nobody"].get(link)
		effort.FatalIf(t, a.Status != 200 || !strings.Contains(a.Body, "new@acme.test"), "%d", a.Status)
	}
	a := g.as["nobody"].post(link, "form", uuid.NewString(), "password", "short")
	a.Says(t, 422, "too short", "a short password")
	form := uuid.NewString()
	first := g.as["nobody"].post(link, "form", form, "name", "Neo", "password", "a good new password")
	second := g.as["nobody"].post(link, "form", form, "name", "Neo", "password", "a good new password")
	if first.Status != 303 || second.Status != 303 || first.cookie() == "" || first.cookie() != second.cookie() {
		t.Errorf("form twice: %d %d, the same session: %v", first.Status, second.Status, first.cookie() == second.cookie())
	}
	g.browser(first.cookie()).get(first.Header.Get("Location")).Is(t, 200, "led to", first.Header.Get("Location"))
	g.as["nobody"].get(link).Says(t, 404, "can't be used", "afterwards")
	g.as["nobody"].post(link, "form", uuid.NewString(), "password", "a good new password").Is(t, 404, "used again")
}

// TestAnInvitationPageTellsNothingAboutThePerson: the page looks the same for every invited person, because the maker
// of the link can open it.
func TestAnInvitationPageTellsNothingAboutThePerson(t *testing.T) {
	g, p := withProvider(t)
	g.oidcUser(p, "s-1", "sso@acme.test")
	g.codesOn()
	of := func(email string) string {
		link := "/link/" + string(g.invite(email, g.other, ledger.Viewer))
		a := g.as["stranger"].get(link)
		effort.Is(t, a.Status, 200, email)
		nobody := g.as["nobody"].get(link).Body
		same := strings.NewReplacer(email, "EMAIL", link, "LINK", url.QueryEscape(link), "LINK", strings.ToLower(url.QueryEscape(link)), "LINK")
		vary := regexp.MustCompile(`value="[0-9a-f-]{36}"|<code>[0-9a-f-]{36}</code>|<time.*?</time>|next=[^"]*`)
		return vary.ReplaceAllString(same.Replace(a.Body+nobody), "")
	}
	want := of("new@acme.test")
	for _, email := range []string{"viewer@acme.test", "owner@acme.test", "sso@acme.test"} { // a password, codes, a provider
		effort.Is(t, of(email), want, "the page for", email, "is another one")
	}
}

func TestAnInvitationIsAcceptedInTheSessionOfWhoItIsFor(t *testing.T) {
	g := newRig(t)
	link := "/link/" + string(g.invite("Viewer@acme.test", g.other, ledger.Member))
	page := g.as["nobody"].get(link).Body
	effort.Has(t, page, `href="/sign-in?next=%2Flink%2F`, "no way to sign in")
	if a := g.as["member"].get(link).Body; !strings.Contains(a, "You're signed in as") || strings.Contains(a, `name="way"`) {
		t.Errorf("for somebody else: %s", a)
	}
	for name, want := range map[string]int{"nobody": 303, "member": 404} {
		a := g.as[name].post(link, "form", uuid.NewString(), "way", "session")
		effort.ErrorIf(t, a.Status != want || a.cookie() != "", "%s: %d", name, a.Status)
	}
	viewer := g.as["viewer"]
	if a := viewer.get(link).Body; !strings.Contains(a, "Accept the invitation") || strings.Contains(a, `type="password"`) {
		t.Errorf("for who it is for: %s", a)
	}
	if a := viewer.post(link, "form", uuid.NewString(), "way", "session"); a.Status != 303 || a.Header.Get("Location") != "/w/"+g.other.String() {
		t.Errorf("accepted: %d %q", a.Status, a.Header.Get("Location"))
	}
	effort.Is(t, viewer.post(link, "form", uuid.NewString(), "way", "session").Status, 303, "twice")
	effort.Is(t, viewer.get("/w/"+g.other.String()+"/upload").Status, 200, "a member now")
	// The path / leads to the workspace that was shown last.
	for _, w := range []uuid.UUID{g.other, g.workspace, g.other} {
		shown := viewer.get("/w/" + w.String())
		last := ""
		for _, c := range (&http.Response{Header: shown.Header}).Cookies() {
			last += c.Name + "=" + c.Value
		}
		a := viewer.get("/", "Cookie", last+"; __Host-rollcall="+viewer.session)
		effort.Is(t, a.Header.Get("Location"), "/w/"+w.String(), "/ leads to", w, "with", last)
	}
	a := viewer.get("/", "Cookie", "__Host-rollcall-workspace="+uuid.NewString()+"; __Host-rollcall="+viewer.session)
	effort.ErrorIf(t, a.Status != 303 || !strings.HasPrefix(a.Header.Get("Location"), "/w/"),
		"with a workspace of others: %d", a.Status)
}

func TestOnesOwnPageEndsSessionsAndChangesThePassword(t *testing.T) {
	g := newRig(t)
	other := g.browser(g.as["nobody"].signIn("viewer@acme.test", password, "/").cookie())
	page := g.as["viewer"].get("/you").Body
	found := regexp.MustCompile(`name="session" value="([0-9a-f]{64})"`).FindAllStringSubmatch(page, -1)
	effort.MustBe(t, len(found), 2, "sessions are shown")
	effort.Lacks(t, page, g.as["viewer"].session, "the page shows a cookie")
	effort.Lacks(t, page, other.session, "the page shows a cookie")
	this := regexp.MustCompile(`this one.*?value="([0-9a-f]{64})"`).FindStringSubmatch(strings.ReplaceAll(page, "\n", " "))[1]
	for _, f := range found {
		for range 2 {
			if f[1] == this {
				continue
			}
			effort.Is(t, g.as["viewer"].post("/you/sessions", "session", f[1]).Status, 303, "end one")
		}
	}
	effort.Is(t, other.get("/you").Status, 303, "the ended session still opens /you")
	stranger := regexp.MustCompile(`name="session" value="([0-9a-f]{64})"`).FindStringSubmatch(g.as["stranger"].get("/you").Body)[1]
	effort.Is(t, g.as["viewer"].post("/you/sessions", "session", stranger).Status, 303, "end one of somebody else")
	effort.Is(t, g.as["stranger"].get("/you").Status, 200, "a viewer has ended the session of somebody else")
	change := []string{"old", password, "password", "another good password"}
	first := g.as["viewer"].post("/you/password", change...)
	effort.FatalIf(t, first.Status != 303 || first.cookie() == "", "change: %d %s", first.Status, first.Body)
	effort.Is(t, g.as["viewer"].post("/you/password", change...).Status, 401, "the form twice, with the old session")
	g.browser(first.cookie()).post("/you/password", change...).Says(t, 422, "old password", "the form twice")
	dark := g.browser(first.cookie()).post("/you/colours", "colours", "dark")
	set := dark.Header.Get("Set-Cookie")
	effort.ErrorIf(t, !strings.HasPrefix(set, "rollcall-colours=dark; Path=/;"), "colours: %s", set)
}

func TestALinkOfADevelopersNodeSignsInWithoutAPassword(t *testing.T) {
	g := newRig(t)
	for _, workspace := range []uuid.UUID{g.workspace, g.workspace, g.other} { // g.other: the account exists already
		token := effort.Must(signin.DevLink(context.Background(), g.book, workspace, "dev@rollcall.test"))(t)
		path := "/link/" + string(token)
		page := g.as["nobody"].get(path)
		effort.FatalIf(t, page.Status != 200 || !strings.Contains(page.Body, " data-submit") ||
			strings.Contains(page.Body, `type="password"`), "%d %s", page.Status, page.Body)
		a := g.as["nobody"].post(path, "form", uuid.NewString())
		effort.FatalIf(t, a.Status != 303 || a.cookie() == "", "%d %s", a.Status, a.Body)
		in := g.browser(a.cookie()).get("/w/" + workspace.String())
		effort.Is(t, in.Status, 200)
		effort.Lacks(t, in.Body, "/you/codes")
		effort.Is(t, g.as["nobody"].post(path, "form", uuid.NewString()).Status, 404, "used twice")
	}
	for _, password := range []string{"none", "", "a password of mine"} {
		effort.Not(t, g.as["nobody"].post("/sign-in", "email", "dev@rollcall.test", "password", password).Status, 303,
			"the password", password, "signs in")
	}
}

// anotherNode starts the pages of a second node. The two nodes share only the ledger.
func (g *rig) anotherNode() *rig {
	g.t.Helper()
	n := &rig{t: g.t, book: g.book, workspace: g.workspace}
	pages, err := dashboard.New(context.Background(), dashboard.Options{Book: g.book, PublicURL: func() string { return n.url },
		UploadURL: "http://127.0.0.1:7", MaxFileBytes: 1 << 20, MaxRows: 1000, SessionIdle: time.Hour, SessionLife: 24 * time.Hour,
		PerWorkspace: ledger.Limits{Open: 100, Stored: 1 << 30, Unpaid: 1000}, Log: slog.New(slog.DiscardHandler), Now: g.clock,
		Waits: g.waits, Checks: func() bool { return true }, Wake: func() {}, Registerer: prometheus.NewRegistry()})
	effort.OK(g.t, err)
	server := httptest.NewServer(pages)
	n.url = server.URL
	g.t.Cleanup(func() { server.Close(); pages.Stop() })
	return n
}

// TestWhatEndsAtOneNodeEndsAtTheOthers: another node has just admitted somebody and caches that. Five seconds later
// it refuses, whatever was ended and at whichever node.
func TestWhatEndsAtOneNodeEndsAtTheOthers(t *testing.T) {
	g := newRig(t)
	other := g.anotherNode()
	member := func(email string) (here, there *browser, user ledger.SignedIn) {
		here = g.join(email, g.workspace, ledger.Member)
		found := effort.Must(g.book.UserByEmail(t.Context(), email))(t)
		user.User = found
		return here, &browser{g: other, session: here.session}, user
	}
	owner := g.as["owner"]
	people := func(u ledger.SignedIn) string { return g.path("/people/" + u.User.ID.String()) }
	form := func() string { return uuid.NewString() }
	for name, c := range map[string]struct {
		end  func(here *browser, u ledger.SignedIn) answer
		path string // the path that the other node then refuses
		want int
	}{
		"signed out": {func(here *browser, _ ledger.SignedIn) answer { return here.post("/sign-out") }, "/you", 303},
		"another session": {func(here *browser, u ledger.SignedIn) answer {
			return g.browser(g.as["nobody"].signIn(u.User.Email, password, "/").cookie()).post("/you/sessions", "all", "1")
		}, "/you", 303},
		"by an owner": {func(_ *browser, u ledger.SignedIn) answer { return owner.post(people(u)+"/sessions", "form", form()) }, "/you", 303},
		"the role": {func(_ *browser, u ledger.SignedIn) answer {
			return owner.post(people(u)+"/role", "form", form(), "role", "viewer")
		}, g.path("/check"), 403},
		"the membership": {func(_ *browser, u ledger.SignedIn) answer {
			return owner.post(people(u)+"/role", "form", form(), "remove", "1")
		}, g.path(""), 404},
		"the user": {func(_ *browser, u ledger.SignedIn) answer {
			effort.Must(g.book.DisableUser(ledger.WithActor(t.Context(), "operator"), u.User.ID, true))(t)
			return answer{nettest.Answer{Status: 303}}
		}, "/you", 303},
	} {
		here, there, user := member(uuid.NewString()[:8] + "@acme.test")
		effort.MustBe(t, there.get(c.path).Status, 200, name, "the other node answers before it ends")
		c.end(here, user).Must(t, 303, name, "ending it")
		g.now.Add(5)
		effort.Is(t, there.get(c.path).Status, c.want, name, "five seconds later the other node answers")
	}
}

// TestNobodyActsOnWhatANodeBelieves: a node caches for some seconds that a session is valid. If its user is disabled,
// signed out, removed or gets a lower role in this time, no form at any node changes anything more.
func TestNobodyActsOnWhatANodeBelieves(t *testing.T) {
	effort.NotShort(t, "posts eighty forms")
	effort.Unraced(t, "one call after the other")
	g := newRig(t)
	nodes, ctx := []*rig{g, g.anotherNode()}, ledger.WithActor(t.Context(), "operator")
	endings := map[string]struct {
		end            func(u ledger.User) error
		inside, itself int // status for forms of the workspace, and for forms of the user
	}{
		"disabled":     {func(u ledger.User) error { _, err := g.book.DisableUser(ctx, u.ID, true); return err }, 401, 401},
		"signed out":   {func(u ledger.User) error { _, err := g.book.EndSessions(ctx, u.ID, ledger.Hash{}); return err }, 401, 401},
		"removed":      {func(u ledger.User) error { return g.book.SetRole(ctx, g.workspace, u.ID, "") }, 404, 0},
		"a lower role": {func(u ledger.User) error { return g.book.SetRole(ctx, g.workspace, u.ID, ledger.Viewer) }, 403, 0},
	}
	posted := 0
	for _, pattern := range dashboard.Patterns() {
		inside := strings.HasPrefix(pattern, "POST /w/")
		if !inside && !strings.HasPrefix(pattern, "POST /you/") || pattern == "POST /w/{ws}/verifications/{id}/results" {
			continue // this route needs no session, or changes nothing
		}
		for name, c := range endings {
			want := c.itself
			if inside {
				want = c.inside
			}
			if want == 0 {
				continue
			}
			for i, node := range nodes {
				email := uuid.NewString()[:8] + "@acme.test"
				warm := &browser{g: node, session: g.join(email, g.workspace, ledger.Owner).session}
				effort.MustBe(t, warm.get(g.path("")).Status, 200, "an owner at node", i)
				path := table[pattern].path(g)
				effort.OK(t, c.end(effort.Must(g.book.UserByEmail(t.Context(), email))(t)))
				before := g.kept()
				a := warm.send("POST", path, table[pattern].form, table[pattern].header...)
				effort.ErrorIf(t, a.Status != want, "%s, %s at node %d: %d, want %d", pattern, name, i, a.Status, want)
				effort.Is(t, g.kept(), before, pattern, name, "at node", i, "something was changed")
				posted++
			}
		}
	}
	effort.ErrorIf(t, posted < 80, "only %d forms were posted", posted)
}
