package browser_test

import (
	"testing"

	"rollcall/ledger"
)

// signIn fills in the form.
func (b *tab) signIn(email, secret string) {
	b.t.Helper()
	b.fill("email", email)
	b.fill("password", secret)
	b.press("Sign in")
}

func TestSigningInAndOut(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	who := p.join(ledger.Member)
	b := newTab(t, p.node)
	b.goTo(p.path + "/upload")
	b.shows("No account, or lost your password?")
	b.signIn(who.email, password)
	b.shows("At most 67.1 MB")
	if b.at() != p.path+"/upload" {
		t.Errorf("signing in led to %s, want where it was wanted", b.at())
	}
	b.press("Sign out")
	b.shows("No account, or lost your password?")
	b.goTo(p.path)
	b.shows("No account, or lost your password?")
	if b.at() != "/sign-in?next="+"%2Fw%2F"+p.id.String() {
		t.Errorf("after signing out %s is at %s", p.path, b.at())
	}
}
