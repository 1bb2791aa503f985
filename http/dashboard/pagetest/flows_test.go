package pagetest_test

import (
	"encoding/base32"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

func TestDownloads(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	b := newTab(t, p.node).as(p.join(ledger.Viewer))
	settled := results(10)
	v := p.verifying("contacts.csv", 20, settled...)
	folder := b.saves()
	b.goTo(p.of(v))
	if rows := download(b, folder, func() { b.press("Download all") }); len(rows) != 11 {
		t.Errorf("all results have %d rows, want a header and 10", len(rows))
	}
	// Their own list has other columns, other rows and other spellings, and is in what spreadsheets save.
	user, domain, _ := strings.Cut(settled[1].Email, "@")
	own := filepath.Join(t.TempDir(), "Kunden.csv")
	user += "@" + strings.ToUpper(domain)
	b.must(os.WriteFile(own, []byte("Name;E-Mail;result\r\n\"M\xfcller; \"\"Ann\"\"\";"+user+
		";x\r\n\r\nBen;nobody@else.test;\r\n"), 0o600))
	rows := download(b, folder, func() { b.do(chromedp.SetUploadFiles(chromedp.ID("own"), []string{own})) })
	b.shows("1 of 2 rows has a result.")
	want := "\ufeffName;E-Mail;result;rollcall_result;message;role;free;disposable;suggest;operator;checked_at|" +
		`Müller; "Ann";` + user + ";x;" + settled[1].Outcome.String() + ";"
	got := strings.Join(rows[0], ";") + "|" + strings.Join(rows[1], ";")
	if len(rows) != 3 || !strings.HasPrefix(got, want) || strings.Join(rows[2], ";") != "Ben;nobody@else.test;;;;;;;;;" {
		t.Errorf("the person's own list with results: %q, then %q; want %q", got, rows[2:], want)
	}
	b.must(os.WriteFile(own, []byte("a,\"b\n"), 0o600))
	b.do(chromedp.SetUploadFiles(chromedp.ID("own"), []string{own}))
	b.shows("Row 1 has a quote (\") that is not closed")
}

// saves lets the browser save files, and returns the folder.
func (b *tab) saves() (folder string) {
	folder = b.t.TempDir()
	_, err := chromedp.CallBrowser(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: "allow",
		BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID, DownloadPath: folder})
	b.must(err)
	b.bear("net::ERR_ABORTED")
	return folder
}

// download clicks, waits for the downloaded file, reads it and removes it.
func download(b *tab, folder string, click func()) (rows [][]string) {
	b.t.Helper()
	click()
	name, text := saved(b, folder)
	in := csv.NewReader(strings.NewReader(text))
	if strings.Contains(text, ";") {
		in.Comma = ';'
	}
	rows, err := in.ReadAll()
	if err == nil {
		err = os.Remove(filepath.Join(folder, name))
	}
	b.must(err)
	return rows
}

// saved waits until a folder has one complete download. A browser first makes an empty file, and replaces it when the
// download is complete.
func saved(b *tab, folder string) (name, text string) {
	b.t.Helper()
	if !eventually(func() bool {
		names, _ := filepath.Glob(filepath.Join(folder, "[^.]*.[ct][sx][vt]"))
		if len(names) != 1 {
			return false
		}
		content, err := os.ReadFile(names[0])
		name, text = filepath.Base(names[0]), string(content)
		return err == nil && strings.HasSuffix(text, "\n")
	}) {
		b.t.Fatal("no file came")
	}
	return name, text
}

func TestASessionThatEndsWhileAPageIsOpen(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	who := p.join(ledger.Member)
	b := newTab(t, p.node).as(who)
	b.goTo(p.of(p.verifying("contacts.csv", 100, results(10)...)))
	effort.OK(t, p.book.EndSession(t.Context(), who.user, who.id))
	b.bear("status of 401")
	b.shows("You were signed out.")
	b.shows("10 of 100 checked")
	b.until("!document.getElementById('live').hasAttribute('data-hx-trigger')")
	at := b.at()
	b.press("Sign in to go on.")
	b.shows("No account, or lost your password?")
	b.signIn(who.email, password)
	b.shows("10 of 100 checked")
	effort.Is(t, b.at(), at, "signing in led to")
}

// TestAServerThatIsAwayAndComesBack: what pages say while the ledger is away, the tests of the pages ask.
func TestAServerThatIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	n := ownNode(t)
	p := n.workspace(t, "acme", 1000)
	b := newTab(t, n).as(p.join(ledger.Member))
	b.bear("net::ERR_", "htmx:error", "Failed to fetch")
	b.goTo(p.of(p.verifying("contacts.csv", 100, results(10)...)))
	n.front.Cut(true)
	b.shows(" UTC, trying again.")
	b.shows("10 of 100 checked")
	b.shows("The server isn't answering. This is as of ")
	p.settle(10, 20)
	n.front.Cut(false)
	b.shows("20 of 100 checked")
	b.until("document.getElementById('poll').hidden")
}

// settle settles more results of the newest verification.
func (p *place) settle(from, to int) {
	p.t.Helper()
	effort.Must(p.book.Settle(p.t.Context(), ledger.Settlement{Lease: p.held, Number: 2,
		Results: results(to)[from:]}))(p.t)
}

func TestColours(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	b := newTab(t, p.node).as(p.join(ledger.Viewer))
	paper := func() string {
		return eval[string](b, "getComputedStyle(document.documentElement).backgroundColor + getComputedStyle(document.body).backgroundColor")
	}
	b.prefers("light")
	b.goTo("/you")
	light := paper()
	b.do(chromedp.SendKeys(chromedp.ID("colours"), "dark"))
	b.press("Save")
	b.until("document.documentElement.dataset.colours === 'dark'")
	effort.Not(t, paper(), light, "dark is kept, and the page is")
}

