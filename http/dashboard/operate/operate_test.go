package operate_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger"
)

func TestALinkIsUsedOnceAndByItsPostAlone(t *testing.T) {
	g := pagetest.Start(t)
	link := g.Link("eve", false)
	stranger := &visitor{t: t, g: g}
	for range 2 { // as a previewer does
		if a := stranger.get(link); a.Status != 200 || !strings.Contains(a.Body, "eve") || stranger.cookie != "" {
			t.Fatalf("GET: %d, cookie %q", a.Status, stranger.cookie)
		}
	}
	a := stranger.send("POST", link, url.Values{})
	effort.FatalIf(t, a.Status != 303 || stranger.get("/").Status != 200, "POST: %d", a.Status)
	second := &visitor{t: t, g: g}
	if a := second.send("POST", link, url.Values{}); a.Status != 404 || second.cookie != "" {
		t.Errorf("a used link answers %d, cookie %q", a.Status, second.cookie)
	}
	late := g.Link("eve", false)
	g.Later(time.Minute)
	if a := second.send("POST", late, url.Values{}); a.Status != 404 || second.cookie != "" {
		t.Errorf("a link older than a minute answers %d, cookie %q", a.Status, second.cookie)
	}
}

func TestSessionsEnd(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	kept := v.cookie
	v.send("POST", "/sign-out", url.Values{})
	v.cookie = kept
	effort.Is(t, v.get("/").Status, 303, "a cookie that was kept beyond its sign-out opens a page")
	v = visit(t, g, "eve", false)
	g.Later(59 * time.Minute)
	if a := v.get("/log"); a.Status != 200 { // counts as use
		t.Fatalf("within the hour: %d", a.Status)
	}
	g.Later(59 * time.Minute)
	v.get("/receivers/live")
	effort.MustBe(t, v.get("/receivers/live").Status, 200, "a part, within the hour")
	g.Later(2 * time.Minute)
	effort.Is(t, v.get("/").Status, 303, "a session that only parts were asked for lives on")
	v = visit(t, g, "eve", false)
	for range 12 {
		g.Later(59 * time.Minute)
		v.get("/log")
	}
	g.Later(20 * time.Minute)
	effort.Is(t, v.get("/log").Status, 303, "a session of more than 12 hours lives")
}

func TestForgedCookiesOpenNothing(t *testing.T) {
	g := pagetest.Start(t)
	other := visit(t, g, "eve", false)
	v := &visitor{t: t, g: g}
	for i := range []int{0, 1, 2, 3} {
		forged := []byte(other.cookie)
		forged[i*len(forged)/4] ^= 1
		v.cookie = string(forged)
		effort.Is(t, v.get("/").Status, 303, "a forged cookie opens a page")
	}
	v.cookie = other.cookie
	effort.Is(t, v.get("/").Status, 200, "a good cookie opens no page")
	v.cookie += "; " + cookieOf(strings.TrimPrefix(g.URL, "http://")) + "=" + other.cookie
	effort.Is(t, v.get("/").Status, 303, "two cookies open a page")
	v.cookie = ""
	v.send("GET", "/", nil, "Authorization", "Bearer "+pagetest.Token).Is(t, 303, "a page by the token")
	v.cookie = other.cookie
	effort.Is(t, v.get("/v1/receivers").Status, 401, "the cookie opens the operator API")
}

func TestOtherSitesChangeNothing(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	form := url.Values{"name": {"node-2"}}
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://elsewhere.test"}} {
		a := v.send("POST", "/cluster/"+g.Node.String()+"/drain", form, header...)
		effort.ErrorIf(t, a.Status != 403 || len(g.Asked()) > 0, "%q: %d", header, a.Status)
	}
}

func TestPlainHTTPFromElsewhereSignsNobodyIn(t *testing.T) {
	g := pagetest.Start(t)
	for host, want := range map[string]int{"127.0.0.1": 303, "localhost": 303, "ops.test": 403} {
		v := &visitor{t: t, g: g}
		effort.Is(t, v.send("POST", g.Link("eve", false), url.Values{}, "Host", host).Status, want, host)
	}
}

