package operate_test

import (
	"strings"
	"testing"

	"rollcall/http/dashboard/operate/operatetest"
)

func TestHealthShowsEveryNode(t *testing.T) {
	t.Parallel()
	g := operatetest.Start(t)
	v := visit(t, g, "ben", true)
	page := v.get("/health").body
	at := -1
	for _, want := range []string{"The ledger answers", "Node node-3 isn't answering", "This node, node-1", "Port 25 is closed &lt;here&gt;", "Ask the provider to open it.",
		"Node node-2", "It checks no addresses.", "no name &lt;b&gt;", "Ask the owner of the network for a name.", "softfail", "Show all: 1 other check",
		"replies since the start had words that no rule knows",
		"Node node-4", "It checks addresses.", "Show all: nothing fails, 1 check", "3 ms"} {
		i := strings.Index(page[at+1:], want)
		if i < 0 {
			t.Fatalf("the page has no %q behind\n%s", want, page[:at+1])
		}
		at += 1 + i
	}
	g.Away(true)
	g.Alone()
	a := v.get("/health")
	for _, want := range []string{"Other nodes are not shown", "This node", "Ask the provider to open it."} {
		if a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("alone, %d: no %q in %s", a.status, want, a.body)
		}
	}
	if strings.Contains(a.body, "Ask the owner of the network") {
		t.Error("it shows a node that was not asked")
	}
	if banner := v.get("/throttles").body; !strings.Contains(banner, "Node node-2 can't check addresses.") || !strings.Contains(banner, `<a href="/health">What to do</a>`) {
		t.Error("the banner does not lead to the page")
	}
}
