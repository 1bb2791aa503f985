package dashboard_test

import (
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/dashboard/pagetest"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

// counted returns the value of a counter with these labels ("name=value").
func (g *rig) counted(metric string, labels ...string) float64 {
	g.t.Helper()
	return nettest.Sum(g.t, g.metrics, metric, labels...)
}

func TestASignInFormSentTwiceIsOneSession(t *testing.T) {
	g := newRig(t)
	fields := []string{"form", uuid.NewString(), "email", "viewer@acme.test", "password", password}
	first := g.as["nobody"].post("/sign-in", fields...)
	second := g.browser(first.cookie()).post("/sign-in", fields...) // the browser already has the first cookie
	if first.Status != 303 || second.Status != 303 || first.cookie() == "" || first.cookie() != second.cookie() {
		t.Fatalf("%d and %d, the same session: %v", first.Status, second.Status, first.cookie() == second.cookie())
	}
	page := g.browser(first.cookie()).get("/you")
	if n := strings.Count(page.Body, `name="session"`); page.Status != 200 || n != 2 {
		t.Errorf("%d, and %d sessions, want two: the first and this one", page.Status, n)
	}
	fields[5] = "wrong wrong wrong"
	a := g.as["nobody"].post("/sign-in", fields...)
	effort.ErrorIf(t, a.Status != 401 || a.cookie() != "", "the same form with a wrong password: %d", a.Status)
	other := append([]string{}, fields...)
	other[3], other[5] = "member@acme.test", password
	if a := g.as["nobody"].post("/sign-in", other...); a.Status != 303 || a.cookie() == first.cookie() {
		t.Errorf("the same form sent by somebody else: %d, the same session: %v", a.Status, a.cookie() == first.cookie())
	}
	g.browser(first.cookie()).post("/sign-out")
	fields[5] = password
	g.as["nobody"].post("/sign-in", fields...).Says(t, 401, "after sending this form", "the same form after signing out")
	for _, form := range []string{"", "x"} {
		a := g.as["nobody"].post("/sign-in", "form", form, "email", "viewer@acme.test", "password", password)
		effort.ErrorIf(t, a.Status != 422 || a.cookie() != "", "form %q: %d", form, a.Status)
	}
	effort.Is(t, g.counted("rollcall_sign_ins_total", "way=password", "result=done"), 3, "sign-ins are counted")
	effort.Is(t, g.counted("rollcall_sign_ins_total", "way=password", "result=refused"), 2)
}

// TestRefusedBodiesNeverAct: a refused body is answered before the pages check where it came from, so nothing in it
// may take effect.
func TestRefusedBodiesNeverAct(t *testing.T) {
	g := newRig(t)
	v := g.create("list.csv", 10)
	path := "/w/" + g.workspace.String() + "/verifications/" + v.ID.String() + "/cancel"
	long := url.Values{"form": {uuid.NewString()}, "x": {strings.Repeat("x", 9<<10)}}.Encode()
	good := url.Values{"form": {uuid.NewString()}}.Encode()
	for name, c := range map[string]struct {
		body    string
		headers []string
		want    int
	}{
		"long":                          {long, nil, 422},
		"long, from another site":       {long, []string{"Sec-Fetch-Site", "cross-site"}, 422},
		"half of it is broken":          {good + "&x=%zz", nil, 422},
		"broken, from another site":     {good + "&x=%zz", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"JSON":                          {`{"form":"` + uuid.NewString() + `"}`, []string{"Content-Type", "application/json"}, 422},
		"text, from another site":       {good, []string{"Content-Type", "text/plain", "Sec-Fetch-Site", "cross-site"}, 403},
		"from another site":             {good, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"from a neighbour":              {good, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"a foreign origin and no other": {good, []string{"Sec-Fetch-Site", "", "Origin", "https://evil.test"}, 403},
		"no origin":                     {good, []string{"Sec-Fetch-Site", "", "Origin", "null"}, 403},
	} {
		a := g.as["owner"].raw("POST", path, c.body, c.headers...)
		effort.Is(t, a.Status, c.want, name)
		effort.Has(t, a.Body, "</html>", name)
		effort.Is(t, strings.Contains(a.Body, "another site"), c.want == 403, name)
	}
	effort.Is(t, effort.Must(g.book.Verification(t.Context(), g.workspace, v.ID))(t).Status, ledger.Uploading,
		"it was changed")
	g.as["owner"].raw("POST", path, good, "Sec-Fetch-Site", "", "Origin", g.url).Is(t, 303, "our own origin")
	create := "/w/" + g.workspace.String() + "/verifications"
	headers := []string{"Sec-Fetch-Site", "cross-site", "Idempotency-Key", uuid.NewString(), "X-Upload-Content-Length", "10"}
	for _, body := range []string{"", long} {
		if a := g.as["owner"].raw("POST", create, body, headers...); a.Status != 403 && a.Status != 422 {
			t.Errorf("create with %d bytes from another site: %d", len(body), a.Status)
		}
	}
	list := effort.Must(g.book.History(t.Context(), ledger.HistoryQuery{Workspace: g.workspace, Limit: 10}))(t)
	effort.Is(t, len(list), 1, "verifications: the one from before")
	g.as["owner"].raw("POST", "/sign-out", long, "Sec-Fetch-Site", "cross-site").Is(t, 422, "sign-out with a long body")
	effort.Is(t, g.as["owner"].get("/you").Status, 200, "a refused body has signed somebody out")
}

// raw sends a body unchanged.
func (b *browser) raw(method, path, body string, headers ...string) answer {
	b.g.t.Helper()
	plain := []string{"Content-Type", "application/x-www-form-urlencoded"}
	if body == "" {
		return b.send(method, path, nil, headers...)
	}
	return b.sendBody(method, path, body, append(plain, headers...)...)
}

func TestMetricsNameTheRouteOfAPageAndNeverItsPath(t *testing.T) {
	g := newRig(t)
	for range 2 {
		g.as["viewer"].get("/w/" + g.workspace.String())
	}
	g.as["viewer"].get("/w/" + uuid.NewString())
	g.as["viewer"].get("/nothing/" + uuid.NewString())
	g.as["nobody"].get("/link/none")
	g.as["nobody"].get("/")
	for route, want := range map[string]float64{"/w/{ws}": 3, "pages": 1, "/link/{token}": 1, "/": 1} {
		effort.Is(t, g.counted("rollcall_http_requests_total", "route="+route), want, fmt.Sprintf("route %s", route))
	}
	effort.Is(t, g.counted("rollcall_http_requests_total"), 6)
}

// setUp reads the page that sets up an app, and returns its form and secret.
func (b *browser) setUp() (form string, secret []byte) {
	b.g.t.Helper()
	page := b.get("/you/codes").Body
	found := regexp.MustCompile(`name="form" value="([0-9a-f-]{36})"`).FindStringSubmatch(page)
	text := regexp.MustCompile(`<code>([A-Z2-7 ]+)</code>`).FindStringSubmatch(page)
	effort.FatalIf(b.g.t, found == nil || text == nil || !strings.Contains(page, "otpauth://totp/Rollcall:") ||
		!strings.Contains(page, `<svg class="qr"`), "no secret on the page: %s", page)
	secret = effort.Must(base32.StdEncoding.DecodeString(strings.ReplaceAll(text[1], " ", "")))(b.g.t)
	return found[1], secret
}

// code returns an app's code, some periods from now.
func (g *rig) code(secret []byte, periods int64) string {
	return signin.TOTPCode(secret, signin.TOTPStep(g.clock())+periods)
}

// TestCodesGuessedAtOnceAreCounted: of codes that come at the same time only ten are tried.
func TestCodesGuessedAtOnceAreCounted(t *testing.T) {
	g := newRig(t)
	g.codesOn()
	step := g.step()
	var tried, told atomic.Int64
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			for {
				switch a := g.give(step, "000000"); a.Status {
				case http.StatusUnprocessableEntity, http.StatusUnauthorized:
					tried.Add(1)
				case http.StatusTooManyRequests:
					told.Add(1)
				case http.StatusServiceUnavailable: // too many at once
					continue
				default:
					t.Errorf("got %d", a.Status)
				}
				return
			}
		})
	}
	all.Wait()
	effort.ErrorIf(t, tried.Load() > 10 || tried.Load()+told.Load() != 60,
		"%d were tried, %d were told to wait", tried.Load(), told.Load())
}

var oneUse = regexp.MustCompile(`<li>([A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4})</li>`)

// codesOn switches codes on for the owner, and returns the secret and the recovery codes.
func (g *rig) codesOn() (secret []byte, recovery []string) {
	g.t.Helper()
	form, secret := g.as["owner"].setUp()
	a := g.as["owner"].post("/you/codes", "form", form, "password", password, "code", g.code(secret, -1))
	for _, m := range oneUse.FindAllStringSubmatch(a.Body, -1) {
		recovery = append(recovery, m[1])
	}
	effort.FatalIf(g.t, a.Status != 200 || len(recovery) != 10,
		"switch on: %d, %d recovery codes: %s", a.Status, len(recovery), a.Body)
	return secret, recovery
}

// step signs in with the password, and returns the hidden value "step" of the page that asks for the code.
func (g *rig) step() string {
	g.t.Helper()
	a := g.as["nobody"].signIn("owner@acme.test", password, "/you")
	found := regexp.MustCompile(`name="step" value="([A-Za-z0-9_-]+)"`).FindStringSubmatch(a.Body)
	effort.FatalIf(g.t, a.Status != 200 || found == nil || a.cookie() != "" ||
		!strings.Contains(a.Body, `autocomplete="one-time-code"`), "no page for the code: %d %s", a.Status, a.Body)
	return found[1]
}

func (g *rig) give(step, code string) answer {
	g.t.Helper()
	return g.as["nobody"].post("/sign-in/code", "step", step, "code", code, "next", "/you")
}

func TestCodesAreSwitchedOnAndAskedFor(t *testing.T) {
	g := newRig(t)
	effort.Has(t, g.as["owner"].get("/w/"+g.workspace.String()).Body, `href="/you/codes"`,
		"an owner is not asked to switch codes on")
	effort.Lacks(t, g.as["member"].get("/w/"+g.workspace.String()).Body, `href="/you/codes"`,
		"a member is asked to switch codes on")
	elsewhere := g.browser(g.as["nobody"].signIn("owner@acme.test", password, "/").cookie())
	form, secret := g.as["owner"].setUp()
	for name, c := range map[string]struct{ password, code string }{
		"a wrong password": {"wrong wrong wrong", g.code(secret, 0)}, "a wrong code": {password, "12345"}, "no code": {password, ""},
		"a code of long ago": {password, g.code(secret, -5)},
	} {
		a := g.as["owner"].post("/you/codes", "form", form, "password", c.password, "code", c.code)
		effort.ErrorIf(t, a.Status != 422 || !strings.Contains(a.Body, `value="`+form+`"`) ||
			len(oneUse.FindAllString(a.Body, -1)) != 0, "%s: %d", name, a.Status)
	}
	effort.MustBe(t, effort.Must(g.book.UserByEmail(t.Context(), "owner@acme.test"))(t).TOTP, "",
		"they are on without a code")
	fields := []string{"form", form, "password", password, "code", g.code(secret, -1)}
	first, second := g.as["owner"].post("/you/codes", fields...), g.as["owner"].post("/you/codes", fields...)
	one, two := oneUse.FindAllString(first.Body, -1), oneUse.FindAllString(second.Body, -1)
	if first.Status != 200 || second.Status != 200 || len(one) != 10 || strings.Join(one, "") != strings.Join(two, "") {
		t.Fatalf("the form twice: %d %d, %d and %d codes", first.Status, second.Status, len(one), len(two))
	}
	a := g.as["owner"].post("/you/codes", "form", uuid.NewString(), "password", password, "code", g.code(secret, 0))
	effort.ErrorIf(t, a.Status != 303, "another form: %d", a.Status)
	effort.Is(t, elsewhere.get("/you").Status, 303, "another session still opens /you")
	page := g.as["owner"].get("/you")
	effort.ErrorIf(t, page.Status != 200 || !strings.Contains(page.Body, "It's on: signing in asks") ||
		!strings.Contains(page.Body, "left: 10."), "this session: %d %s", page.Status, page.Body)
	u, err := g.book.UserByEmail(t.Context(), "owner@acme.test")
	effort.ErrorIf(t, err != nil || u.TOTP == "" || strings.Contains(u.TOTP, base32.StdEncoding.EncodeToString(secret)),
		"kept as %q, %v", u.TOTP, err)
	step := g.step()
	in := g.give(step, g.code(secret, 0))
	again := g.give(step, g.code(secret, 0))
	if in.Status != 303 || in.Header.Get("Location") != "/you" || in.cookie() == "" || again.cookie() != in.cookie() {
		t.Fatalf("right code: %d, again: %d, the same session: %v", in.Status, again.Status, again.cookie() == in.cookie())
	}
	effort.Is(t, g.browser(in.cookie()).get("/you").Status, 200, "the session of it")
	if a := g.give(g.step(), g.code(secret, 0)); a.Status != 401 || a.cookie() != "" || !strings.Contains(a.Body, "wrong or was already used") {
		t.Errorf("the code a second time: %d", a.Status)
	}
	if done, wanted := g.counted("rollcall_sign_ins_total", "way=code", "result=done"),
		g.counted("rollcall_sign_ins_total", "way=password", "result=code_wanted"); done != 2 || wanted != 2 {
		t.Errorf("%v codes and %v passwords are counted", done, wanted)
	}
}

func TestTheSecondPageTellsNobodyAnything(t *testing.T) {
	g := newRig(t)
	_, recovery := g.codesOn()
	plain := func(a answer, email string) string {
		return regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(strings.ReplaceAll(a.Body, email, "EMAIL"), "ID")
	}
	codes, none := g.as["nobody"].signIn("owner@acme.test", "wrong wrong wrong", "/"), g.as["nobody"].signIn("viewer@acme.test", "wrong wrong wrong", "/")
	effort.ErrorIf(t, codes.Status != 401 || plain(codes, "owner@acme.test") != plain(none, "viewer@acme.test"),
		"a wrong password of who has codes is told something else: %d %s", codes.Status, codes.Body)
	step := g.step()
	g.now.Add(601)
	old := g.give(step, recovery[0])
	forged := g.give(strings.ToLower(step), recovery[0])
	if old.Status != 401 || forged.Status != 401 || plain(old, "owner@acme.test") != plain(forged, "owner@acme.test") || old.cookie()+forged.cookie() != "" {
		t.Errorf("an old step: %d, a forged one: %d", old.Status, forged.Status)
	}
	step = g.step()
	u := effort.Must(g.book.UserByEmail(t.Context(), "owner@acme.test"))(t)
	another := strings.Replace(pagetest.KeptPassword, "$H7l", "$aaa", 1)
	effort.OK(t, g.book.SetPassword(t.Context(), u.ID, another, ledger.Hash{}))
	a := g.give(step, recovery[0])
	effort.ErrorIf(t, a.Status != 401 || a.cookie() != "", "after the password was changed: %d", a.Status)
}

func TestWrongCodesWaitAndPasswordsDoNotResetThem(t *testing.T) {
	g := newRig(t)
	secret, _ := g.codesOn()
	for range 5 {
		effort.MustBe(t, g.give(g.step(), "000000").Status, 401, "a wrong code")
	}
	a := g.as["nobody"].signIn("owner@acme.test", password, "/")
	effort.ErrorIf(t, a.Status != 429 || a.Header.Get("Retry-After") == "",
		"after five wrong codes the password is tried: %d", a.Status)
	effort.Is(t, g.give("x", g.code(secret, 0)).Status, 401, "no step")
}

// TestWrongCodesOfManyNetworksWait: somebody who knows the password gets ten tries from all networks together.
func TestWrongCodesOfManyNetworksWait(t *testing.T) {
	g := newRig(t)
	g.codesOn()
	step := g.step()
	book := signin.New(signin.Options{Book: g.book, Secret: g.secret(), Idle: time.Hour, Life: time.Hour})
	var wait *signin.Wait
	for i := range 11 {
		b := signin.Browser{Network: string(rune('a' + i))}
		_, err := book.Code(t.Context(), step, "000000", b)
		effort.Is(t, errors.As(err, &wait), i == 10, "try", i+1, err)
	}
}

func TestOneCodeSignsInOnce(t *testing.T) {
	g := newRig(t)
	_, recovery := g.codesOn()
	steps := []string{g.step(), g.step(), g.step(), g.step()}
	cookies := make([]string, len(steps))
	var all sync.WaitGroup
	for i, step := range steps {
		all.Go(func() { cookies[i] = g.give(step, recovery[0]).cookie() })
	}
	all.Wait()
	effort.Is(t, len(strings.Join(cookies, "")), 43, "one code of one use has begun sessions", cookies)
}

func TestCodesAreSwitchedOffWithPasswordAndCode(t *testing.T) {
	g := newRig(t)
	secret, recovery := g.codesOn()
	elsewhere := g.browser(g.give(g.step(), recovery[0]).cookie())
	for name, c := range map[string]struct{ password, code string }{
		"a wrong password": {"wrong wrong wrong", g.code(secret, 0)}, "a wrong code": {password, "000000"}, "a used one": {password, recovery[0]}} {
		effort.Is(t, g.as["owner"].post("/you/codes/off", "password", c.password, "code", c.code).Status, 422, name)
	}
	for range 2 {
		a := g.as["owner"].post("/you/codes/off", "password", password, "code", recovery[1])
		effort.Is(t, a.Status, 303, "off", a.Body)
		effort.Is(t, a.Header.Get("Location"), "/you?done=codes-off", "off")
	}
	effort.Is(t, elsewhere.get("/you").Status, 303, "another session still opens /you")
	g.as["owner"].get("/you?done=codes-off").Says(t, 200, "Two-step sign-in is off.", "this session")
	a := g.as["nobody"].signIn("owner@acme.test", password, "/")
	effort.ErrorIf(t, a.Status != 303 || a.cookie() == "", "the password alone: %d", a.Status)
}

// oneUse returns the recovery codes on a page.
func (a answer) oneUse() (codes []string) {
	for _, m := range oneUse.FindAllStringSubmatch(a.Body, -1) {
		codes = append(codes, m[1])
	}
	return codes
}

func TestNewCodesOfOneUseAreMadeOnce(t *testing.T) {
	g := newRig(t)
	secret, old := g.codesOn()
	owner := g.as["owner"]
	form := regexp.MustCompile(`action="/you/codes/new"[^>]*>\s*<input type="hidden" name="form" value="([^"]+)"`).FindStringSubmatch(owner.get("/you").Body)
	effort.FatalIf(t, form == nil, "/you has no form for new codes")
	for name, c := range map[string]struct{ form, password, code string }{
		"a wrong password": {form[1], "wrong wrong wrong", g.code(secret, 0)}, "a wrong code": {form[1], password, "000000"},
		"no form": {"x", password, g.code(secret, 0)}} {
		a := owner.post("/you/codes/new", "form", c.form, "password", c.password, "code", c.code)
		effort.ErrorIf(t, a.Status != 422 || len(a.oneUse()) != 0, "%s: %d", name, a.Status)
	}
	sent := []string{"form", form[1], "password", password, "code", g.code(secret, 0)}
	first, again := owner.post("/you/codes/new", sent...), owner.post("/you/codes/new", sent...)
	codes := first.oneUse()
	effort.FatalIf(t, first.Status != 200 || len(codes) != 10 || codes[0] == old[0] ||
		strings.Contains(first.Body, "already sent"), "%d, %d codes: %s", first.Status, len(codes), first.Body)
	effort.ErrorIf(t, again.Status != 200 || strings.Join(again.oneUse(), " ") != strings.Join(codes, " ") ||
		!strings.Contains(again.Body, "This form was already sent."), "the form again: %d %s", again.Status, again.Body)
	if page := owner.get("/you"); !strings.Contains(page.Body, "left: 10.") || strings.Contains(page.Body, codes[0]) {
		t.Errorf("%d %s", page.Status, page.Body)
	}
	effort.Is(t, g.give(g.step(), old[0]).Status, 401, "an old code")
	a := g.give(g.step(), codes[0])
	effort.ErrorIf(t, a.Status != 303 || a.cookie() == "", "a new code: %d", a.Status)
	lines, err := g.book.OperatorLog(t.Context(), ledger.LogQuery{Limit: 10})
	noted := 0
	for _, l := range lines {
		if l.Action == "user codes renewed" && l.Subject == "owner@acme.test" {
			noted++
		}
	}
	effort.ErrorIf(t, err != nil || noted != 1, "the log has %d lines about it, %v", noted, err)
	g.now.Add(601)
	sent[5] = g.code(secret, 0)
	if a := owner.post("/you/codes/new", sent...); a.Status != 409 || len(a.oneUse()) != 0 || !strings.Contains(a.Body, "aren't shown again") {
		t.Errorf("the form much later: %d, %d codes", a.Status, len(a.oneUse()))
	}
	g.as["viewer"].post("/you/codes/new", "form", uuid.NewString(), "password", password, "code", "1").
		Says(t, 409, "Two-step sign-in is off.", "who has no codes")
}

// TestNewCodesAreAskedForTwiceAtOnce: somebody clicks twice. One set of codes is made, and both answers show it.
func TestNewCodesAreAskedForTwiceAtOnce(t *testing.T) {
	g := newRig(t)
	secret, _ := g.codesOn()
	sent := []string{"form", uuid.NewString(), "password", password, "code", g.code(secret, 0)}
	var answers [4]answer
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = g.as["owner"].post("/you/codes/new", sent...) })
	}
	all.Wait()
	for i, a := range answers {
		if codes := a.oneUse(); a.Status != 503 && (a.Status != 200 || len(codes) != 10 || codes[0] != answers[0].oneUse()[0]) {
			t.Errorf("answer %d: %d with %v", i, a.Status, codes)
		}
	}
}

