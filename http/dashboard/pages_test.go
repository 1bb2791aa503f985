package dashboard_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/net/html"

	"rollcall/config/effort"
	"rollcall/http/dashboard"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

// hostile is a customer's text that pages must show only as text.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'{{.}}javascript:alert(3)`

// everyPage returns the pages that can be seen, by name.
func everyPage(g *rig) map[string]answer {
	v := g.verification(hostile+".csv", 4, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	uploading := g.create(hostile, 10)
	w := "/w/" + g.workspace.String()
	owner := g.as["owner"]
	g.t.(*testing.T).Helper()
	all := map[string]answer{
		"sign-in": g.as["nobody"].get("/sign-in?next=" + url.QueryEscape(hostile)), "you": owner.get("/you"), "list": owner.get(w),
		"list with filters": owner.get(w + "?kind=single&state=failed"), "empty": g.as["stranger"].get("/w/" + g.other.String()),
		"detail": owner.get(w + "/verifications/" + v.ID.String()), "uploading": owner.get(w + "/verifications/" + uploading.ID.String()),
		"live": owner.get(w + "/verifications/" + v.ID.String() + "/live"), "upload": owner.get(w + "/upload"),
		"invitation": g.as["nobody"].get("/link/" + string(g.invite("new@acme.test", g.workspace, ledger.Member))),
		"known":      g.as["nobody"].get("/link/" + string(g.invite("viewer@acme.test", g.workspace, ledger.Member))),
		"not found":  owner.get("/nothing"), "forbidden": g.as["viewer"].get(w + "/upload"),
		"wrong": g.as["nobody"].post("/sign-in", "form", uuid.NewString(), "email", hostile, "password", hostile, "next", hostile),
	}
	form, secret := owner.setUp()
	all["codes"], all["no code"] = owner.get("/you/codes"), owner.post("/you/codes", "form", form, "password", password)
	all["codes are on"] = owner.post("/you/codes", "form", form, "password", password, "code", g.code(secret, 0))
	all["you with codes"] = owner.get("/you")
	all["new codes"] = owner.post("/you/codes/new", "form", uuid.NewString(), "password", password, "code", g.code(secret, 1))
	all["code"] = g.as["nobody"].signIn("owner@acme.test", password, hostile)
	all["wrong code"] = g.give(g.step(), hostile)
	return all
}

// providerPages returns the pages that look different with a provider.
func providerPages(t *testing.T) map[string]answer {
	t.Helper()
	g, p := withProvider(t)
	without := g.oidcUser(p, "s-1", "sso@acme.test")
	return map[string]answer{"sign-in with a provider": g.as["nobody"].get("/sign-in"), "you with a provider": g.as["owner"].get("/you"),
		"you without a password": without.get("/you"), "refused by a provider": g.start(p, "/").as("s-2", "nobody@acme.test"),
		"an invitation with a provider": g.as["nobody"].get("/link/" + string(g.invite("new@acme.test", g.workspace, ledger.Member))),
		"of who has no password":        g.as["nobody"].get("/link/" + string(g.invite("sso@acme.test", g.other, ledger.Member)))}
}

func TestNoPageHasScriptsOrStylesOfItsOwn(t *testing.T) {
	g := newRig(t)
	pages := everyPage(g)
	maps.Copy(pages, providerPages(t))
	for name, a := range pages {
		root := effort.Must(html.Parse(strings.NewReader(a.Body)))(t)
		seen := 0
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			seen++
			attributes := map[string]string{}
			for _, at := range n.Attr {
				attributes[at.Key] = at.Val
				value := strings.ToLower(strings.TrimSpace(at.Val))
				if at.Key == "style" || strings.HasPrefix(at.Key, "on") || strings.HasPrefix(at.Key, "data-hx-on") ||
					strings.HasPrefix(value, "javascript:") && at.Key != "value" {
					t.Errorf("%s: <%s %s=%q>", name, n.Data, at.Key, at.Val)
				}
				if (at.Key == "href" || at.Key == "src" || at.Key == "action") && !strings.HasPrefix(at.Val, "/") && at.Val != "#main" &&
					at.Val != "mailto:help@rollcall.test" {
					t.Errorf("%s: <%s %s=%q> leads elsewhere", name, n.Data, at.Key, at.Val)
				}
			}
			effort.ErrorIf(t, n.Data == "style" || n.Data == "iframe" || n.Data == "object" || n.Data == "script" &&
				(n.FirstChild != nil || !strings.HasPrefix(attributes["src"], "/assets/")), "%s: a <%s> of its own",
				name, n.Data)
			effort.Not(t, n.Data, "img", name, "the hostile text became an element")
			if n.Data == "form" && attributes["method"] == "get" && strings.Contains(attributes["action"], "link") {
				t.Errorf("%s: a form that changes something uses GET", name)
			}
		}
		effort.ErrorIf(t, seen < 5, "%s: only %d elements in %.200s", name, seen, a.Body)
	}
}