func TestAnOverrideIsLookedAtThenSetOnce(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	form := url.Values{"form": {uuid.NewString()}, "name": {"fast.test"}, "field": {"rcpt_rate"}, "value": {"2/s"}, "for": {"2h"}, "reason": {"ticket 1"}}
	a := v.send("POST", "/throttles/preview", form)
	for _, want := range []string{"5/s", "2/s", "at most", "ticket 1"} {
		effort.Has(t, a.Body, want, "the preview")
	}
	effort.MustBe(t, len(g.Overrides(t)), 1, "looking set one")
	for range 2 {
		v.send("POST", "/throttles/set", form).Must(t, 303, "set")
	}
	held := g.Overrides(t)
	i := slices.IndexFunc(held, func(o ledger.ThrottleOverride) bool { return o.Key == "fast.test" })
	effort.FatalIf(t, len(held) != 2 || i < 0 || held[i].Author != "eve" || held[i].Reason != "ticket 1" ||
		held[i].Expires.Sub(held[i].Created) != 2*time.Hour, "%+v", held)
	for field, wrong := range map[string]string{"for": "soon", "value": "quick", "reason": "", "form": "x", "field": "colour"} {
		bad := url.Values{}
		for k := range form {
			bad.Set(k, form.Get(k))
		}
		bad.Set("form", uuid.NewString())
		bad.Set(field, wrong)
		for _, path := range []string{"/throttles/preview", "/throttles/set"} {
			v.send("POST", path, bad).Says(t, 422, `id="problem"`, path, field, wrong)
		}
	}
	v.send("POST", "/throttles/clear", url.Values{"id": {held[i].ID.String()}}).Is(t, 422, "clear without a reason")
	for range 2 {
		effort.Is(t, v.send("POST", "/throttles/clear", url.Values{"id": {held[i].ID.String()}, "reason": {"done"}}).Status,
			303, "clear")
	}
	effort.Is(t, len(g.Overrides(t)), 1, "hold after one was cleared")
}

func TestWhatCannotBeTakenBackAsksForTheName(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	for _, path := range []string{"/cluster/" + g.Node.String() + "/drain", "/cluster/" + g.Lost().String() + "/forget"} {
		a := v.send("POST", path, url.Values{"name": {"node-9"}})
		effort.ErrorIf(t, a.Status != 422 || len(g.Asked()) > 0, "%s with another name: %d", path, a.Status)
	}
	effort.Is(t, v.send("POST", "/cluster/"+uuid.NewString()+"/drain", url.Values{"name": {"node-2"}}).Status, 404,
		"a node that is none")
	v.send("POST", "/cluster/"+g.Node.String()+"/drain", url.Values{"name": {"node-2"}})
	asked := g.Asked()
	effort.ErrorIf(t, len(asked) != 1 || asked[0] != "drain "+g.Node.String()+" by eve", "asked %q", asked)
}

func TestAGrantIsGrantedOnce(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	form := url.Values{"form": {uuid.NewString()}, "credits": {"1,500"}, "reason": {"invoice 7"}}
	path := ofWorkspace("/grant")(g)
	for range 2 {
		v.send("POST", path, form).Must(t, 303)
	}
	effort.Is(t, pagetest.Of(t, g, g.Book.Balance).Granted, 2500, "granted")
	for field, wrong := range map[string]string{"credits": "-1", "reason": "", "form": "x"} {
		bad := url.Values{"form": {uuid.NewString()}, "credits": {"5"}, "reason": {"x"}}
		bad.Set(field, wrong)
		effort.Is(t, v.send("POST", path, bad).Status, 422, field, wrong)
	}
	form.Set("credits", "7") // the same form with another sum
	effort.Is(t, v.send("POST", path, form).Status, 422, "a form that says something else the second time")
	effort.Is(t, pagetest.Of(t, g, g.Book.Balance).Granted, 2500, "granted")
}

var link = regexp.MustCompile(`href="([^"]+)"`)