// TestSecretsAreShownCopiedAndSaved: what keys and codes are good for, the tests of the pages ask.
func TestSecretsAreShownCopiedAndSaved(t *testing.T) {
	t.Parallel()
	n := theNode(t)
	p := n.workspace(t, "acme", 1000)
	who := p.join(ledger.Owner)
	b := newTab(t, n).as(who)
	b.goTo(p.path + "/keys")
	b.fill("label", "billing <b>")
	b.press("Create a key")
	b.shows("Copy it now: it's shown only once, and we don't keep it.")
	effort.Is(t, eval[string](b, "document.activeElement.id"), "made", "has the focus")
	b.copies("Copy", eval[string](b, "document.querySelector('#made .copied').innerText.trim()"))
	b.clean("a new key")
	b.goTo(p.path)
	b.press("Turn on two-step sign-in")
	b.shows("Link for apps")
	text := eval[string](b, "document.querySelector('.copied code').innerText")
	secret, err := base32.StdEncoding.DecodeString(strings.ReplaceAll(text, " ", ""))
	effort.OK(t, err, "the secret on the page", text)
	b.fill("password", password)
	b.fill("code", signin.TOTPCode(secret, signin.TOTPStep(time.Now())))
	b.press("Turn it on")
	b.shows("Two-step sign-in is on")
	recovery := eval[[]string](b, "[...document.querySelectorAll('.recovery li')].map((e) => e.innerText)")
	effort.MustBe(t, len(recovery), signin.Recoveries, "recovery codes are shown")
	b.copies("Copy", strings.Join(recovery, "\n"))
	folder := b.saves()
	b.press("Download")
	name, text := saved(b, folder)
	effort.Is(t, name, "rollcall-recovery-codes.txt")
	effort.Is(t, text, strings.Join(recovery, "\n")+"\n")
	b.press("I've saved them") // the browser asks for one of them
	b.fill("code", strings.ToLower(recovery[9]))
	b.press("I've saved them")
	b.shows("It's on: signing in asks for a code from your app. Recovery codes left: 10.")
}

const (
	tabKey     = "\t"
	enterKey   = "\r"
	tabsAtMost = 60
)

// tabTo presses Tab until the focused element has this text. On the way every focused element must show that it has
// the focus, and must not be covered.
func (b *tab) tabTo(text string) {
	b.t.Helper()
	for range tabsAtMost {
		b.do(chromedp.KeyEvent(tabKey))
		at := eval[struct {
			Text    string
			Visible bool
			Covered bool
		}](b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
			const over = document.elementFromPoint(r.x + Math.min(r.width, innerWidth - r.x) / 2, r.y + Math.min(r.height / 2, 12));
			return { Text: (e.labels && e.labels[0] || e).innerText.trim() || e.getAttribute("aria-label") || "",
				Visible: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2,
				Covered: e !== document.body && !(over && (e.contains(over) || over.contains(e))) };
		})()`)
		if at.Text != "" && at.Text != b.text() && (!at.Visible || at.Covered) {
			b.t.Errorf("%s: %q has the focus: seen %v, covered %v", b.at(), at.Text, at.Visible, at.Covered)
		}
		if at.Text == text {
			return
		}
	}
	b.t.Fatalf("%s: Tab does not lead to %q", b.at(), text)
}

func (b *tab) keys(text string) { b.t.Helper(); b.do(chromedp.KeyEvent(text)) }

func TestAllOfItByKeyboard(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	who := p.join(ledger.Member)
	v := p.verifying("contacts.csv", 100, results(10)...)
	b := newTab(t, p.node)
	b.window(640, 700)
	b.prefers("light")
	b.goTo("/sign-in")
	b.tabTo("Email")
	b.keys(who.email)
	b.tabTo("Password")
	b.keys(password)
	b.tabTo("Sign in")
	b.keys(enterKey)
	b.shows("contacts.csv")
	b.tabTo("contacts.csv")
	b.keys(enterKey)
	b.shows("10 of 100 checked")
	b.tabTo("Skip to the content")
	b.keys(enterKey)
	b.tabTo("Verifications")
	b.tabTo("Cancel…")
	b.keys(enterKey)
	b.shows("Cancel this verification?")
	effort.Is(t, eval[string](b, "document.activeElement.innerText"), "Keep it running", "in the dialog has the focus")
	b.tabTo("Cancel the verification")
	b.keys(enterKey)
	b.shows("It's being cancelled.")
	effort.Is(t, effort.Must(p.book.Verification(t.Context(), p.id, v.ID))(t).Status, ledger.Cancelling,
		"the verification")
}

// TestAnOperatorFindsItByKeyboard goes from the first page to a set override with the keyboard only.
func TestAnOperatorFindsItByKeyboard(t *testing.T) {
	chromium(t)
	g := pagetest.Start(t)
	g.Open = pagetest.Running(t, g)
	b := operatorTab(t, g, "eve")
	b.prefers("light") // and nothing moves
	b.goTo("/")
	for _, step := range []struct{ to, shows string }{{"runs.csv", "their turn"}, {"mx.slow.test", "holds it back"},
		{"Set an override", "Set a temporary override"}} {
		b.tabTo(step.to)
		b.keys(enterKey)
		b.shows(step.shows)
	}
	b.tabTo("Value")
	b.keys("2/s")
	b.tabTo("For how long")
	b.keys("2h")
	b.tabTo("Reason")
	b.keys("ticket 900" + enterKey)
	b.shows("Review the override")
	b.clean("the review")
	b.tabTo("Set the override")
	b.keys(enterKey)
	b.shows("Set a temporary override")
	b.tabTo("Throttles")
	b.keys(enterKey)
	b.shows("ticket 900")
}
