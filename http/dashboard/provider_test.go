package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard"
	"rollcall/http/dashboard/pagetest"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

func withProvider(t testing.TB) (*rig, *pagetest.Provider) {
	t.Helper()
	p := pagetest.StartProvider(t)
	g := newRigWith(t, func(o *dashboard.Options) {
		o.Provider = &signin.ProviderOptions{Issuer: p.URL, ClientID: pagetest.ClientID, Secret: pagetest.Secret,
			Name: "Acme login"}
	})
	return g, p
}

// visitor is a browser on its way to the provider.
type visitor struct {
	*browser
	p     *pagetest.Provider
	visit string     // the cookie
	asked url.Values // the query that the provider got
}

// leave sends a browser to the provider, as the answer to a request asks.
func (b *browser) leave(p *pagetest.Provider, a answer) visitor {
	b.g.t.Helper()
	to, err := url.Parse(a.Header.Get("Location"))
	effort.FatalIf(b.g.t, err != nil || a.Status != 303 || !strings.HasPrefix(to.String(), p.URL+"/authorize?"),
		"led to %q with %d: %.300s", a.Header.Get("Location"), a.Status, a.Body)
	v := visitor{browser: b, p: p, asked: to.Query()}
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		if c.Name == "__Host-rollcall-visit" {
			v.visit = c.Value
			effort.ErrorIf(b.g.t, !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode,
				"the cookie of the visit: %+v", c)
		}
	}
	effort.FatalIf(b.g.t, v.visit == "" || v.asked.Get("nonce") == "" || v.asked.Get("state") == "" ||
		strings.Contains(v.visit, v.asked.Get("state")), "asked for %v with cookie %q", v.asked, v.visit)
	return v
}

// start begins to sign in.
func (g *rig) start(p *pagetest.Provider, next string) visitor {
	g.t.Helper()
	return g.as["nobody"].leave(p, g.as["nobody"].get("/oidc/start?next="+url.QueryEscape(next)))
}

// claims returns the provider's claims about the person of this visit.
func (v visitor) claims(subject, email string, change ...any) map[string]any {
	return v.p.Claims(v.asked, v.g.clock(), subject, email, change...)
}

// code makes the provider give a code for claims.
func (v visitor) code(claims map[string]any) string { return v.p.Give(claims, v.asked) }

// back returns to the service with a code.
func (v visitor) back(code, state string) answer {
	v.g.t.Helper()
	cookies := "__Host-rollcall-visit=" + v.visit
	if v.session != "" {
		cookies += "; __Host-rollcall=" + v.session
	}
	from := v.g.browser("")
	return from.get("/oidc/back?"+url.Values{"code": {code}, "state": {state}}.Encode(), "Cookie", cookies, "Sec-Fetch-Site", "cross-site")
}

// as returns to the service as this person.
func (v visitor) as(subject, email string, change ...any) answer {
	v.g.t.Helper()
	return v.back(v.code(v.claims(subject, email, change...)), v.asked.Get("state"))
}

// oidcUser makes, by an invitation, a user who signs in by the provider.
func (g *rig) oidcUser(p *pagetest.Provider, subject, email string) *browser {
	g.t.Helper()
	g.invite(email, g.workspace, ledger.Member)
	a := g.chooses(g.start(p, "/").as(subject, email), 1)
	effort.FatalIf(g.t, a.Status != 303 || a.cookie() == "", "%d %s", a.Status, a.Body)
	return g.browser(a.cookie())
}

var (
	chosenLink = regexp.MustCompile(`name="link" value="([0-9a-f]{64})"`)
	chooseStep = regexp.MustCompile(`name="step" value="([A-Za-z0-9_-]+)"`)
	chooseNext = regexp.MustCompile(`name="next" value="([^"]*)"`)
)

