package pagetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"rollcall/config/effort"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
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