// follow clicks the first link of a page whose path begins with prefix.
func (v *visitor) follow(page answer, prefix string) (string, answer) {
	v.t.Helper()
	for _, m := range link.FindAllStringSubmatch(page.Body, -1) {
		if path := strings.ReplaceAll(m[1], "&amp;", "&"); strings.HasPrefix(path, prefix) {
			return path, v.get(strings.SplitN(path, "#", 2)[0])
		}
	}
	v.t.Fatalf("no link to %s in\n%s", prefix, page.Body)
	return "", answer{}
}

func TestTheFirstPageFindsFiles(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	link := `href="/verifications/` + g.Open.ID.String()
	for find, want := range map[string]bool{"SLOW": true, "acme": true, g.Open.ID.String()[:8]: true, "quick": false} {
		effort.Is(t, strings.Contains(v.get("/verifications?find="+find).Body, link), want, find, "finds the file")
	}
	if first := v.get("/").Body; !strings.Contains(first, `action="/verifications"`) || !strings.Contains(first, `name="find"`) {
		t.Error("the first page does not ask for a file")
	}
	asked := g.Book.Listed.Load()
	v.get("/receivers/live")
	v.get("/receivers/live")
	if n := g.Book.Listed.Load(); n != asked || asked == 0 {
		t.Errorf("the ledger was asked for open files %d times by the polled part", n-asked)
	}
	ago := time.Now().Add(-3 * time.Hour)
	g.Book.Ends.Store(&ago)
	effort.Has(t, v.get("/").Body, "overdue by 3 h", "the first page does not say that a file is overdue")
	g.Book.Away.Store(true)
	if a := v.get("/"); a.Status != 200 || !strings.Contains(a.Body, "unfinished files aren't shown") || !strings.Contains(a.Body, `href="/receivers/uni.test`) {
		t.Errorf("without the ledger: %d %s", a.Status, a.Body)
	}
}

func TestPagesAnswerWithoutTheLedger(t *testing.T) {
	g := pagetest.Start(t)
	g.Book.Away.Store(true)
	v := visit(t, g, "eve", false)
	for path, want := range map[string]int{"/": 200, "/receivers/mx.slow.test": 200, "/cluster": 200, "/sources": 200, "/health": 200,
		"/throttles": 200, "/verifications": 503, "/workspaces": 503} {
		effort.Is(t, v.get(path).Status, want, path)
	}
	effort.Has(t, v.get("/throttles").Body, "The ledger isn't answering",
		"the throttles do not say that overrides are missing")
	g.Book.Away.Store(false)
	effort.Is(t, v.get("/verifications").Status, 200, "after it came back")
}

func TestFiltersAndParts(t *testing.T) {
	v := visit(t, pagetest.Start(t), "eve", false)
	for query, want := range map[string][]string{"": {"mx.slow.test", "uni.test", "strict.test"}, "?state=idle": {"quiet.test"}, "?find=SLOW": {"mx.slow.test"},
		"?state=suspended": {"strict.test"}, "?cause=connections": {"uni.test"}, "?find=none": nil} {
		for _, path := range []string{"/", "/receivers/live"} {
			a := v.get(path + query)
			for _, key := range []string{"mx.slow.test", "uni.test", "strict.test", "quiet.test"} {
				got := strings.Contains(a.Body, `href="/receivers/`+key)
				effort.ErrorIf(t, got != slices.Contains(want, key), "%s%s has %s: %v", path, query, key, got)
			}
			effort.Has(t, a.Body, "node-3", path, query, "does not name the node without an answer")
		}
	}
	a := v.get("/receivers/mx.slow.test/trace/live")
	tag := a.Header.Get("ETag")
	effort.Has(t, a.Body, `data-etag="`+strings.ReplaceAll(tag, `"`, "&#34;")+`"`, "the part does not carry its tag", tag)
}

func TestObserversSeeNoForms(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	for _, path := range []string{"/", "/receivers/mx.slow.test", "/throttles", "/throttles?name=mx.slow.test", "/cluster/" + g.Node.String(), "/workspaces",
		ofWorkspace("")(g), ofKey("")(g), ofAnna("")(g), "/sources", "/sources/change?source=192.0.2.7&to=drain"} {
		for part := range strings.SplitSeq(v.get(path).Body, "<form ") {
			if strings.HasPrefix(part, `method="post"`) && !strings.HasPrefix(part, `method="post" action="/sign-out"`) {
				t.Errorf("%s shows an observer the form %.80s", path, part)
			}
		}
	}
}

