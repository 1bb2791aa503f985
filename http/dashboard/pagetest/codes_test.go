package pagetest_test

import (
	"encoding/base32"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

// TestCodesAreShownCopiedAndSaved: what signing in asks for, the tests of the pages ask.
func TestCodesAreShownCopiedAndSaved(t *testing.T) {
	t.Parallel()
	n := theNode(t)
	p := n.workspace(t, "acme", 1000)
	who := p.join(ledger.Owner)
	b := newTab(t, n).as(who)
	b.bear("status of 422")
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
	b.fill("code", signin.TOTPCode(secret, signin.TOTPStep(time.Now())))
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
}
