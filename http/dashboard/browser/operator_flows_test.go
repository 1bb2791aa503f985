package browser_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"rollcall/http/dashboard/operate/operatetest"
)

func TestAnOverrideIsSetExpiresAndIsCleared(t *testing.T) {
	t.Parallel()
	chromium(t)
	g := operatetest.Start(t)
	b := operatorTab(t, g, "eve")
	b.goTo("/throttles?name=uni.test&field=rcpt_rate")
	b.reviewOverride("2/s", "30m", "ticket 900")
	if held := g.Overrides(t); len(held) != 1 {
		t.Fatalf("after a look %d overrides hold", len(held))
	}
	b.press("Set the override")
	b.shows("Set a temporary override")
	if held := g.Overrides(t); len(held) != 2 {
		t.Fatalf("after it was set %d overrides hold", len(held))
	}

	// It counts down, and is marked in its last hour.
	b.press("Throttles")
	b.shows("ticket 900")
	left := `[...document.querySelectorAll("tr")].find((r) => r.innerText.includes("ticket 900")).querySelector(".warn")`
	if said := eval[string](b, left+".innerText"); !strings.Contains(said, "! in 30 min") && !strings.Contains(said, "! in 29 min") {
		t.Errorf("the override says %q of its end", said)
	}
	g.Later(20 * time.Minute)
	b.goTo("/throttles")
	if said := eval[string](b, left+".innerText"); !strings.Contains(said, "! in 10 min") && !strings.Contains(said, "! in 9 min") {
		t.Errorf("twenty minutes later the override says %q of its end", said)
	}
	g.Later(10*time.Minute + time.Second)
	b.goTo("/throttles")
	b.shows("ticket <812>")
	if strings.Contains(b.text(), "ticket 900") {
		t.Error("an override that is over is shown")
	}

	// The other one is cleared, with a reason.
	b.press("Clear… mx.slow.test")
	b.press("End it now") // the browser asks for the reason
	if at := eval[string](b, "document.activeElement.name"); at != "reason" || len(g.Overrides(t)) != 1 {
		t.Errorf("without a reason %q has the focus, and %d overrides hold", at, len(g.Overrides(t)))
	}
	b.fill(eval[string](b, "document.activeElement.id"), "the receiver is well")
	b.press("End it now")
	b.shows("0 active overrides")
	if held := g.Overrides(t); len(held) != 0 {
		t.Errorf("after it was cleared %d overrides hold", len(held))
	}
	b.press("Log")
	b.shows("the receiver is well")
	b.shows("ticket 900")
}

func TestOperatorsSeeReceiversWithoutTheLedger(t *testing.T) {
	t.Parallel()
	chromium(t)
	g := operatetest.Start(t)
	b := operatorTab(t, g, "eve")
	b.bear("status of 503")
	waiting := map[string]*tab{}
	g.Away(true)
	for path, text := range map[string]string{"/verifications": "slow <i>.csv", "/workspaces": "acme <b>", "/log": "ticket <812>"} {
		other := operatorTab(t, g, "eve")
		other.bear("status of 503")
		other.goTo(path)
		other.shows("The ledger did not answer")
		other.shows("This page reloads by itself in a moment.")
		waiting[text] = other
	}
	b.goTo("/throttles")
	b.shows("The ledger isn't answering, so overrides aren't shown.")
	b.goTo("/health")
	b.shows("The ledger isn't answering.")

	// The first page goes on by itself: the time on it does.
	b.goTo("/")
	b.shows("mx.slow.test")
	at := eval[string](b, "document.querySelector('#live time').dateTime")
	b.until("document.querySelector('#live time').dateTime !== " + quote(at))
	if !eval[bool](b, "document.getElementById('poll').hidden") {
		t.Errorf("the page of the receivers says that something is wrong: %s", b.text())
	}
	g.Away(false)
	for text, other := range waiting {
		other.shows(text) // by itself
	}
}

func TestWhoMayOnlyLookSeesNoForms(t *testing.T) {
	t.Parallel()
	chromium(t)
	g := operatetest.Start(t)
	b := &tab{t: t, root: g.URL}
	b.open(g.URL)
	b.do(chromedp.Navigate(g.URL + g.Link("eve", true)))
	b.shows("read-only")
	for _, s := range operatorTable {
		if s.name == "operator-sign-in" || s.name == "operator-link" || s.name == "operator-docs" {
			continue
		}
		b.goTo(operatorPath(g, s))
		if found := eval[[]string](b, `[...document.querySelectorAll("main form[method=post]:not([action$='/evidence']), main button.danger")].map((e) => e.outerHTML.slice(0, 200))`); len(found) != 0 {
			t.Errorf("%s has what changes something: %s", b.at(), found)
		}
		if words := eval[[]string](b, `[...document.querySelectorAll("main a")].map((e) => e.innerText).filter((x) => /^(Clear|Set an override)/.test(x))`); len(words) != 0 {
			t.Errorf("%s leads to %s", b.at(), words)
		}
	}
	// A form that is sent anyway, as from a page that was opened before.
	b.bear("status of 403")
	b.goTo("/")
	eval[bool](b, `((f) => { f.method = "post"; f.action = "/health/audit"; document.body.append(f); f.submit(); return true; })(document.createElement("form"))`)
	b.shows("You have read-only access")
	if asked := g.Asked(); len(asked) != 0 {
		t.Errorf("who may only look changed %v", asked)
	}
}

func TestAnOperatorsSessionEndsWhileAPageIsOpen(t *testing.T) {
	t.Parallel()
	chromium(t)
	g := operatetest.Start(t)
	b := operatorTab(t, g, "eve")
	b.goTo("/?state=asking")
	b.shows("mx.slow.test")
	g.Later(2 * time.Hour)
	b.bear("status of 401")
	b.shows("You were signed out.")
	b.shows("mx.slow.test")
	b.until("!document.getElementById('live').hasAttribute('data-hx-trigger')")
	b.mu.Lock()
	b.asked = nil
	b.mu.Unlock()
	b.press("Sign in to go on.")
	b.shows("Operators sign in with a link")
	if _, status := fetchAs(t, g.URL+"/receivers/live", ""); status != http.StatusUnauthorized {
		t.Errorf("who is not signed in gets %d for a part", status)
	}
	b.do(chromedp.Navigate(g.URL + g.Link("eve", false)))
	b.shows("mx.slow.test")
}
