package pagetest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// pageBytes bounds a page's HTML. Its assets come to 60 KB at most: TestPagesStaySmall in http/dashboard.
const pageBytes = 100 << 10

// shown is a page in one state: its route, and a function that returns its path.
type shown struct {
	name   string
	route  string      // as access.go of the pages has it
	role   ledger.Role // role of the person who opens it; "": nobody is signed in
	path   func(p *place) string
	status int // 200 when it is 0
	query  string
}

func plain(path string) func(*place) string  { return func(*place) string { return path } }
func within(path string) func(*place) string { return func(p *place) string { return p.path + path } }

// file gives a page of a file of total addresses, of which some have results.
func file(total int64, done int, page string) func(*place) string {
	return func(p *place) string { return p.of(p.verifying("contacts.csv", total, results(done)...)) + page }
}

// detail makes a verification and gives its page.
func detail(make func(p *place) ledger.Verification) func(*place) string {
	return func(p *place) string { return p.of(make(p)) }
}

const detailRoute = "GET /w/{ws}/verifications/{id}"

// table lists every page in each state that looks different. Add one line for a new one. Each is checked in light and
// dark, in windows of 1280, 640 and 390 px.
var table = []shown{
	{name: "sign-in", route: "GET /sign-in", path: plain("/sign-in")},
	{name: "link-invitation", route: "GET /link/{token}", path: func(p *place) string {
		return p.link(ledger.InviteLink, "new@acme.test", ledger.Member)
	}},
	{name: "link-password", route: "GET /link/{token}", path: func(p *place) string {
		return p.link(ledger.PasswordLink, p.join(ledger.Viewer).email, "")
	}},
	{name: "link-known", route: "GET /link/{token}", path: func(p *place) string {
		who := p.workspace(p.t, "elsewhere", 0).join(ledger.Viewer)
		return p.link(ledger.InviteLink, who.email, ledger.Owner)
	}},
	{name: "link-used", route: "GET /link/{token}", path: plain("/link/used"), status: 404},
	{name: "you", route: "GET /you", role: ledger.Viewer, path: plain("/you")},
	{name: "you-done", route: "GET /you", role: ledger.Owner, path: plain("/you?done=password")},
	{name: "you-codes", route: "GET /you", role: ledger.Owner, path: func(p *place) string { p.codesOn(); return "/you" }},
	{name: "list-empty", route: "GET /w/{ws}", role: ledger.Member, path: within("")},
	{name: "list-empty-viewer", route: "GET /w/{ws}", role: ledger.Viewer, path: within("")},
	{name: "list", route: "GET /w/{ws}", role: ledger.Member, path: func(p *place) string { p.everyState(); return p.path }},
	{name: "list-filtered", route: "GET /w/{ws}", role: ledger.Viewer, path: func(p *place) string {
		p.cancelled("list-november.csv")
		return p.path + "?state=failed"
	}},
	{name: "upload", route: "GET /w/{ws}/upload", role: ledger.Member, path: within("/upload")},
	{name: "upload-refused", route: "GET /w/{ws}/upload", role: ledger.Viewer, path: within("/upload"), status: 403},
	{name: "detail-uploading", route: detailRoute, role: ledger.Member, path: detail(func(p *place) ledger.Verification {
		return p.uploading("list-november.csv", 900_000)
	})},
	{name: "detail-preparing", route: detailRoute, role: ledger.Owner, path: detail(func(p *place) ledger.Verification {
		return p.preparing("list-november.csv")
	})},
	{name: "detail-verifying", route: detailRoute, role: ledger.Member, path: file(900, 63, "")},
	{name: "detail-no-credits", route: detailRoute, role: ledger.Member, path: file(900_000, 0, "")},
	{name: "detail-completed", route: detailRoute, role: ledger.Viewer, path: file(63, 63, "")},
	{name: "detail-failed", route: detailRoute, role: ledger.Owner, path: detail(func(p *place) ledger.Verification {
		return p.failed("a-name-of-a-file-that-is-longer-than-a-line-of-a-narrow-window-can-hold.csv")
	})},
	{name: "detail-cancelled", route: detailRoute, role: ledger.Owner, path: detail(func(p *place) ledger.Verification {
		return p.cancelled("contacts.csv")
	})},
	{name: "cancel", route: "GET /w/{ws}/verifications/{id}/cancel", role: ledger.Member, path: file(900, 63, "/cancel")},
	{name: "list-no-credits", route: "GET /w/{ws}", role: ledger.Member, path: func(p *place) string {
		p.verifying("contacts.csv", 900_000)
		return p.path
	}},
	{name: "check", route: "GET /w/{ws}/check", role: ledger.Member, path: within("/check")},
	{name: "check-done", route: detailRoute, role: ledger.Member, path: detail((*place).checked)},
	{name: "results", route: "GET /w/{ws}/verifications/{id}/results", role: ledger.Viewer, path: file(63, 63, "/results")},
	{name: "reasons", route: "GET /w/{ws}/verifications/{id}/reasons", role: ledger.Viewer, path: file(63, 63, "/reasons")},
	{name: "address", route: "GET /w/{ws}/verifications/{id}/addresses/{ordinal}", role: ledger.Viewer, path: func(p *place) string {
		return p.of(p.checked()) + "/addresses/0"
	}},
	{name: "credits-none", route: "GET /w/{ws}/credits", role: ledger.Viewer, path: within("/credits")},
	{name: "credits", route: "GET /w/{ws}/credits", role: ledger.Viewer, path: func(p *place) string {
		p.everyState()
		return p.path + "/credits"
	}},
	{name: "keys-none", route: "GET /w/{ws}/keys", role: ledger.Owner, path: within("/keys")},
	{name: "keys", route: "GET /w/{ws}/keys", role: ledger.Owner, path: func(p *place) string { p.keys(); return p.path + "/keys" }},
	{name: "key-revoke", route: "GET /w/{ws}/keys/{key}", role: ledger.Owner, path: func(p *place) string {
		return p.path + "/keys/" + p.keys()
	}},
	{name: "people", route: "GET /w/{ws}/people", role: ledger.Owner, path: func(p *place) string {
		p.join(ledger.Member)
		p.link(ledger.InviteLink, "late@acme.test", ledger.Viewer)
		return p.path + "/people"
	}},
	{name: "member", route: "GET /w/{ws}/people/{user}", role: ledger.Owner, path: func(p *place) string {
		return p.path + "/people/" + p.userID(p.join(ledger.Viewer).email)
	}},
	{name: "activity", route: "GET /w/{ws}/activity", role: ledger.Owner, path: func(p *place) string {
		p.keys()
		p.join(ledger.Member)
		return p.path + "/activity"
	}},
	{name: "codes", route: "GET /you/codes", role: ledger.Owner, path: plain("/you/codes")},
	{name: "docs", route: "GET /docs", path: plain("/docs")},
	{name: "docs-api", route: "GET /docs/{page}", path: plain("/docs/api")},
	{name: "status", route: "GET /status", path: plain("/status")},
	{name: "not-there", route: "GET /w/{ws}", role: ledger.Owner, path: plain("/w/nothing"), status: 404},
}