func TestAnAuditGoesOnBehindItsPage(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	effort.Has(t, v.get("/health").Body, "None has been run from this page", "before the first")
	for range 2 { // a second audit does not start while one runs
		effort.MustBe(t, v.send("POST", "/health/audit", url.Values{}).Status, 303)
	}
	page := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if page = v.get("/health").Body; strings.Contains(page, "Nothing is wrong") {
			break
		}
	}
	effort.Has(t, page, "Nothing is wrong", "after it")
	effort.Has(t, page, "entries", "after it")
}

func TestEveryPageSaysWhichNodesMayNotProbe(t *testing.T) {
	v := visit(t, pagetest.Start(t), "ben", true)
	for _, path := range []string{"/", "/throttles", "/cluster", "/nowhere"} {
		page := v.get(path).Body
		for _, want := range []string{"This node can't check addresses.", "Port 25 is closed", "Node node-2 can't check addresses."} {
			effort.Has(t, page, want, path, "does not say")
		}
	}
}

// TestOverridesCountDownByMinutes requests the polled part as the script does, with the tag of the last answer.
func TestOverridesCountDownByMinutes(t *testing.T) {
	g := pagetest.Start(t)
	g.Hold() // stops the clock of the pages
	v := visit(t, g, "eve", false)
	g.SetOverride(t, ledger.ThrottleOverride{ID: uuid.New(), Key: "other.test", Fields: map[string]string{"rcpt_rate": "2/s"}, Reason: "ticket 2"})
	a := v.get("/throttles/live")
	tag := a.Header.Get("ETag")
	effort.FatalIf(t, a.Status != 200 || !strings.Contains(a.Body, "ticket 2") ||
		strings.Count(a.Body, "in 1 h 0 min")+strings.Count(a.Body, "in 59 min") != 2, "%d %s", a.Status, a.Body)
	g.Later(-30 * time.Minute)
	if a := v.get("/throttles/live"); strings.Contains(a.Body, "state warn") || strings.Count(a.Body, "in 1 h 30 min")+strings.Count(a.Body, "in 1 h 29 min") != 2 {
		t.Errorf("an hour and a half before the end: %s", a.Body)
	}
	g.Later(50 * time.Minute)
	a = v.get("/throttles/live")
	effort.Is(t, strings.Count(a.Body, "state warn"), 2, "within the last hour")
	effort.Has(t, a.Body, "Ending within the hour: 2.", "within the last hour")
	effort.Not(t, a.Header.Get("ETag"), tag, "the tag has not changed with the countdown")
	tag = a.Header.Get("ETag")
	if a := v.send("GET", "/throttles/live", nil, "If-None-Match", tag); a.Status != 304 || a.Body != "" {
		t.Errorf("nothing has changed: %d", a.Status)
	}
	g.SetOverride(t, ledger.ThrottleOverride{ID: uuid.New(), Key: "third.test", Fields: map[string]string{"rcpt_rate": "3/s"}, Reason: "ticket 3"})
	v.send("GET", "/throttles/live", nil, "If-None-Match", tag).Says(t, 200, "ticket 3", "a new override")
	g.Book.Away.Store(true)
	if a := v.get("/throttles/live"); a.Status != 200 || !strings.Contains(a.Body, "The ledger isn't answering") || strings.Contains(a.Body, "Each one is listed here") {
		t.Errorf("without the ledger: %d %s", a.Status, a.Body)
	}
}

// TestASessionBelongsToTheProcessThatMadeIt copies the cookie of a session and signs the session out. The cookie then
// opens nothing, not even at a node with the same token, as after a restart.
func TestASessionBelongsToTheProcessThatMadeIt(t *testing.T) {
	one, two := pagetest.Start(t), pagetest.Start(t) // they share a token
	eve := visit(t, one, "eve", false)
	copied := eve.cookie
	effort.Is(t, (&visitor{t: t, g: two, cookie: copied}).get("/").Status, 303, "another node takes the session")
	ben := visit(t, one, "ben", false)
	eve.send("POST", "/sign-out", url.Values{})
	effort.Is(t, (&visitor{t: t, g: one, cookie: copied}).get("/").Status, 303, "signed out")
	effort.MustBe(t, ben.get("/").Status, 200, "somebody else's session")
}

