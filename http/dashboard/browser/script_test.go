package browser_test

import (
	"testing"

	"rollcall/ledger"
)

func TestPagesWorkWithoutScript(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	who := p.join(ledger.Member)
	b := newTab(t, p.node)
	b.script(false)
	b.goTo(p.path + "/upload")
	b.signIn(who.email, "the wrong password")
	b.bear("status of 401")
	b.shows("The email or the password is wrong.")
	b.fill("password", password)
	b.press("Sign in")
	b.shows("Uploading in the browser needs JavaScript, which is off.")
	if eval[bool](b, "document.getElementById('file').checkVisibility()") {
		t.Error("a file can be chosen where nothing would upload it")
	}
	b.shows("curl -X POST \"$API/v1/verifications\"")

	v := p.verifying("contacts.csv", 100, results(10)...)
	b.goTo(p.path)
	b.press("contacts.csv")
	b.shows("10 of 100 checked")
	b.press("Cancel this verification…")
	b.shows("This can't be undone.")
	b.press("Cancel the verification")
	b.shows("It's being cancelled.")
	if now, err := p.book.Store.Verification(t.Context(), p.id, v.ID); err != nil || now.Status != ledger.Cancelling && now.Status != ledger.Cancelled {
		t.Errorf("after the button the verification is %s, %v", now.Status, err)
	}
	b.press("Account: " + who.email)
	b.shows("These are the places where you're signed in.")
	b.press("Sign out")
	b.shows("No account, or lost your password?")
}
