package pagetest_test

import (
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/ledger"
)

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