func TestEveryPageHasItsHeadersAndParts(t *testing.T) {
	g := newRig(t)
	for name, a := range everyPage(g) {
		for header, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store", "Access-Control-Allow-Origin": "",
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' " +
				"http://127.0.0.1:7; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; " +
				"trusted-types default",
		} {
			effort.Is(t, a.Header.Get(header), want, fmt.Sprintf("%s: %s", name, header))
		}
		referrer := "same-origin"
		if name == "invitation" || name == "known" {
			referrer = "no-referrer"
		}
		effort.Is(t, a.Header.Get("Referrer-Policy"), referrer, fmt.Sprintf("%s: Referrer-Policy", name))
		if name == "live" {
			continue
		}
		for _, part := range []string{"<h1", "<main id=\"main\"", "lang=\"en\"", "class=\"skip\"", a.Header.Get("X-Request-Id"),
			"mailto:help@rollcall.test", " · Rollcall</title>"} {
			effort.Is(t, strings.Count(a.Body, part), 1, fmt.Sprintf("%s: %q stands times in it", name, part))
		}
	}
}

func TestPagesStaySmall(t *testing.T) {
	g := newRig(t)
	sizes := 0
	assets := web.NewAssets()
	for _, name := range assets.URLs() {
		a := g.as["nobody"].get(name, "Accept-Encoding", "gzip")
		effort.ErrorIf(t, a.Status != 200 || a.Header.Get("Content-Encoding") != "gzip" ||
			a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable", "%s: %d %v", name, a.Status,
			a.Header)
		sizes += len(a.Body)
		plain := g.as["nobody"].get(name, "Accept-Encoding", "gzip;q=0")
		sum := sha256.Sum256([]byte(plain.Body))
		effort.Is(t, plain.Header.Get("Content-Encoding"), "")
		effort.Has(t, name, hex.EncodeToString(sum[:8]))
	}
	for range 50 {
		g.create("a-file-with-a-name-of-usual-length.csv", 10)
	}
	page := g.as["owner"].get("/w/" + g.workspace.String())
	effort.Is(t, strings.Count(page.Body, "<tr>"), 51, "the list has rows")
	total := sizes + len(page.Body)/3
	effort.ErrorIf(t, total > 60_000, "all assets and a page take about %d bytes, at most 60000 are wanted", total)
	t.Logf("all assets take %d bytes compressed, a full list %d uncompressed", sizes, len(page.Body))
}

func TestTheVendoredLibraryIsTheOneThatWasReleased(t *testing.T) {
	text := effort.Must(os.ReadFile("../web/assets/htmx-4.0.1.min.js"))(t)
	sum := sha256.Sum256(text)
	const released = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130" // of npm htmx.org@4.0.1, dist/htmx.min.js
	effort.Is(t, hex.EncodeToString(sum[:]), released, "htmx has checksum")
	note, err := os.ReadFile("../web/assets/LICENSES.md")
	if err != nil || !strings.Contains(string(note), released) || !strings.Contains(string(note), "Zero-Clause BSD") {
		t.Errorf("assets/LICENSES.md does not note licence and checksum: %v", err)
	}
}

