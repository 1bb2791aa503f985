package browser_test

import (
	"testing"

	"rollcall/ledger"
)

// settleCheck does what a node does for the check that was made last: it leases it, asks and settles.
func (p *place) settleCheck(words string) ledger.Verification {
	p.t.Helper()
	return p.refused(p.leased(p.newest()), words)
}

// singles counts the checks of the workspace.
func (p *place) singles() int {
	p.t.Helper()
	found, err := p.book.Store.History(p.t.Context(), ledger.HistoryQuery{Workspace: p.id, Limit: 10})
	if err != nil {
		p.t.Fatal(err)
	}
	return len(found)
}

func TestACheckLeadsToItsTalk(t *testing.T) {
	t.Parallel()
	p := ownNode(t).workspace(t, "acme", 10) // of its own: another test would lease the check
	b := newTab(t, p.node).as(p.join(ledger.Member))
	b.bear("status of 422")
	b.goTo(p.path)
	b.press("Check one")
	b.until("location.pathname.endsWith('/check')")
	b.fill("address", "no address")
	b.press("Check it")
	b.shows("This isn't an address that mail can be sent to.")
	if kept := eval[string](b, "document.getElementById('address').value"); kept != "no address" {
		t.Errorf("the field has %q after a refusal", kept)
	}
	b.fill("address", "ghost@acme-clean.test")
	// The form leaves twice before its first answer, as from an impatient hand on a slow network, and then by two clicks.
	eval[bool](b, `((f) => { const send = () => fetch(f.action, { method: "POST", body: new URLSearchParams(new FormData(f)), redirect: "manual" });
		return Promise.all([send(), send()]).then(() => true); })(document.querySelector("main form"))`)
	eval[bool](b, `((button) => { button.click(); button.click(); return true; })(document.querySelector("main button"))`)
	b.until("document.getElementById('live')")
	if made := p.singles(); made != 1 {
		t.Fatalf("one form, sent again and again, made %d checks", made)
	}
	if v := p.newest(); b.at() != p.of(v) || v.Kind != ledger.Single {
		t.Errorf("the check %s of kind %s led to %s", v.ID, v.Kind, b.at())
	}
	b.shows("preparing")
	eval[bool](b, "window.sameAsBefore = true")
	p.settleCheck("No such user ^ <here>")
	b.shows("mailbox_not_found")
	b.shows("550 5.1.1 No such user ‹the address› <here>")
	b.shows("What was asked")
	if !eval[bool](b, "window.sameAsBefore === true") {
		t.Error("the page was loaded anew")
	}
	b.until("!document.getElementById('live').hasAttribute('data-hx-trigger')")
	if !eval[bool](b, "document.getElementById('poll').hidden") {
		t.Errorf("the page says that something failed: %s", b.text())
	}
	b.goTo(p.path + "/credits")
	b.shows("10 granted = 9 available + 0 held + 1 spent")
}