// TestNodesOfOneMachineKeepTheirSessionsApart gives one browser the cookies of two nodes and of unknown hosts.
func TestNodesOfOneMachineKeepTheirSessionsApart(t *testing.T) {
	one, two := pagetest.Start(t), pagetest.Start(t)
	a, b := visit(t, one, "eve", false), visit(t, two, "eve", false)
	names := []string{cookieOf(strings.TrimPrefix(one.URL, "http://")), cookieOf(strings.TrimPrefix(two.URL, "http://"))}
	both := names[0] + "=" + a.cookie + "; " + names[1] + "=" + b.cookie
	for _, g := range []*pagetest.Rig{one, two} {
		v := &visitor{t: t, g: g}
		effort.Is(t, v.send("GET", "/", nil, "Cookie", both).Status, 200, "with the cookies of both nodes")
	}
	for host, want := range map[string]string{"127.0.0.1": cookieName, "127.0.0.1:07947": cookieName + "-7947", "[::1]:80": cookieName + "-80"} {
		v := &visitor{t: t, g: one}
		got := v.send("POST", one.Link("eve", false), url.Values{}, "Host", host)
		set := strings.Join(got.Header.Values("Set-Cookie"), "\n")
		effort.ErrorIf(t, !strings.HasPrefix(set, want+"="), "at %s: %s", host, set)
	}
}

// land opens a link and returns where it leads.
func (v *visitor) land() string {
	v.t.Helper()
	return v.send("POST", v.g.Link("eve", false), url.Values{}).Header.Get("Location")
}

func TestWhoSignsInLandsOnThePageThatTheyAskedFor(t *testing.T) {
	g := pagetest.Start(t)
	for asked, want := range map[string]string{"/": "/", "/throttles?name=mx.slow.test&field=pause": "", "/receivers/mx.slow.test": "",
		"/?find=uni&state=": "", "/receivers/a%2Fb": "", "/verifications/" + g.Open.ID.String(): "", "/receivers/live": "/", "/nowhere": "/"} {
		if want == "" {
			want = asked
		}
		v := &visitor{t: t, g: g}
		a := v.get(asked)
		to := a.Header.Get("Location")
		effort.ErrorIf(t, a.Status == 303 && to != "/sign-in", "%s leads to %s", asked, to)
		v.get("/sign-in")
		effort.Is(t, v.land(), want, fmt.Sprintf("after %s", asked))
		effort.Is(t, v.next, "", fmt.Sprintf("after %s the browser still remembers", asked))
		v.cookie = ""
		effort.Is(t, v.land(), "/", "a page is landed on twice")
	}
	v := &visitor{t: t, g: g}
	v.get("/cluster")
	v.get("/")
	effort.Is(t, v.land(), "/", "the page that was asked for last is the first one, and not")
}

func TestTheLinkOfAPartThatWasSignedOutReturns(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	g.Later(2 * time.Hour)
	effort.MustBe(t, v.get("/receivers/mx.slow.test/live").Status, 401, "the part")
	a := v.get("/sign-in?next=" + url.QueryEscape("/receivers/mx.slow.test")) // as the script writes the link
	to := a.Header.Get("Location")
	effort.ErrorIf(t, a.Status != 303 || to != "/sign-in", "%d to %s", a.Status, to)
	effort.Is(t, v.land(), "/receivers/mx.slow.test", "it leads to")
	if to := v.get("/sign-in?next=%2Fcluster").Header.Get("Location"); to != "/cluster" { // with a session
		t.Errorf("who is signed in is led to %s", to)
	}
}

