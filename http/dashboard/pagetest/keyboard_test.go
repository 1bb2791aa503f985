package pagetest_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger"
)

const (
	tabKey     = "\t"
	enterKey   = "\r"
	tabsAtMost = 60
)

// tabTo presses Tab until what has the focus has a text. On the way everything that gets the focus must show it, and must
// not be covered.
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
	effort.Is(t, effort.Must(p.book.Store.Verification(t.Context(), p.id, v.ID))(t).Status, ledger.Cancelling,
		"the verification")
}

// TestAnOperatorFindsItByKeyboard goes from the first page to an override that is set, and touches no mouse.
func TestAnOperatorFindsItByKeyboard(t *testing.T) {
	t.Parallel()
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
	b.axe()
	for _, v := range b.violations(false) {
		t.Errorf("the review: %s", v)
	}
	b.tabTo("Set the override")
	b.keys(enterKey)
	b.shows("Set a temporary override")
	b.tabTo("Throttles")
	b.keys(enterKey)
	b.shows("ticket 900")
}

// TestANewKeyIsShownAndCopied: what the API answers to it, the tests of the pages ask.
func TestANewKeyIsShownAndCopied(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	b := newTab(t, p.node).as(p.join(ledger.Owner))
	b.goTo(p.path + "/keys")
	b.fill("label", "billing <b>")
	b.press("Create a key")
	b.shows("Copy it now: it's shown only once, and we don't keep it.")
	effort.Is(t, eval[string](b, "document.activeElement.id"), "made", "has the focus")
	key := eval[string](b, "document.querySelector('#made .copied').innerText.trim()")
	if !strings.HasPrefix(key, "rc_") || strings.Contains(eval[string](b, "location.href"), key) {
		t.Fatalf("the page shows %q at %s", key, b.at())
	}
	b.copies("Copy", key)
	b.axe()
	for _, v := range b.violations(false) {
		t.Errorf("%s: %s", b.at(), v)
	}
}