// noPage lists the GET routes without a page of their own, with the reasons.
var noPage = map[string]string{
	"GET /{$}":                                   "leads to another page",
	"GET /openapi.yaml":                          "a file",
	"GET /assets/{name}":                         "a file",
	"GET /oidc/start":                            "leads to the provider",
	"GET /w/{ws}/verifications/{id}/live":        "a part of a page, seen there",
	"GET /w/{ws}/verifications/{id}/upload":      "JSON for upload.js",
	"GET /w/{ws}/verifications/{id}/results.csv": "a download",
	"GET /w/{ws}/example.csv":                    "a download",
}

// codesOn switches codes on for everybody in the workspace. Every code is then wrong, because the stored state is
// invalid.
func (p *place) codesOn() {
	p.t.Helper()
	members, err := p.book.Members(p.t.Context(), p.id)
	for _, m := range members {
		var sessions []ledger.Session
		if sessions, err = p.book.Sessions(p.t.Context(), m.User, time.Hour); err == nil && len(sessions) == 1 {
			err = p.book.SetTOTP(p.t.Context(), m.User, "sealed", sessions[0].ID)
		}
	}
	effort.FatalIf(p.t, err != nil || len(members) == 0, "codes of %d members: %v", len(members), err)
}

// everyState fills a list with a verification in each state.
func (p *place) everyState() {
	p.verifying("list-november.csv", 900, results(612)...)
	p.verifying("contacts.csv", 63, results(63)...)
	p.failed("leads.csv")
	p.cancelled("old.csv")
	p.uploading("a-file-with-a-name-that-is-much-longer-than-its-column.csv", 33_500_000/64)
	p.verifying("big.csv", 900_000)
	p.preparing("new.csv")
}

func TestEveryPageIsInATable(t *testing.T) {
	for file, table := range map[string][]shown{"../access.go": table, "../operate/access.go": operatorTable} {
		text := effort.Must(os.ReadFile(file))(t)
		routes := regexp.MustCompile(`pattern: "(GET [^"]+)"`).FindAllStringSubmatch(string(text), -1)
		effort.FatalIf(t, len(routes) < 5, "only %d routes were found", len(routes))
		for _, r := range routes {
			shows := func(s shown) bool { return s.route == r[1] && s.status == 0 }
			if noPage[r[1]] == "" && !strings.HasSuffix(r[1], "/live") && !slices.ContainsFunc(table, shows) {
				t.Errorf("%s: %s is not in the table of pages", file, r[1])
			}
		}
	}
}