func TestNobodyIsLedElsewhereAfterSigningIn(t *testing.T) {
	g := pagetest.Start(t)
	for _, to := range []string{"//evil.test", "//evil.test/cluster", "///evil.test", "/\\evil.test", "\\\\evil.test", "https://evil.test/",
		"https:/cluster", "javascript:alert(1)", "evil.test", "", "/sign-in", "/sign-out", "/link/abc", "/assets/app.css", "/receivers/live",
		"/throttles/preview", "/throttles/set", "/v1/receivers", "/metrics", "/nowhere", "/cluster\r\nSet-Cookie: a=b", "/cluster\x00", "/cluster /",
		"/cluster/../sign-out", "/../cluster", "//cluster", "/./cluster", "/%2fevil.test", "/%5cevil.test", "/cluster#x\n", "/receivers/é",
		"/?find=" + strings.Repeat("a", 2000), "/@evil.test", "http://127.0.0.1/cluster"} {
		v := &visitor{t: t, g: g, next: base64.RawURLEncoding.EncodeToString([]byte(to))}
		effort.Is(t, v.land(), "/", fmt.Sprintf("the cookie %q leads to", to))
		v = &visitor{t: t, g: g}
		if a := v.get("/sign-in?next=" + url.QueryEscape(to)); a.Status == 303 && a.Header.Get("Location") != "/sign-in" || v.next != "" {
			t.Errorf("next=%q: %d to %s, remembered %s", to, a.Status, a.Header.Get("Location"), v.next)
		}
		v = visit(t, g, "eve", false)
		effort.Is(t, v.get("/sign-in?next="+url.QueryEscape(to)).Header.Get("Location"), "/", "next", to,
			"with a session leads")
	}
	v := &visitor{t: t, g: g, next: "%%%"}
	effort.Is(t, v.land(), "/", "a cookie that is none leads to")
}

func holds(t *testing.T, g *pagetest.Rig, source string) (found []ledger.ThrottleOverride) {
	t.Helper()
	for _, o := range g.Overrides(t) {
		if o.Key == "source:"+source {
			found = append(found, o)
		}
	}
	return found
}

func TestASourceIsPausedDrainedAndResumed(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	list := v.get("/sources")
	_, page := v.follow(list, "/sources/change?")
	for _, want := range []string{"Pause 192.0.2.7", "node-1", "have no other source in use", `name="for"`, `name="reason"`} {
		effort.Has(t, page.Body, want, "the page that asks")
	}
	effort.MustBe(t, len(holds(t, g, "192.0.2.7")), 0, "asking set overrides")
	for to, want := range map[string]string{"pause": "yes", "drain": "drain"} {
		form := url.Values{"form": {uuid.NewString()}, "source": {"192.0.2.7"}, "to": {to}, "for": {"2h"}, "reason": {"listed"}}
		for range 2 {
			if a := v.send("POST", "/sources/change", form); a.Status != 303 || a.Header.Get("Location") != "/sources" {
				t.Fatalf("%s: %d %s", to, a.Status, a.Body)
			}
		}
		held := holds(t, g, "192.0.2.7")
		effort.FatalIf(t, len(held) != 1 || held[0].Fields["pause"] != want || len(held[0].Fields) != 1 ||
			held[0].Author != "eve" || held[0].Reason != "listed" ||
			held[0].Expires.Sub(held[0].Created) != 2*time.Hour, "%s: %+v", to, held)
		resume := url.Values{"source": {"192.0.2.7"}, "to": {"resume"}}
		if a := v.send("POST", "/sources/change", resume); a.Status != 422 || len(holds(t, g, "192.0.2.7")) != 1 {
			t.Errorf("resumed without a reason: %d", a.Status)
		}
		resume.Set("reason", "delisted")
		for range 2 {
			v.send("POST", "/sources/change", resume).Is(t, 303, "resume")
		}
		effort.Is(t, len(holds(t, g, "192.0.2.7")), 0, "hold after it was resumed")
	}
}

