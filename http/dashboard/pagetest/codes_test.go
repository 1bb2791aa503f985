package pagetest_test

import (
	"encoding/base32"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

// nextCode is what the app shows a period later: each code works once.
func (n *node) nextCode(secret []byte) string {
	n.later(signin.TOTPPeriod)
	return signin.TOTPCode(secret, signin.TOTPStep(n.now()))
}

// askedForCode gives email and password, and waits for the page that wants the code.
func (b *tab) askedForCode(email string) {
	b.t.Helper()
	b.goTo("/sign-in")
	b.signIn(email, password)
	b.shows("Enter a code")
}

// signOut signs out, and waits until it is done.
func (b *tab) signOut() {
	b.t.Helper()
	b.press("Sign out")
	b.shows("No account, or lost your password?")
}

func TestCodesForSigningIn(t *testing.T) {
	t.Parallel()
	n := ownNode(t)
	p := n.workspace(t, "acme", 1000)
	who := p.join(ledger.Owner)
	b := newTab(t, n).as(who)
	b.bear("status of 401", "status of 422", "status of 429")
	b.goTo(p.path)
	b.press("Turn on two-step sign-in")
	b.shows("Link for apps")
	text := eval[string](b, "document.querySelector('.copied code').innerText")
	secret, err := base32.StdEncoding.DecodeString(strings.ReplaceAll(text, " ", ""))
	effort.OK(t, err, "the secret on the page", text)
	b.fill("password", password)
	b.fill("code", "000000")
	b.press("Turn it on")
	b.until("document.activeElement.id === 'problem'")
	effort.Is(t, eval[string](b, "document.querySelector('.copied code').innerText"), text,
		"after a wrong code the page has another secret than the app")
	b.fill("password", password)
	b.fill("code", n.nextCode(secret))
	b.press("Turn it on")
	b.shows("Two-step sign-in is on")
	recovery := eval[[]string](b, "[...document.querySelectorAll('.recovery li')].map((e) => e.innerText)")
	effort.MustBe(t, len(recovery), signin.Recoveries, "recovery codes are shown")
	b.copies("Copy", strings.Join(recovery, "\n"))
	folder := b.saves()
	b.press("Download")
	name, text := saved(b, folder)
	effort.Is(t, name, "rollcall-recovery-codes.txt")
	effort.Is(t, text, strings.Join(recovery, "\n")+"\n")
	b.press("I've saved them") // the browser asks for one of them
	b.fill("code", "AAAA-BBBB-CCCC-DDDD")
	b.press("I've saved them")
	b.shows("That isn't one of your recovery codes.")
	b.fill("code", strings.ToLower(recovery[9]))
	b.press("I've saved them")
	b.shows("It's on: signing in asks for a code from your app. Recovery codes left: 10.")
	b.signOut()

	// With a code of the app, then with one of one use.
	b.askedForCode(who.email)
	b.fill("code", n.nextCode(secret))
	b.press("Sign in")
	b.shows("Upload your first file")
	b.signOut()
	b.askedForCode(who.email)
	b.fill("code", recovery[3])
	b.press("Sign in")
	b.shows("Upload your first file")
	b.press("Account: " + who.email)
	b.shows("Recovery codes left: 9.")
}
