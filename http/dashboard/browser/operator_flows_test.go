package browser_test

import (
	"testing"

	"rollcall/http/dashboard/operate/operatetest"
)

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
