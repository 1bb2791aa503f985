package pagetest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/http/dashboard"
	"rollcall/ledger"
)

// TestTheRigSeesWhatMustNotHappen opens pages that are broken on purpose: a rig that sees nothing proves nothing.
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

// found is what the rig has against the tab so far.
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
// nothing on the page leaves its place. It watches for some seconds; with -long, for five minutes.
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
	from, updates := time.Now(), 0
	for i := 0; i < 3 || effort.Long() && time.Since(from) < 5*time.Minute; i++ {
		updates++
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
		t.Errorf("after %d updates what was shown had moved: %f, by %s", updates, moved,
			eval[string](b, "window.__moved || ''"))
	}
}