// chooses sends the form on which a new user chooses invitations, with the first few of them.
func (g *rig) chooses(page answer, few int) answer {
	g.t.Helper()
	step, links := chooseStep.FindStringSubmatch(page.Body), chosenLink.FindAllStringSubmatch(page.Body, -1)
	effort.FatalIf(g.t, page.Status != 200 || page.cookie() != "" || step == nil || len(links) < few,
		"no page to choose on: %d %s", page.Status, page.Body)
	form := url.Values{"step": {step[1]}, "next": {chooseNext.FindStringSubmatch(page.Body)[1]}}
	for _, l := range links[:few] {
		form.Add("link", l[1])
	}
	return g.as["nobody"].send("POST", "/oidc/join", form)
}

const refusedSentence = "Acme login did not sign you in: "

// refuses checks that an answer signs nobody in and says so.
func (g *rig) refuses(what string, a answer) {
	g.t.Helper()
	if a.Status != http.StatusForbidden || a.cookie() != "" || !strings.Contains(a.Body, refusedSentence) {
		g.t.Errorf("%s: %d, a session: %v: %.200s", what, a.Status, a.cookie() != "", a.Body)
	}
}

func TestSomebodyInvitedSignsInByTheProvider(t *testing.T) {
	g, p := withProvider(t)
	page := g.as["nobody"].get("/sign-in?next=%2Fyou")
	if !strings.Contains(page.Body, `href="/oidc/start?next=%2fyou"`) || !strings.Contains(page.Body, "Sign in with Acme login") ||
		!strings.Contains(page.Header.Get("Content-Security-Policy"), "form-action 'self' "+p.URL+";") {
		t.Errorf("%s %v", page.Body, page.Header)
	}
	g.invite("New@acme.test", g.workspace, ledger.Member)
	g.invite("new@acme.test", g.other, ledger.Viewer)
	v := g.start(p, "/you")
	effort.ErrorIf(t, v.asked.Get("redirect_uri") != g.url+"/oidc/back" || v.asked.Get("response_type") != "code" ||
		v.asked.Get("scope") != "openid email profile", "asked %v", v.asked)
	code := v.code(v.claims("s-1", "new@Acme.test"))
	page = v.back(code, v.asked.Get("state"))
	if !strings.Contains(page.Body, "acme, as member") || !strings.Contains(page.Body, "a new workspace, as viewer") &&
		!strings.Contains(page.Body, "elsewhere, as viewer") || strings.Contains(page.Body, "checked") {
		t.Errorf("the page to choose on: %s", page.Body)
	}
	if none := g.chooses(page, 0); none.Status != 422 || none.cookie() != "" || len(chosenLink.FindAllString(none.Body, -1)) != 2 {
		t.Errorf("none chosen: %d %s", none.Status, none.Body)
	}
	first := g.chooses(page, 1)
	if again := g.chooses(page, 1); again.Status != 303 || again.cookie() != first.cookie() {
		t.Errorf("the form sent twice: %d, the same session: %v", again.Status, again.cookie() == first.cookie())
	}
	effort.FatalIf(t, first.Status != 303 || first.Header.Get("Location") != "/you" || first.cookie() == "" ||
		page.Header.Get("Referrer-Policy") != "no-referrer", "%d %v %s", first.Status, first.Header, first.Body)
	if again := v.back(code, v.asked.Get("state")); again.Status != 303 || again.cookie() != first.cookie() {
		t.Errorf("the provider's answer used twice: %d, the same session: %v", again.Status, again.cookie() == first.cookie())
	}
	mine := g.browser(first.cookie())
	if you := mine.get("/you"); strings.Contains(you.Body, "/w/"+g.workspace.String()) == strings.Contains(you.Body, "/w/"+g.other.String()) ||
		!strings.Contains(you.Body, "You are connected") || strings.Contains(you.Body, `id="old"`) {
		t.Errorf("/you: %s", you.Body)
	}
	u, err := g.book.UserByEmail(t.Context(), "new@acme.test")
	effort.ErrorIf(t, err != nil || u.Password != "" || u.OIDC != p.URL+" s-1" || u.Name != "Name of s-1",
		"made %+v, %v", u, err)
	// From now on the user is found by the subject, whatever email the provider reports, verified or not.
	a := g.start(p, "/").as("s-1", "renamed@acme.test", "email_verified", false)
	effort.ErrorIf(t, a.Status != 303 || a.cookie() == "", "later: %d", a.Status)
	if a := mine.post("/sign-out"); a.Status != 303 || mine.get("/you").Status != 303 {
		t.Errorf("signed out: %d, and then %d", a.Status, mine.get("/you").Status)
	}
	g.refuses("the answer after signing out", v.back(code, v.asked.Get("state")))
	effort.Must(g.book.DisableUser(t.Context(), u.ID, true))(t)
	g.refuses("who is disabled", g.start(p, "/").as("s-1", "new@acme.test"))
	effort.Is(t, g.counted("rollcall_sign_ins_total", "way=provider", "result=done"), 4, "sign-ins are counted")
}

