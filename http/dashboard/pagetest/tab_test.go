package pagetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/http/dashboard"
	"rollcall/ledger"
)

// patience bounds every wait in a tab.
const patience = 30 * time.Second

// tab is one tab in a browser profile of its own. At the end of the test it fails if something happened that must not
// happen on any page: an error or warning in the console, an exception, a dialog of a script, a report of the policy,
// a request to another host, a page wider than its window, or a shift of visible content.
type tab struct {
	t    testing.TB
	n    *node
	ctx  context.Context
	root string // the URL before all paths

	mu     sync.Mutex
	hosts  []string // what it may ask
	bears  []string // words of faults that this test causes on purpose
	faults []string
	width  int64
}

// watcher runs inside a page. It reports what a browser tells only to pages, and adds up shifts.
const watcher = `document.addEventListener("securitypolicyviolation", (e) => console.error("policy: " + e.violatedDirective + " " + e.blockedURI));
window.__shift = 0;
new PerformanceObserver((l) => { for (const e of l.getEntries()) if (!e.hadRecentInput) { window.__shift += e.value; window.__moved = e.sources.map((s) => s.node && (s.node.outerHTML || s.node.parentNode.outerHTML).slice(0, 120)).join(" | "); } }).observe({ type: "layout-shift", buffered: true });`

// newTab opens a tab in a profile of its own, for the pages of a node.
func newTab(t testing.TB, n *node) *tab {
	t.Helper()
	b := &tab{t: t, n: n, root: n.url}
	b.open(n.url, n.storage.url())
	return b
}

func (b *tab) open(hosts ...string) {
	b.t.Helper()
	for _, h := range hosts {
		u := effort.Must(url.Parse(h))(b.t)
		b.hosts = append(b.hosts, u.Host)
	}
	ctx, end := chromedp.NewContext(chromium(b.t), chromedp.WithNewBrowserContext())
	b.ctx = ctx
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.shoot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
		}
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.faults {
			b.t.Error(f)
		}
	})
	b.must(chromedp.Listen(ctx, b.heard))
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watcher})
	b.must(err)
	b.window(1280, 900)
}

// heard records one event of the tab.
func (b *tab) heard(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		if ev.Type == "error" || ev.Type == "warning" || ev.Type == "assert" {
			var words []string
			for _, a := range ev.Args {
				words = append(words, strings.Trim(string(a.Value), `"`)+a.Description)
			}
			b.fault("console: " + strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		text := ev.ExceptionDetails.Text
		if ev.ExceptionDetails.Exception != nil {
			text += " " + ev.ExceptionDetails.Exception.Description
		}
		b.fault("exception: " + text)
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" || ev.Entry.Level == "warning" {
			b.fault("browser: " + ev.Entry.Text + " " + ev.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(ev.Request.URL)
		if err != nil || (u.Scheme == "http" || u.Scheme == "https") && !slices.Contains(b.hosts, u.Host) {
			b.fault("asked another host: " + ev.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		if ev.Type != page.DialogTypeBeforeunload {
			b.fault("dialog: " + ev.Message)
		}
		go func() { // answers the dialog on leaving a page with an unfinished upload
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

// fault records what must not happen, unless the test causes it on purpose. The caller holds the lock.
func (b *tab) fault(text string) {
	for _, word := range b.bears {
		if strings.Contains(text, word) {
			return
		}
	}
	b.faults = append(b.faults, text)
}

// note is fault without the lock.
func (b *tab) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault(text)
}

// bear says, by words in them, which faults this test causes on purpose.
func (b *tab) bear(words ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bears = append(b.bears, words...)
}

func (b *tab) must(err error) {
	b.t.Helper()
	effort.OK(b.t, err)
}

// within returns the tab's context with a time limit. A context derived from the tab's runs in the same tab.
func (b *tab) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, patience)
}

// do runs steps in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := b.within()
	defer end()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v, at %s: %.600s", err, b.at(), b.text())
	}
}

// eval returns the value of an expression; it waits for a promise.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, end := b.within()
	defer end()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	effort.OK(b.t, err, "in", expression)
	return v
}

// tried returns the value of an expression, or false if it has none, as between two pages.
func tried[T any](b *tab, expression string) (v T, ok bool) {
	ctx, end := b.within()
	defer end()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	return v, err == nil
}

// until waits until an expression is true, even if the tab opens other pages meanwhile.
func (b *tab) until(expression string) {
	b.t.Helper()
	if !eventually(func() bool { yes, ok := tried[bool](b, "!!("+expression+")"); return ok && yes }) {
		b.t.Fatalf("%s did not become true at %s: %.800s", expression, b.at(), b.text())
	}
}

// eventually waits until a condition is true.
func eventually(so func() bool) bool {
	tick := time.Tick(20 * time.Millisecond)
	for end := time.After(patience); ; {
		if so() {
			return true
		}
		select {
		case <-tick:
		case <-end:
			return so()
		}
	}
}

// shows waits until the page shows a text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.until("document.readyState === 'complete' && document.body && document.body.innerText.replace(/\\u202f/g, ' ').includes(" + quote(text) + ")")
}