func TestTheLivePartChangesWhenTheVerificationDoes(t *testing.T) {
	g := newRig(t)
	g.now.Store(0) // so that the file has just begun
	v := g.verification("list.csv", 3, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	base := "/w/" + g.workspace.String() + "/verifications/" + v.ID.String()
	viewer := g.as["viewer"]
	first := viewer.get(base + "/live")
	tag := first.Header.Get("ETag")
	effort.ErrorIf(t, first.Status != 200 || tag == "" || !strings.Contains(first.Body, `data-hx-trigger="every 2s"`) ||
		!strings.Contains(first.Body, `data-etag="`+html.EscapeString(tag)) || len(first.Body) > 8192,
		"%d %q, %d bytes: %s", first.Status, tag, len(first.Body), first.Body)
	effort.Has(t, viewer.get(base).Body, first.Body, "the page does not hold the part as it is asked for")
	same := viewer.get(base+"/live", "If-None-Match", tag)
	effort.ErrorIf(t, same.Status != 304 || same.Body != "", "unchanged: %d %q", same.Status, same.Body)
	effort.Must(g.book.Cancel(t.Context(), g.workspace, v.ID))(t)
	last := viewer.get(base+"/live", "If-None-Match", tag)
	effort.ErrorIf(t, !strings.Contains(last.Body, "cancelling") || last.Header.Get("ETag") == tag,
		"while it is cancelled: %d %s", last.Status, last.Body)
	effort.Must(g.book.FinishCancel(t.Context(), g.held))(t)
	last = viewer.get(base + "/live")
	if last.Status != 200 || strings.Contains(last.Body, "data-hx") || !strings.Contains(last.Body, "cancelled") {
		t.Errorf("the part of a final verification still refreshes: %d %s", last.Status, last.Body)
	}
	effort.Lacks(t, viewer.get(base).Body, "htmx", "the page of a final verification loads the library")
}

func TestUploadsAreCreatedOnceAndRecovered(t *testing.T) {
	g := newRig(t)
	path := "/w/" + g.workspace.String() + "/verifications"
	headers := []string{"Idempotency-Key", uuid.NewString(), "X-Upload-Content-Length", "10", "X-Upload-Filename", "my%20list.csv"}
	first := g.as["member"].send("POST", path, nil, headers...)
	again := g.as["owner"].send("POST", path, nil, headers...)
	if first.Status != 201 || again.Status != 200 || first.Body != again.Body || !strings.Contains(first.Body, "/upload/") {
		t.Fatalf("%d %s, then %d %s", first.Status, first.Body, again.Status, again.Body)
	}
	id := regexp.MustCompile(`"id":"([0-9a-f-]+)"`).FindStringSubmatch(first.Body)[1]
	g.as["member"].get(path+"/"+id+"/upload").Says(t, 200, `"upload":{"method":"PUT"`, "its state")
	g.as["member"].send("POST", path, nil, "Idempotency-Key", "x").Says(t, 422, "invalid_idempotency_key", "a bad identity")
	a := g.as["member"].send("POST", path, nil, append([]string{"Sec-Fetch-Site", "cross-site"}, headers...)...)
	effort.ErrorIf(t, a.Status != 403, "from another site: %d", a.Status)
	a = g.as["stranger"].get("/w/" + g.other.String() + "/verifications/" + id + "/upload")
	effort.ErrorIf(t, a.Status != 404, "by its id from another workspace: %d %s", a.Status, a.Body)
	if page := g.as["viewer"].get(path + "/" + id).Body; !strings.Contains(page, "my list.csv") || strings.Contains(page, "/upload/") {
		t.Error("a viewer's page lacks the name, or has the upload URL")
	}
}

func TestDownloadsHoldWhatWasAskedFor(t *testing.T) {
	g := newRig(t)
	v := g.verification("mü;list.csv", 3, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists),
		result(1, "=b@x.test", smtp.Invalid, smtp.MailboxNotFound), result(2, "c@x.test", smtp.Invalid, smtp.MailboxFull))
	path := "/w/" + g.workspace.String() + "/verifications/" + v.ID.String() + "/results.csv"
	for query, want := range map[string]struct{ emails, name string }{
		"":                          {"a@ '=b@ c@", "m__list-results.csv"},
		"?outcome=invalid":          {"'=b@ c@", "m__list-results-invalid.csv"},
		"?outcome=&reason=":         {"a@ '=b@ c@", "m__list-results.csv"},
		"?reason=mailbox_full":      {"c@", "m__list-results-mailbox_full.csv"},
		"?for=program":              {"a@ =b@ c@", "m__list-results.csv"},
		"?for=spreadsheet":          {"", ""},
		"?outcome=valid&reason=eai": {"", ""}, "?for=other": {"", ""}, "?outcome=none": {"", ""},
	} {
		a := g.as["viewer"].get(path + query)
		if want.name == "" {
			effort.Is(t, a.Status, 422, query)
			effort.Has(t, a.Body, "</html>", query)
			continue
		}
		var emails []string
		for line := range strings.Lines(a.Body) {
			if email, _, found := strings.Cut(line, "x.test"); found {
				emails = append(emails, email)
			}
		}
		if got := strings.Join(emails, " "); a.Status != 200 || got != want.emails ||
			a.Header.Get("Content-Disposition") != `attachment; filename="`+want.name+
				`"; filename*=UTF-8''m%C3%BC%3B`+want.name[3:] ||
			a.Header.Get("Content-Type") != "text/csv" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %q %v", query, a.Status, got, a.Header)
		}
	}
	lines, err := g.book.WorkspaceLog(t.Context(), ledger.WorkspaceLogQuery{Workspace: g.workspace, Limit: 100})
	downloads := 0
	for _, l := range lines {
		if l.Action == "results downloaded" && l.Email == "viewer@acme.test" && l.Subject == v.ID.String() {
			downloads++
		}
	}
	effort.ErrorIf(t, err != nil || downloads != 5,
		"%d downloads are in the log of the workspace, want 5: %v", downloads, err)
}

