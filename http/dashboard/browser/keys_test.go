package browser_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"rollcall/ledger"
)

// call asks the API with a key, and gives the status of its answer.
func (n *node) call(t *testing.T, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/v1/credits", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	return a.StatusCode
}

// keysOf are the keys of the workspace in the ledger.
func (p *place) keysOf() []ledger.Key {
	p.t.Helper()
	found, err := p.book.Keys(p.t.Context(), p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

func TestAKeyIsMadeUsedAndRevoked(t *testing.T) {
	t.Parallel()
	n := ownNode(t)
	p := n.workspace(t, "acme", 1000)
	b := newTab(t, n).as(p.join(ledger.Owner))
	b.goTo(p.path + "/keys")
	b.fill("label", "billing <b>")
	b.press("Create a key")
	b.shows("Copy it now: it's shown only once, and we don't keep it.")
	if at := eval[string](b, "document.activeElement.id"); at != "made" {
		t.Errorf("%q has the focus, want the new key", at)
	}
	key := eval[string](b, "document.querySelector('#made .copied').innerText.trim()")
	if !strings.HasPrefix(key, "rc_") || strings.Contains(eval[string](b, "location.href"), key) {
		t.Fatalf("the page shows %q at %s", key, b.at())
	}
	if status := n.call(t, key); status != http.StatusOK {
		t.Fatalf("the API answers %d to the new key", status)
	}

	b.copies("Copy", key)
	b.axe()
	for _, v := range b.violations(false) {
		t.Errorf("%s: %s", b.at(), v)
	}

	// Loading the answer again sends the form again.
	b.bear("status of 409")
	b.do(chromedp.Reload())
	b.shows("This form already made a key, which was shown once.")
	if strings.Contains(b.text(), key) || eval[bool](b, "!!document.getElementById('made')") {
		t.Error("the key is shown a second time")
	}
	if made := p.keysOf(); len(made) != 1 {
		t.Fatalf("%d keys were made, want 1", len(made))
	}
	b.goTo(p.path + "/keys")
	if strings.Contains(eval[string](b, "document.documentElement.outerHTML"), key) {
		t.Error("the page of the keys has the key in it")
	}

	b.press("Revoke… the key billing <b>")
	b.shows("Revoke the key “billing <b>” of ")
	b.shows("Programs that use it will be refused, within 5 seconds. This can't be undone.")
	b.press("Keep it")
	b.shows("Create a key")
	b.press("Revoke… the key billing <b>")
	b.press("Revoke the key")
	b.shows("revoked")
	n.later(5 * time.Second)
	if status := n.call(t, key); status != http.StatusUnauthorized {
		t.Errorf("five seconds after the key was revoked the API answers %d", status)
	}
	if made := p.keysOf(); made[0].Revoked.IsZero() {
		t.Error("the ledger has the key as one that works")
	}
	b.press("Activity")
	b.shows("revoked the key billing <b>")
}