// TestLinksAskForCodesToo: a link alone does not sign in a user with codes.
func TestLinksAskForCodesToo(t *testing.T) {
	g := newRig(t)
	secret, _ := g.codesOn()
	token := signin.NewToken()
	id, _ := token.Hash()
	_, err := g.book.MakeLink(t.Context(), ledger.Link{ID: id, Purpose: ledger.PasswordLink, Email: "owner@acme.test"})
	effort.FatalIf(t, err != nil, "%v", err)
	link := "/link/" + string(token)
	effort.Has(t, g.as["nobody"].get(link).Body, `name="code"`, "the page does not ask for a code")
	for _, code := range []string{"", "000000"} {
		a := g.as["nobody"].post(link, "form", uuid.NewString(), "password", "a wholly new password", "code", code)
		effort.Is(t, a.Status, http.StatusUnauthorized, "with", code)
		effort.Is(t, a.cookie(), "", "with", code)
	}
	g.as["nobody"].post("/link/"+string(token), "form", uuid.NewString(), "password", "a wholly new password",
		"code", g.code(secret, 0)).Is(t, 303, "a new password with a code")
}

// TestAnInvitationGivesNoPasswordToAUser: the maker of an invitation knows its link, so the link must not set a
// password for a user who has none.
func TestAnInvitationGivesNoPasswordToAUser(t *testing.T) {
	g := newRig(t)
	made := g.invite("sso@acme.test", g.workspace, ledger.Owner)
	link, _ := made.Hash()
	session := signin.NewToken()
	id, _ := session.Hash()
	effort.Must(g.book.AcceptLink(t.Context(), ledger.Accept{Link: link, User: uuid.New(), OIDC: "https://login.test 1",
		Session: ledger.NewSession{ID: id, Life: time.Hour}}))(t)
	path := "/link/" + string(g.invite("sso@acme.test", g.other, ledger.Viewer))
	a := g.as["nobody"].post(path, "form", uuid.NewString(), "password", "a password of a thief")
	effort.ErrorIf(t, a.Status != 409 || a.cookie() != "", "%d", a.Status)
	effort.Is(t, effort.Must(g.book.UserByEmail(t.Context(), "sso@acme.test"))(t).Password, "",
		"the invitation gave a password")
	effort.Is(t, g.as["nobody"].signIn("sso@acme.test", "a password of a thief", "/").Status, 401, "signed in with it")
}

func TestANewPasswordWantsTheCodeWhereCodesAreOn(t *testing.T) {
	g := newRig(t)
	secret, _ := g.codesOn()
	owner, fresh := g.as["owner"], "another horse that nobody rides"
	effort.Has(t, owner.get("/you").Body, `id="change-code"`, "/you does not ask for a code with a new password")
	for _, code := range []string{"", "000000"} {
		a := owner.post("/you/password", "old", password, "password", fresh, "code", code)
		effort.Is(t, a.Status, 422, "with", code)
		effort.Has(t, a.Body, "code is wrong", "with", code)
	}
	a := owner.post("/you/password", "old", password, "password", fresh, "code", g.code(secret, 0))
	effort.ErrorIf(t, a.Status != 303 || a.cookie() == "", "with the code: %d", a.Status)
}
