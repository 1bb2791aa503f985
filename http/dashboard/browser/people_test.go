package browser_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"rollcall/ledger"
)

// soon is the promise of the pages: a change of roles or sessions holds on every node within so long.
const soon = 5 * time.Second

// linkOf opens what the owner was shown: the link, once.
func linkOf(b *tab) string {
	b.t.Helper()
	link := eval[string](b, "document.querySelector('#made .once').innerText.trim()")
	path, ok := strings.CutPrefix(link, b.root)
	if !ok || !strings.HasPrefix(path, "/link/") {
		b.t.Fatalf("the page shows %q as the link", link)
	}
	return path
}

// choosesRole opens the page of a member and gives them a role.
func (b *tab) choosesRole(p *place, email, role string) {
	b.t.Helper()
	b.goTo(p.path + "/people/" + p.userID(email))
	b.shows("Role in this workspace")
	b.do(chromedp.SendKeys(chromedp.ID("role"), role))
	b.press("Change the role")
}

func TestSomebodyIsInvitedAndRemoved(t *testing.T) {
	t.Parallel()
	n := ownNode(t)
	p := n.workspace(t, "acme", 1000)
	b := newTab(t, n).as(p.join(ledger.Owner))
	b.goTo(p.path + "/people")
	b.shows("There are none. Invitations are listed here until they're accepted.")
	b.fill("email", "ben@acme.test")
	b.do(chromedp.SendKeys(chromedp.ID("role"), "member"))
	b.press("Make an invitation")
	b.shows("The link for ben@acme.test")
	path := linkOf(b)
	b.axe()
	for _, v := range b.violations() {
		t.Errorf("%s: %s", b.at(), v)
	}
	b.goTo(p.path + "/people")
	b.shows("Withdraw")
	if strings.Contains(eval[string](b, "document.documentElement.outerHTML"), path) {
		t.Error("the link is shown a second time")
	}

	ben := newTab(t, n)
	ben.goTo(path)
	ben.shows("ben@acme.test is invited to acme as member.")
	ben.fill("name", "Ben")
	ben.fill("password", password)
	ben.press("Accept the invitation")
	ben.shows("Upload your first file")
	ben.goTo(p.path + "/check")
	ben.fill("address", "ghost@acme-clean.test")

	// A viewer now: neither the page nor the form that is open still works.
	b.choosesRole(p, "ben@acme.test", "viewer")
	b.shows("The role was changed. It takes effect within 5 seconds.")
	n.later(soon)
	ben.bear("status of 403", "status of 404", "status of 401")
	ben.press("Check it")
	ben.shows("Your role doesn't allow this")
	ben.goTo(p.path)
	ben.shows("Members and owners can upload them")
	if eval[bool](ben, "[...document.querySelectorAll('a')].some((a) => /upload|check$/.test(a.href))") {
		t.Error("the page of a viewer leads to what only members may do")
	}

	// Their sessions end, and they sign in again.
	b.press("ben@acme.test")
	b.press("End all sessions")
	b.shows("All sessions of that member were ended. They stop within 5 seconds.")
	n.later(soon)
	ben.goTo(p.path)
	ben.shows("No account, or lost your password?")
	ben.signIn("ben@acme.test", password)
	ben.shows("Members and owners can upload them")

	// They are removed: for them there is nothing any more.
	b.press("ben@acme.test")
	b.press("Remove ben@acme.test")
	b.shows("They're no longer a member.")
	n.later(soon)
	ben.goTo(p.path)
	ben.shows("There is nothing here")
	b.goTo(p.path + "/log")
	for _, line := range []string{"invited ben@acme.test as member", "joined as member: ben@acme.test", "changed the role of ben@acme.test: member to viewer",
		"ended all sessions of ben@acme.test", "removed ben@acme.test, who was viewer"} {
		b.shows(line)
	}
}

func TestTheLastOwnerStays(t *testing.T) {
	t.Parallel()
	p := theNode(t).workspace(t, "acme", 1000)
	who := p.join(ledger.Owner)
	b := newTab(t, p.node).as(who)
	b.bear("status of 409")
	b.goTo(p.path + "/people/" + p.userID(who.email))
	b.press("Leave the workspace")
	b.shows("This is the last owner who can sign in. Make somebody else an owner first")
	b.choosesRole(p, who.email, "viewer")
	b.shows("This is the last owner who can sign in. Make somebody else an owner first")
	if at := eval[string](b, "document.activeElement.id"); at != "problem" {
		t.Errorf("%q has the focus, want the problem", at)
	}
	members, err := p.book.Members(t.Context(), p.id)
	if err != nil || len(members) != 1 || members[0].Role != ledger.Owner {
		t.Errorf("the members are %v, %v", members, err)
	}
}