func TestTheProviderSignsInNobodyWhomItShouldNot(t *testing.T) {
	g, p := withProvider(t)
	g.oidcUser(p, "s-1", "bound@acme.test")
	g.invite("invited@acme.test", g.workspace, ledger.Owner)
	for name, c := range map[string]struct {
		subject, email string
		change         []any
	}{
		"nobody has invited them":       {"s-2", "nobody@acme.test", nil},
		"the email is not verified":     {"s-2", "invited@acme.test", []any{"email_verified", false}},
		"nothing is said of the email":  {"s-2", "invited@acme.test", []any{"email_verified", nil}},
		"verified in another way":       {"s-2", "invited@acme.test", []any{"email_verified", 1}},
		"no email":                      {"s-2", "", nil},
		"an account with a password":    {"s-2", "owner@acme.test", nil},
		"another account of the email":  {"s-2", "bound@acme.test", nil},
		"a wrong nonce":                 {"s-1", "bound@acme.test", []any{"nonce", "x"}},
		"no nonce":                      {"s-1", "bound@acme.test", []any{"nonce", nil}},
		"a wrong audience":              {"s-1", "bound@acme.test", []any{"aud", "other"}},
		"for somebody else too":         {"s-1", "bound@acme.test", []any{"aud", []string{"rollcall", "other"}}},
		"an expired token":              {"s-1", "bound@acme.test", []any{"exp", 1_700_000_000}},
		"another issuer":                {"s-1", "bound@acme.test", []any{"iss", "https://evil.test"}},
		"no subject":                    {"", "bound@acme.test", nil},
		"a subject of too many letters": {strings.Repeat("s", 2000), "invited@acme.test", nil},
	} {
		g.refuses(name, g.start(p, "/").as(c.subject, c.email, c.change...))
	}
	effort.Is(t, effort.Must(g.book.UserByEmail(t.Context(), "owner@acme.test"))(t).OIDC, "",
		"an account with a password was bound")
	effort.Is(t, len(effort.Must(g.book.Invitations(t.Context(), "invited@acme.test"))(t)), 1, "the invitation was used")
	g.chooses(g.start(p, "/").as("s-3", "invited@acme.test", "email_verified", "true", "aud", []string{"rollcall", "other"},
		"azp", "rollcall"), 1).Is(t, 303, "verified as a text")
	p.Foreign.Store(true)
	g.refuses("signed with a foreign key", g.start(p, "/").as("s-1", "bound@acme.test"))
}

