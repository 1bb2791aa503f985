package operate_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
)

// TestASessionBelongsToTheProcessThatMadeIt copies a cookie before its session is signed out: it opens nothing at a node that
// has the same token, as it would after a restart.
func TestASessionBelongsToTheProcessThatMadeIt(t *testing.T) {
	t.Parallel()
	one, two := pagetest.Start(t), pagetest.Start(t) // they share a token
	eve := visit(t, one, "eve", false)
	copied := eve.cookie
	effort.Is(t, (&visitor{t: t, g: two, cookie: copied}).get("/").status, 303, "another node takes the session")
	ben := visit(t, one, "ben", false)
	eve.send("POST", "/sign-out", url.Values{})
	effort.Is(t, (&visitor{t: t, g: one, cookie: copied}).get("/").status, 303, "signed out")
	effort.MustBe(t, ben.get("/").status, 200, "somebody else's session")
}

// TestNodesOfOneMachineKeepTheirSessionsApart gives one browser the cookies of two nodes, and of strange hosts.
func TestNodesOfOneMachineKeepTheirSessionsApart(t *testing.T) {
	t.Parallel()
	one, two := pagetest.Start(t), pagetest.Start(t)
	a, b := visit(t, one, "eve", false), visit(t, two, "eve", false)
	names := []string{cookieOf(strings.TrimPrefix(one.URL, "http://")), cookieOf(strings.TrimPrefix(two.URL, "http://"))}
	both := names[0] + "=" + a.cookie + "; " + names[1] + "=" + b.cookie
	for _, g := range []*pagetest.Rig{one, two} {
		v := &visitor{t: t, g: g}
		effort.Is(t, v.send("GET", "/", nil, "Cookie", both).status, 200, "with the cookies of both nodes")
	}
	for host, want := range map[string]string{"127.0.0.1": cookieName, "127.0.0.1:07947": cookieName + "-7947", "[::1]:80": cookieName + "-80"} {
		v := &visitor{t: t, g: one}
		got := v.send("POST", one.Link("eve", false), url.Values{}, "Host", host)
		set := strings.Join(got.header.Values("Set-Cookie"), "\n")
		effort.ErrorIf(t, !strings.HasPrefix(set, want+"="), "at %s: %s", host, set)
	}
}

// land opens a link and says where it leads.
func (v *visitor) land() string {
	v.t.Helper()
	return v.send("POST", v.g.Link("eve", false), url.Values{}).header.Get("Location")
}

func TestWhoSignsInLandsOnThePageThatTheyAskedFor(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	for asked, want := range map[string]string{"/": "/", "/throttles?name=mx.slow.test&field=pause": "", "/receivers/mx.slow.test": "",
		"/?find=uni&state=": "", "/receivers/a%2Fb": "", "/verifications/" + g.Open.ID.String(): "", "/receivers/live": "/", "/nowhere": "/"} {
		if want == "" {
			want = asked
		}
		v := &visitor{t: t, g: g}
		a := v.get(asked)
		to := a.header.Get("Location")
		effort.ErrorIf(t, a.status == 303 && to != "/sign-in", "%s leads to %s", asked, to)
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
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	g.Later(2 * time.Hour)
	effort.MustBe(t, v.get("/receivers/mx.slow.test/live").status, 401, "the part")
	a := v.get("/sign-in?next=" + url.QueryEscape("/receivers/mx.slow.test")) // as the script writes the link
	to := a.header.Get("Location")
	effort.ErrorIf(t, a.status != 303 || to != "/sign-in", "%d to %s", a.status, to)
	effort.Is(t, v.land(), "/receivers/mx.slow.test", "it leads to")
	if to := v.get("/sign-in?next=%2Fcluster").header.Get("Location"); to != "/cluster" { // with a session
		t.Errorf("who is signed in is led to %s", to)
	}
}

func TestNobodyIsLedElsewhereAfterSigningIn(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	for _, to := range []string{"//evil.test", "//evil.test/cluster", "///evil.test", "/\\evil.test", "\\\\evil.test", "https://evil.test/",
		"https:/cluster", "javascript:alert(1)", "evil.test", "", "/sign-in", "/sign-out", "/link/abc", "/assets/app.css", "/receivers/live",
		"/throttles/preview", "/throttles/set", "/v1/receivers", "/metrics", "/nowhere", "/cluster\r\nSet-Cookie: a=b", "/cluster\x00", "/cluster /",
		"/cluster/../sign-out", "/../cluster", "//cluster", "/./cluster", "/%2fevil.test", "/%5cevil.test", "/cluster#x\n", "/receivers/é",
		"/?find=" + strings.Repeat("a", 2000), "/@evil.test", "http://127.0.0.1/cluster"} {
		v := &visitor{t: t, g: g, next: base64.RawURLEncoding.EncodeToString([]byte(to))}
		effort.Is(t, v.land(), "/", fmt.Sprintf("the cookie %q leads to", to))
		v = &visitor{t: t, g: g}
		if a := v.get("/sign-in?next=" + url.QueryEscape(to)); a.status == 303 && a.header.Get("Location") != "/sign-in" || v.next != "" {
			t.Errorf("next=%q: %d to %s, remembered %s", to, a.status, a.header.Get("Location"), v.next)
		}
		v = visit(t, g, "eve", false)
		effort.Is(t, v.get("/sign-in?next="+url.QueryEscape(to)).header.Get("Location"), "/", "next", to,
			"with a session leads")
	}
	v := &visitor{t: t, g: g, next: "%%%"}
	effort.Is(t, v.land(), "/", "a cookie that is none leads to")
}