// at returns the path of the page.
func (b *tab) at() string {
	path, _ := tried[string](b, "location.pathname + location.search")
	return path
}

func (b *tab) text() string {
	text, _ := tried[string](b, "document.body ? document.body.innerText : ''")
	return text
}

// goTo opens a path, and checks the page's width and that nothing shifts.
func (b *tab) goTo(path string) {
	b.t.Helper()
	for range shiftTries {
		b.do(chromedp.Navigate(b.root + path))
		b.fits()
		if b.shift() <= shiftBorne {
			return
		}
	}
	b.stays()
}

// shift returns how much the page has shifted.
func (b *tab) shift() float64 {
	b.t.Helper()
	return eval[float64](b, "window.__shift || 0")
}

// stays records a page that shifted visible content.
func (b *tab) stays() {
	b.t.Helper()
	if moved := b.shift(); moved > shiftBorne {
		b.note(fmt.Sprintf("%s moved what it showed already: %f", b.at(), moved))
	}
}

const (
	// shiftBorne is the part of its window by which a page may shift.
	shiftBorne = 0.01
	// shiftTries is how often a shifted page is opened again. On a busy machine a browser paints a page before all of
	// it has arrived, and then moves the foot. A page that shifts by itself does so each time.
	shiftTries = 4
)

// fits records a page that is wider than its window.
func (b *tab) fits() {
	b.t.Helper()
	got := eval[[]float64](b, "[document.documentElement.scrollWidth, window.innerWidth]")
	if got[0] > got[1] {
		wide := eval[string](b, `[...document.querySelectorAll("main *, header *, footer *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join("\n")`)
		b.note(fmt.Sprintf("%s is %.0f px wide in a window of %.0f:\n%s", b.at(), got[0], got[1], wide))
	}
}

// fill types into a field.
func (b *tab) fill(id, text string) {
	b.t.Helper()
	eval[bool](b, "(document.getElementById("+quote(id)+").value = '') === ''")
	b.do(chromedp.SendKeys(chromedp.ID(id), text))
}

// press clicks the button or link with a text.
func (b *tab) press(text string) {
	b.t.Helper()
	found := `//*[self::a or self::button or self::summary][normalize-space(.)=` + quote(text) + `]`
	b.do(chromedp.Click(found, chromedp.NodeVisible))
}

// copies checks that a button copies a text.
func (b *tab) copies(button, want string) {
	b.t.Helper()
	eval[bool](b, `(navigator.clipboard.writeText = (text) => { window.__copied = text; return Promise.resolve(); }, true)`)
	b.press(button)
	b.until("window.__copied !== undefined")
	effort.Is(b.t, eval[string](b, "window.__copied"), want, fmt.Sprintf("%s: %s copies", b.at(), button))
	b.shows("Copied")
}

// window sets the size of the window.
func (b *tab) window(width, height int64) {
	b.t.Helper()
	b.width = width
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1})
	b.must(err)
}

// prefers sets the system's preferred colours, light or dark. It also switches animations off, so that a picture
// shows their end.
func (b *tab) prefers(colours string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours},
			{Name: "prefers-reduced-motion", Value: "reduce"}}})
	b.must(err)
}

// script switches JavaScript on or off for pages opened from now on.
func (b *tab) script(on bool) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	b.must(err)
}

// as gives the tab somebody's session.
func (b *tab) as(who person) *tab {
	b.t.Helper()
	yes := true
	_, err := chromedp.Call(b.ctx, network.SetCookie, network.SetCookieParams{Name: "__Host-rollcall", Value: who.token,
		URL: strings.Replace(b.root, "http:", "https:", 1) + "/", Path: "/", Secure: &yes, HTTPOnly: &yes, SameSite: "Lax"})
	b.must(err)
	return b
}

// shoot saves a picture of the page in the folder that ROLLCALL_SCREENSHOTS names. Without the variable it does
// nothing.
func (b *tab) shoot(name string) {
	folder := os.Getenv("ROLLCALL_SCREENSHOTS")
	if folder == "" {
		return
	}
	ctx, end := b.within()
	defer end()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
	}
	effort.ErrIs(b.t, err, nil, "picture", name)
}

// quote writes a text as a JavaScript literal.
func quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // XPath has no escapes
	if err := e.Encode(text); err != nil {
		panic(fmt.Sprintf("quote %q: %v", text, err))
	}
	return strings.TrimSpace(b.String())
}

// signIn fills in the form.
func (b *tab) signIn(email, secret string) {
	b.t.Helper()
	b.fill("email", email)
	b.fill("password", secret)
	b.press("Sign in")
}