func TestAnAnswerBelongsToOneBrowserAndOneAttempt(t *testing.T) {
	g, p := withProvider(t)
	g.oidcUser(p, "s-1", "bound@acme.test")
	mine, other := g.start(p, "/"), g.start(p, "/")
	code := mine.code(mine.claims("s-1", "bound@acme.test"))
	swapped := other
	g.refuses("the state of another browser", swapped.back(code, mine.asked.Get("state")))
	g.refuses("the code of another browser", swapped.back(code, other.asked.Get("state")))
	none := mine
	none.visit = ""
	g.refuses("no cookie", none.back(code, mine.asked.Get("state")))
	forged := mine
	forged.visit = mine.visit[:len(mine.visit)-2] + "AA"
	g.refuses("a forged cookie", forged.back(code, mine.asked.Get("state")))
	g.refuses("no code", mine.back("", mine.asked.Get("state")))
	g.refuses("no state", mine.back(code, ""))
	used := mine.code(mine.claims("s-1", "bound@acme.test"))
	p.Withdraw(used)
	g.refuses("a code that was used", mine.back(used, mine.asked.Get("state")))
	g.now.Add(601)
	g.refuses("too late", mine.back(code, mine.asked.Get("state")))
	effort.Is(t, p.Exchanged.Load(), 1, "codes were exchanged")
}

func TestPasswordsWorkWhileTheProviderIsAway(t *testing.T) {
	g, p := withProvider(t)
	p.Away.Store(true)
	a := g.as["nobody"].get("/oidc/start?next=%2Fyou")
	effort.ErrorIf(t, a.Status != 503 || a.Header.Get("Retry-After") == "" ||
		!strings.Contains(a.Body, "Acme login isn't answering") || !strings.Contains(a.Body, `id="password"`), "%d %s",
		a.Status, a.Body)
	in := g.as["nobody"].signIn("owner@acme.test", password, "/")
	effort.ErrorIf(t, in.Status != 303 || in.cookie() == "", "a password: %d", in.Status)
	p.Away.Store(false)
	g.now.Add(6)
	v := g.start(p, "/")
	p.Away.Store(true)
	if a := v.as("s-1", "x@acme.test"); a.Status != 503 || a.cookie() != "" {
		t.Errorf("away after the way there: %d", a.Status)
	}
	effort.Is(t, g.counted("rollcall_sign_ins_total", "way=provider", "result=failed"), 2)
}

func TestAnAccountWithAPasswordIsConnectedByWhoIsSignedIn(t *testing.T) {
	g, p := withProvider(t)
	owner := g.as["owner"]
	effort.Has(t, owner.get("/you").Body, `action="/you/provider"`, "/you offers nothing")
	begin := func(b *browser) visitor { return b.leave(p, b.post("/you/provider")) }
	for name, a := range map[string]answer{
		"another email":       begin(owner).as("s-9", "stranger@elsewhere.test"),
		"an unverified email": begin(owner).as("s-9", "owner@acme.test", "email_verified", false),
	} {
		effort.Is(t, a.Status, 403, name)
		effort.Has(t, a.Body, "wasn't connected", name)
	}
	v := begin(owner)
	v.browser = g.as["member"] // somebody else has signed in meanwhile
	effort.Is(t, v.as("s-9", "owner@acme.test").Status, 403, "another session")
	v = begin(owner)
	v.browser = g.as["member"] // and the provider names that person
	effort.Is(t, v.as("s-9", "member@acme.test").Status, 403, "another session, of whom the provider names")
	v = begin(owner)
	v.browser = g.as["nobody"]
	g.refuses("no session", v.as("s-9", "owner@acme.test"))
	_, err := g.book.UserByOIDC(t.Context(), p.URL+" s-9")
	effort.FatalIf(t, err == nil, "somebody was bound")
	if a := begin(owner).as("s-9", "OWNER@acme.test"); a.Status != 303 || a.Header.Get("Location") != "/you?done=provider" || a.cookie() != "" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if page := owner.get("/you?done=provider").Body; !strings.Contains(page, "You are connected") || !strings.Contains(page, `id="old"`) {
		t.Errorf("/you: %s", page)
	}
	if a := g.start(p, "/").as("s-9", "owner@acme.test"); a.Status != 303 || a.cookie() == "" {
		t.Errorf("by the provider: %d", a.Status)
	}
	effort.Is(t, begin(g.as["member"]).as("s-9", "member@acme.test").Status, 403, "an identity that another has")
	// A user with codes has to give a code here too.
	_, recovery := g.codesOn()
	a := g.start(p, "/you").as("s-9", "owner@acme.test")
	step := strings.Split(strings.SplitN(a.Body, `name="step" value="`, 2)[1], `"`)[0]
	effort.Is(t, a.Status, 200, "without a code")
	effort.Is(t, a.cookie(), "", "without a code")
	if in := g.give(step, recovery[0]); in.Status != 303 || in.Header.Get("Location") != "/you" || in.cookie() == "" {
		t.Errorf("with a code: %d %s", in.Status, in.Body)
	}
}

