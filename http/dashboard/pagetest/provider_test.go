package pagetest_test

import (
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/http/dashboard"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger"
)

// withProvider is a node of its own with a provider, whose page is at another site.
func withProvider(t *testing.T) (*node, *pagetest.Provider, *tab) {
	t.Helper()
	idp := pagetest.StartProvider(t)
	front := strings.Replace(idp.URL, "127.0.0.1", "localhost", 1)
	idp.SetFront(front)
	n := ownNode(t, func(o *dashboard.Options) {
		o.Provider = &dashboard.Provider{Issuer: idp.URL, ClientID: pagetest.ClientID, Secret: pagetest.Secret, Name: "Acme login"}
	})
	b := &tab{t: t, n: n, root: n.url}
	b.open(n.url, n.storage.url(), front)
	return n, idp, b
}

func TestSigningInWithAProvider(t *testing.T) {
	t.Parallel()
	n, idp, b := withProvider(t)
	p := n.workspace(t, "acme", 1000)
	idp.Person("s-1", "new@acme.test")
	path := p.link(ledger.InviteLink, "new@acme.test", ledger.Member)

	// The invitation is accepted with the provider. Where its page is is known only after it was asked, so the browser is
	// not sent there by the form: a page leads on.
	b.goTo(path)
	b.shows("new@acme.test is invited to a workspace as member.")
	b.press("Accept with Acme login")
	b.shows("You sign in there, and come back here.")
	b.press("Go on to Acme login")
	b.shows("The page of the provider")
	b.press("Go on as new@acme.test")
	b.shows("Upload your first file")
	effort.Lacks(t, b.at(), "?", "signing in led to")
	b.signOut()

	// Who refuses there, and whom nobody has invited, are told what to do.
	b.bear("status of 403")
	b.press("Sign in with Acme login")
	b.shows("The page of the provider")
	b.press("Refuse")
	b.shows("Acme login did not sign you in: try again, or sign in with your password.")
	idp.Person("s-2", "stranger@acme.test")
	b.press("Sign in with Acme login")
	b.shows("The page of the provider")
	b.press("Go on as stranger@acme.test")
	b.shows("Acme login did not sign you in: ask for an invitation for your email, or sign in with your password")
	effort.Is(t, eval[string](b, "document.activeElement.id"), "problem", "has the focus")
}