// served is a page as the server sends it.
type served struct {
	name, html string
}

func TestPages(t *testing.T) {
	t.Parallel()
	chromium(t)
	validate := module(t, "html-validate/bin/html-validate.mjs")
	n := theNode(t)
	var mu sync.Mutex
	var all []served
	t.Run("each", func(t *testing.T) {
		for _, s := range table {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				html := lookAt(t, n, s)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, served{s.name, html})
			})
		}
	})
	checkHTML(t, validate, all)
}

// lookAt checks one page in both colours and all widths, and returns its HTML.
func lookAt(t *testing.T, n *node, s shown) string {
	p := n.workspace(t, "acme", 1000)
	b := newTab(t, n)
	token := ""
	if s.role != "" {
		who := p.join(s.role)
		token = who.token
		b.as(who)
	}
	if s.status == 0 {
		s.status = http.StatusOK
	} else {
		b.bear(fmt.Sprintf("status of %d", s.status))
	}
	path := s.path(p)
	html, status := fetch(t, n.url+path, token)
	effort.Is(t, status, s.status, fmt.Sprintf("%s answers", path))
	lookOver(t, b, s.name, path)
	return html
}

// lookOver checks a page in both colours and all widths.
func lookOver(t *testing.T, b *tab, name, path string) {
	t.Helper()
	for _, width := range []int64{1280, 640, 390} {
		b.window(width, 900)
		if width == 1280 {
			b.goTo(path)
			b.axe()
		}
		b.fits()
		for _, colours := range []string{"light", "dark"} {
			b.prefers(colours)
			for _, v := range b.violations(colours == "dark") {
				t.Errorf("%s, %s, %d px: %s", name, colours, width, v)
			}
			b.shoot(fmt.Sprintf("%s-%s-%d", name, colours, width))
		}
	}
}

// axe loads axe-core into the page.
func (b *tab) axe() {
	b.t.Helper()
	source, err := os.ReadFile(module(b.t, "axe-core/axe.min.js"))
	b.must(err)
	eval[bool](b, string(source)+"; true")
}

// clean puts axe-core into the page that stands there, and fails for what it finds.
func (b *tab) clean(name string) {
	b.t.Helper()
	b.axe()
	for _, v := range b.violations(false) {
		b.t.Errorf("%s: %s", name, v)
	}
}

// violations returns what axe-core finds in the page that contains it: about colours only, or about everything.
func (b *tab) violations(colours bool) []string {
	b.t.Helper()
	only := ""
	if colours {
		only = `, runOnly: ["color-contrast"]`
	}
	return eval[[]string](b, `axe.run(document, { resultTypes: ["violations"]`+only+` }).then((r) => r.violations.flatMap((v) =>
		v.nodes.map((n) => v.id + ": " + v.help + ": " + n.html.slice(0, 200) + " " + (n.any[0] || n.all[0] || n.none[0] || {}).message)))`)
}

// fetch returns the page that a session gets.
func fetch(t testing.TB, url, token string) (string, int) {
	t.Helper()
	if token != "" {
		token = "__Host-rollcall=" + token
	}
	return fetchAs(t, url, token)
}

// checkHTML runs html-validate once on all pages. Its configuration leaves out rules that are matters of taste (a
// type for each button, role=region for scrolling boxes) and the rule about the length of titles, because titles
// contain names of files.
func checkHTML(t *testing.T, program string, all []served) {
	t.Helper()
	node, err := exec.LookPath("node")
	effort.OK(t, err, "there is no node: html-validate cannot run")
	folder := t.TempDir()
	for _, s := range all {
		effort.ErrorIf(t, len(s.html) > pageBytes, "%s has %d bytes, at most %d are allowed", s.name, len(s.html), pageBytes)
		effort.OK(t, os.WriteFile(filepath.Join(folder, s.name+".html"), []byte(s.html), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), node, program, "--config", "npm/.htmlvalidate.json", "--formatter", "json",
		filepath.Join(folder, "*.html")).Output()
	var files []struct {
		FilePath string
		Messages []struct {
			RuleID, Message string
			Line, Column    int
		}
	}
	failed := json.Unmarshal(out, &files)
	effort.FatalIf(t, failed != nil, "html-validate: %v, %v: %.300s", err, failed, out)
	for _, f := range files {
		for _, m := range f.Messages {
			t.Errorf("%s:%d:%d: %s: %s", filepath.Base(f.FilePath), m.Line, m.Column, m.RuleID, m.Message)
		}
	}
	effort.FatalIf(t, err != nil && len(files) == 0, "html-validate: %v", err)
}