func TestAnInvitationIsAcceptedWithTheProvider(t *testing.T) {
	g, p := withProvider(t)
	begin := func(link string) visitor {
		return g.as["nobody"].leave(p, g.as["nobody"].post(link, "form", uuid.NewString(), "way", "provider"))
	}
	link := "/link/" + string(g.invite("new@acme.test", g.workspace, ledger.Member))
	g.invite("new@acme.test", g.other, ledger.Viewer)
	effort.Has(t, g.as["nobody"].get(link).Body, "Accept with Acme login", "the page")
	g.refuses("by who has another email", begin(link).as("s-2", "other@acme.test"))
	g.refuses("an unverified email", begin(link).as("s-2", "new@acme.test", "email_verified", false))
	first := begin(link).as("s-1", "new@acme.test")
	effort.FatalIf(t, first.Status != 303 || first.cookie() == "", "%d %s", first.Status, first.Body)
	effort.Is(t, g.browser(first.cookie()).get("/w/"+g.other.String()).Status, 404, "a link joins another workspace")
	effort.Is(t, g.as["nobody"].get(link).Status, 404, "the link afterwards")
	// A user without a password accepts another invitation in the same way, but nobody else does.
	further := "/link/" + string(g.invite("new@acme.test", g.other, ledger.Owner))
	effort.Has(t, g.as["nobody"].get(further).Body, "Accept with Acme login", "the page of a further one")
	g.oidcUser(p, "s-3", "thief@acme.test")
	g.refuses("by another user", begin(further).as("s-3", "thief@acme.test"))
	if a := begin(further).as("s-1", "new@acme.test"); a.Status != 303 || g.browser(a.cookie()).get("/w/"+g.other.String()).Status != 200 {
		t.Errorf("a further one: %d %s", a.Status, a.Body)
	}
	// A link and a provider together do not take over an account with a password.
	taken := "/link/" + string(g.invite("viewer@acme.test", g.other, ledger.Viewer))
	g.refuses("an account with a password", begin(taken).as("s-5", "viewer@acme.test"))
}

func TestTheEmailMayStandInUserInfo(t *testing.T) {
	g, p := withProvider(t)
	g.invite("new@acme.test", g.workspace, ledger.Member)
	p.SetInfo(map[string]any{"sub": "other", "email": "new@acme.test", "email_verified": true})
	g.refuses("UserInfo of another subject", g.start(p, "/").as("s-1", "", "email", nil, "email_verified", nil))
	p.SetInfo(map[string]any{"sub": "s-1", "email": "new@acme.test", "email_verified": true})
	a := g.chooses(g.start(p, "/").as("s-1", "", "email", nil, "email_verified", nil), 1)
	effort.ErrorIf(t, a.Status != 303 || a.cookie() == "", "%d %s", a.Status, a.Body)
}

func TestTheProviderNeedsEncryptionToo(t *testing.T) {
	g, _ := withProvider(t)
	far := "http://rollcall.example"
	g.public.Store(&far)
	a := g.as["nobody"].get("/oidc/start")
	effort.ErrorIf(t, a.Status != 403 || a.Header.Get("Set-Cookie") != "", "%d %v", a.Status, a.Header)
}