func TestTheListIsFilteredAndGoesOn(t *testing.T) {
	g := newRig(t)
	base := "/w/" + g.workspace.String()
	for i := range 60 {
		v := g.create(fmt.Sprintf("file-%02d.csv", i), 10)
		if i%2 == 0 {
			effort.Must(g.book.Cancel(t.Context(), g.workspace, v.ID))(t)
		}
	}
	names := func(page string) []string { return regexp.MustCompile(`file-\d\d`).FindAllString(page, -1) }
	seen := map[string]bool{}
	page := g.as["viewer"].get(base).Body
	for {
		for _, n := range names(page) {
			seen[n] = true
		}
		older := regexp.MustCompile(`href="([^"]+)">Next page`).FindStringSubmatch(page)
		if older == nil {
			break
		}
		page = g.as["viewer"].get(html.UnescapeString(older[1])).Body
	}
	effort.Is(t, len(seen), 60)
	for query, want := range map[string]int{"?state=cancelled": 30, "?state=open": 30, "?state=failed": 0, "?kind=single": 0,
		"?kind=bulk&state=open": 30} {
		effort.Is(t, len(names(g.as["viewer"].get(base+query).Body)), want, query, "files")
	}
	for _, query := range []string{"?kind=x", "?after=x", "?after=zzz.x", "?after=."} {
		effort.Is(t, g.as["viewer"].get(base+query).Status, 404, query)
	}
}

func TestALedgerThatIsAwayGetsAPageThatLoadsItselfAgain(t *testing.T) {
	g := newRig(t)
	g.book.away.Store(true)
	a := g.as["owner"].get("/w/" + g.workspace.String())
	effort.ErrorIf(t, a.Status != 503 || a.Header.Get("Retry-After") != "5" ||
		!strings.Contains(a.Body, `http-equiv="refresh" content="5"`), "%d %v %s", a.Status, a.Header, a.Body)
	g.as["nobody"].get("/status").Says(t, 200, "Something doesn't work")
}

func TestSmallThings(t *testing.T) {
	for text, want := range map[string]string{"/w/x?a=b": "/w/x?a=b", "": "/", "//evil.test": "/", "///evil.test": "/", "https://evil.test": "/", "/\\evil.test": "/",
		"javascript:alert(1)": "/", "/a\r\nb": "/", "evil": "/", "/\t/evil.test": "/"} {
		effort.Is(t, dashboard.LocalPath(text), want, fmt.Sprintf("next %q", text))
	}
	firefox := "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	for agent, want := range map[string]string{firefox: "Firefox on Linux", "": "Another browser", "<script>": "Another browser"} {
		effort.Is(t, dashboard.BrowserName(agent), want, agent)
	}
}

func TestPagesSayWhoMadeAVerification(t *testing.T) {
	g := newRig(t)
	path := "/w/" + g.workspace.String()
	made := g.as["member"].send("POST", path+"/verifications", nil, "Idempotency-Key", uuid.NewString(),
		"X-Upload-Content-Length", "10", "X-Upload-Filename", "by-hand.csv")
	effort.MustBe(t, made.Status, 201, made.Body)
	effort.Must(g.book.CreateKey(t.Context(), ledger.Key{ID: "abcdefabcdef", Workspace: g.workspace, Label: "billing"}))(t)
	for _, key := range []string{"abcdefabcdef", "unknownunkno"} {
		if _, _, err := g.book.Create(ledger.WithActor(t.Context(), "key:"+key), ledger.NewVerification{ID: uuid.New(),
			Workspace: g.workspace, Identity: uuid.New(), Filename: "x.csv", Bytes: 10, BytesMax: 1 << 20,
			Limits: ledger.Limits{Open: 1000, Stored: 1 << 30, Unpaid: 1000}, UploadExpiry: 1 << 40}); err != nil {
			t.Fatal(err)
		}
	}
	list := g.as["viewer"].get(path).Body
	for _, by := range []string{"member@acme.test", "key billing", "key unknownunkno"} {
		effort.Is(t, strings.Count(list, ">"+by+"</td>"), 1, "the list does not say", by, "once")
	}
	id := regexp.MustCompile(`"id":"([0-9a-f-]+)"`).FindStringSubmatch(made.Body)[1]
	effort.Has(t, g.as["viewer"].get(path+"/verifications/"+id).Body, " by member@acme.test</span>",
		"the page of the verification does not say who made it")
}