// TestTheRigSeesWhatMustNotHappen opens pages that are broken on purpose, because a rig that notices nothing proves
// nothing.
func TestTheRigSeesWhatMustNotHappen(t *testing.T) {
	t.Parallel()
	n := theNode(t)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	const policy = "default-src 'none'; script-src 'nonce-a'; img-src * data:; style-src 'nonce-a'; connect-src *"
	for name, c := range map[string]struct{ body, want string }{
		"console":   {`<script nonce="a">console.error("a fault of ours")</script>`, "console: a fault of ours"},
		"exception": {`<script nonce="a">nothing.there()</script>`, "exception: Uncaught ReferenceError"},
		"rejection": {`<script nonce="a">Promise.reject(new Error("of nobody"))</script>`, "of nobody"},
		"dialog":    {`<script nonce="a">alert("of a text")</script>`, "dialog: of a text"},
		"policy":    {`<p onclick="x()">text</p><script>inline()</script>`, "policy: script-src"},
		"style":     {`<p style="color: red">text</p>`, "policy: style-src"},
		"host":      {`<img alt="" src="` + other.URL + `/pixel.gif">`, "asked another host: " + other.URL},
		"width":     {`<style nonce="a">p { width: 400px }</style><main><p>text</p></main>`, "px wide in a window of 320"},
		"shift": {`<style nonce="a">i { display: block; height: 200px }</style><main id="m"><p>text</p></main><script nonce="a">requestAnimationFrame(() =>
			setTimeout(() => { m.prepend(document.createElement("i")); requestAnimationFrame(() => requestAnimationFrame(() => { document.title = "moved"; })); }, 100))</script>`,
			"moved what it showed already"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				w.Header().Set("Content-Security-Policy", policy)
				fmt.Fprintf(w, `<!doctype html><html lang="en"><title>x</title><link rel="icon" href="data:,">%s`, c.body)
			}))
			t.Cleanup(broken.Close)
			b := &tab{t: t, n: n, root: broken.URL}
			b.open(broken.URL)
			b.window(320, 900)
			b.do(chromedp.Navigate(broken.URL))
			if name == "shift" {
				b.until("document.title === 'moved'")
			}
			if !eventually(func() bool { b.fits(); b.stays(); return strings.Contains(b.found(), c.want) }) {
				t.Errorf("the rig found %q, want %q", b.found(), c.want)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.faults = nil
			b.bears = []string{""}
		})
	}
}

// found returns the faults of the tab so far.
func (b *tab) found() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.faults, "\n")
}

func TestAxeSeesWhatIsBroken(t *testing.T) {
	t.Parallel()
	b := newTab(t, theNode(t))
	b.goTo("/sign-in")
	b.axe()
	eval[bool](b, `document.querySelector("label").remove(), document.querySelector("h1").replaceChildren(), true`)
	found := strings.Join(b.violations(false), "\n")
	for _, want := range []string{"label:", "empty-heading:"} {
		effort.Has(t, found, want, "axe-core")
	}
}

// TestNothingMovesWhileAFileIsWatched: results come, what it waits for changes, and so does the expected end, while
// nothing on the page leaves its place.
func TestNothingMovesWhileAFileIsWatched(t *testing.T) {
	t.Parallel()
	var step atomic.Int64
	n := ownNode(t, func(o *dashboard.Options) {
		o.Waits = func(context.Context, string) (inspect.Verification, error) {
			v := inspect.Verification{}
			for i := range step.Load() % 7 {
				v.Waits = append(v.Waits, inspect.Wait{Addresses: int(i) + 1, For: inspect.ForRetry, Reason: "greylisted",
					Receiver: fmt.Sprintf("mx%d.example", i), Until: time.Now().Add(time.Hour)})
			}
			return v, nil
		}
	})
	p := n.workspace(t, "acme", 5000)
	b := newTab(t, n).as(p.join(ledger.Member))
	v := p.verifying("contacts.csv", 5000, results(3)...)
	b.goTo(p.of(v))
	b.shows("3 of 5 000 checked")
	eval[bool](b, "(window.__shift = 0) === 0")
	for i := range 3 {
		done := 3 + 6*(i+1)
		step.Add(1)
		_, err := p.book.Settle(t.Context(), ledger.Settlement{Lease: p.held, Number: int64(i) + 2,
			Results: results(done)[done-6:]})
		if err == nil && i%2 == 1 {
			at := time.Now().Add(time.Duration(i) * time.Hour)
			_, err = p.book.Wait(t.Context(), p.held, ledger.Estimate{Next: at, Expected: at,
				Why: "81 addresses wait for mx1.example, which " +
					"makes strangers come back later, and 12 for 3 other receivers; the last is expected at 12:00 UTC."})
		}
		effort.OK(t, err)
		b.shows(fmt.Sprintf("%d of 5 000 checked", done))
		b.shows(fmt.Sprintf("person-%d@acme.test", done-1)) // among the newest results
	}
	if moved := b.shift(); moved != 0 {
		t.Errorf("what was shown had moved: %f, by %s", moved, eval[string](b, "window.__moved || ''"))
	}
}