func TestANetworkThatTriesProvidersWaits(t *testing.T) {
	g, p := withProvider(t)
	v := g.start(p, "/")
	for range 20 {
		g.refuses("a guessed code", v.back("x", v.asked.Get("state")))
	}
	a := v.as("s-1", "x@acme.test")
	effort.ErrorIf(t, a.Status != 429 || a.Header.Get("Retry-After") == "" || p.Exchanged.Load() != 0,
		"after twenty: %d, %d codes exchanged", a.Status, p.Exchanged.Load())
}

// TestAFormLeadsToAProviderWhosePageIsElsewhere: a browser follows a form only to origins in the page's policy, and
// the page got its policy before the provider was asked.
func TestAFormLeadsToAProviderWhosePageIsElsewhere(t *testing.T) {
	g, p := withProvider(t)
	p.SetFront("https://front.test")
	first := g.as["owner"].post("/you/provider")
	effort.ErrorIf(t, first.Status != 200 || !strings.Contains(first.Body, `href="https://front.test/authorize?`) ||
		first.Header.Get("Set-Cookie") == "", "the first time: %d %s", first.Status, first.Body)
	policy := g.as["owner"].get("/you").Header.Get("Content-Security-Policy")
	effort.Has(t, policy, "form-action 'self' "+p.URL+" https://front.test;", "the policy afterwards")
	if next := g.as["owner"].post("/you/provider"); next.Status != 303 || !strings.HasPrefix(next.Header.Get("Location"), "https://front.test/") {
		t.Errorf("the next time: %d", next.Status)
	}
	effort.Is(t, g.as["nobody"].get("/oidc/start").Status, 303, "a link needs no policy")
}

func TestAnAccountIsDisconnectedFromTheProvider(t *testing.T) {
	g, p := withProvider(t)
	owner := g.as["owner"]
	owner.leave(p, owner.post("/you/provider")).as("s-9", "owner@acme.test").Must(t, 303)
	effort.Is(t, owner.post("/you/provider/off", "password", "wrong wrong wrong").Status, 422, "a wrong password")
	if page := owner.get("/you").Body; !strings.Contains(page, "Disconnect Acme login") || strings.Contains(page, `id="off-code"`) {
		t.Errorf("/you: %s", page)
	}
	form, secret := owner.setUp()
	owner.post("/you/codes", "form", form, "password", password, "code", g.code(secret, -1)).Must(t, 200)
	elsewhere := g.browser(g.give(g.step(), g.code(secret, 0)).cookie())
	effort.Has(t, owner.get("/you").Body, `id="off-code"`, "/you does not ask for a code")
	for _, code := range []string{"", "000000", g.code(secret, 0)} {
		effort.Is(t, owner.post("/you/provider/off", "password", password, "code", code).Status, 422, "with code", code)
	}
	for range 2 {
		a := owner.post("/you/provider/off", "password", password, "code", g.code(secret, 1))
		effort.Is(t, a.Status, 303, a.Body)
		effort.Is(t, a.Header.Get("Location"), "/you?done=provider-off")
	}
	if page := owner.get("/you?done=provider-off").Body; !strings.Contains(page, "You are disconnected") || !strings.Contains(page, "You aren't connected") {
		t.Errorf("/you: %s", page)
	}
	effort.Is(t, elsewhere.get("/you").Status, 303, "another session still opens /you")
	g.refuses("after it was disconnected", g.start(p, "/").as("s-9", "owner@acme.test"))
}

// TestWhoHasNoPasswordStaysConnected: without a password and the provider a user could never sign in again.
func TestWhoHasNoPasswordStaysConnected(t *testing.T) {
	g, p := withProvider(t)
	without := g.oidcUser(p, "s-1", "sso@acme.test")
	if page := without.get("/you").Body; strings.Contains(page, "/you/provider/off") || !strings.Contains(page, "You can't disconnect:") {
		t.Errorf("/you: %s", page)
	}
	for _, given := range []string{"", password} {
		without.post("/you/provider/off", "password", given).Says(t, 409, "You have no password")
	}
	effort.Not(t, effort.Must(g.book.UserByEmail(t.Context(), "sso@acme.test"))(t).OIDC, "")
}