// TestTheSourceThatTheSystemChooses: this source has no address, and its rules have the name "source:".
func TestTheSourceThatTheSystemChooses(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	list := v.get("/sources")
	effort.Lacks(t, list.Body, "source=default&amp;to=pause", "a source that is paused can be paused")
	effort.Has(t, list.Body, `href="/throttles?name=source%3A">default`, "its rules cannot be looked at")
	_, page := v.follow(list, "/sources/change?source=default&to=resume")
	effort.Is(t, page.Status, 200)
	effort.Has(t, page.Body, "Resume default")
	form := url.Values{"form": {uuid.NewString()}, "source": {"default"}, "to": {"drain"}, "for": {"1h"}, "reason": {"x"}}
	a := v.send("POST", "/sources/change", form)
	effort.FatalIf(t, a.Status != 303 || len(holds(t, g, "")) != 1, "%d %s", a.Status, a.Body)
	form.Set("to", "resume")
	a = v.send("POST", "/sources/change", form)
	effort.ErrorIf(t, a.Status != 303 || len(holds(t, g, "")) != 0, "%d %s", a.Status, a.Body)
}

func TestWhatIsWrongWithAChangeOfASourceIsSaid(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	for field, wrong := range map[string][]string{"for": {"", "soon", "1000d", "500ms"}, "reason": {"", strings.Repeat("x", 300)}, "form": {"x"}} {
		for _, text := range wrong {
			form := url.Values{"form": {uuid.NewString()}, "source": {"192.0.2.7"}, "to": {"pause"}, "for": {"2h"}, "reason": {"listed"}}
			form.Set(field, text)
			v.send("POST", "/sources/change", form).Says(t, 422, `id="problem"`, field, text)
		}
	}
	for _, path := range []string{"/sources/change", "/sources/change?source=192.0.2.9&to=pause", "/sources/change?source=192.0.2.7&to=explode"} {
		effort.Is(t, v.get(path).Status, 404, path)
	}
	form := url.Values{"form": {uuid.NewString()}, "source": {"192.0.2.7"}, "to": {"explode"}, "for": {"2h"}, "reason": {"x"}}
	effort.Is(t, v.send("POST", "/sources/change", form).Status, 404, "a change that is none")
	effort.Is(t, len(g.Overrides(t)), 1, "overrides hold")
}

// TestAnOverrideOfMoreThanPauseIsNotEnded sets an override of several fields, as the command line can.
func TestAnOverrideOfMoreThanPauseIsNotEnded(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	g.SetOverride(t, ledger.ThrottleOverride{ID: uuid.New(), Key: "source:192.0.2.8", Reason: "ticket <b>",
		Fields: map[string]string{"pause": "yes", "source_per_day": "10"}})
	a := v.send("POST", "/sources/change", url.Values{"source": {"192.0.2.8"}, "to": {"resume"}, "reason": {"over"}})
	effort.ErrorIf(t, a.Status != 422 || !strings.Contains(a.Body, "still paused by an override") ||
		!strings.Contains(a.Body, "ticket &lt;b&gt;"), "%d %s", a.Status, a.Body)
	effort.Is(t, len(holds(t, g, "192.0.2.8")), 1, "hold")
}

func TestHealthShowsEveryNode(t *testing.T) {
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	page := v.get("/health").Body
	at := -1
	for _, want := range []string{"The ledger answers", "Node node-3 isn't answering", "This node, node-1", "Port 25 is closed &lt;here&gt;", "Ask the provider to open it.",
		"Node node-2", "It checks no addresses.", "no name &lt;b&gt;", "Ask the owner of the network for a name.", "softfail", "Show all: 1 other check",
		"replies since the start had words that no rule knows",
		"Node node-4", "It checks addresses.", "Show all: nothing fails, 1 check", "3 ms"} {
		i := strings.Index(page[at+1:], want)
		if i < 0 {
			t.Fatalf("the page has no %q behind\n%s", want, page[:at+1])
		}
		at += 1 + i
	}
	g.Book.Away.Store(true)
	g.Alone()
	a := v.get("/health")
	for _, want := range []string{"Other nodes are not shown", "This node", "Ask the provider to open it."} {
		effort.Is(t, a.Status, 200, "alone")
		effort.Has(t, a.Body, want, "alone")
	}
	effort.Lacks(t, a.Body, "Ask the owner of the network", "it shows a node that was not asked")
	if banner := v.get("/throttles").Body; !strings.Contains(banner, "Node node-2 can't check addresses.") || !strings.Contains(banner, `<a href="/health">What to do</a>`) {
		t.Error("the banner does not lead to the page")
	}
}
