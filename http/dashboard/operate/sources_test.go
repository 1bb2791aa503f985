package operate_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger"
)

func holds(t *testing.T, g *pagetest.Rig, source string) (found []ledger.ThrottleOverride) {
	t.Helper()
	for _, o := range g.Overrides(t) {
		if o.Key == "source:"+source {
			found = append(found, o)
		}
	}
	return found
}

func TestASourceIsPausedDrainedAndResumed(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	list := v.get("/sources")
	_, page := v.follow(list, "/sources/change?")
	for _, want := range []string{"Pause 192.0.2.7", "node-1", "have no other source in use", `name="for"`, `name="reason"`} {
		effort.Has(t, page.Body, want, "the page that asks")
	}
	effort.MustBe(t, len(holds(t, g, "192.0.2.7")), 0, "asking set overrides")
	for to, want := range map[string]string{"pause": "yes", "drain": "drain"} {
		form := url.Values{"form": {uuid.NewString()}, "source": {"192.0.2.7"}, "to": {to}, "for": {"2h"}, "reason": {"listed"}}
		for range 2 {
			if a := v.send("POST", "/sources/change", form); a.Status != 303 || a.Header.Get("Location") != "/sources" {
				t.Fatalf("%s: %d %s", to, a.Status, a.Body)
			}
		}
		held := holds(t, g, "192.0.2.7")
		effort.FatalIf(t, len(held) != 1 || held[0].Fields["pause"] != want || len(held[0].Fields) != 1 ||
			held[0].Author != "eve" || held[0].Reason != "listed" ||
			held[0].Expires.Sub(held[0].Created) != 2*time.Hour, "%s: %+v", to, held)
		resume := url.Values{"source": {"192.0.2.7"}, "to": {"resume"}}
		if a := v.send("POST", "/sources/change", resume); a.Status != 422 || len(holds(t, g, "192.0.2.7")) != 1 {
			t.Errorf("resumed without a reason: %d", a.Status)
		}
		resume.Set("reason", "delisted")
		for range 2 {
			v.send("POST", "/sources/change", resume).Is(t, 303, "resume")
		}
		effort.Is(t, len(holds(t, g, "192.0.2.7")), 0, "hold after it was resumed")
	}
}

// TestTheSourceThatTheSystemChooses has no address, and rules of the name "source:".
func TestTheSourceThatTheSystemChooses(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	list := v.get("/sources")
	effort.Lacks(t, list.Body, "source=default&amp;to=pause", "a source that is paused can be paused")
	effort.Has(t, list.Body, `href="/throttles?name=source%3A">default`, "its rules cannot be looked at")
	_, page := v.follow(list, "/sources/change?source=default&to=resume")
	effort.Is(t, page.Status, 200)
	effort.Has(t, page.Body, "Resume default")
	form := url.Values{"form": {uuid.NewString()}, "source": {"default"}, "to": {"drain"}, "for": {"1h"}, "reason": {"x"}}
	a := v.send("POST", "/sources/change", form)
	effort.FatalIf(t, a.Status != 303 || len(holds(t, g, "")) != 1, "%d %s", a.Status, a.Body)
	form.Set("to", "resume")
	a = v.send("POST", "/sources/change", form)
	effort.ErrorIf(t, a.Status != 303 || len(holds(t, g, "")) != 0, "%d %s", a.Status, a.Body)
}

func TestWhatIsWrongWithAChangeOfASourceIsSaid(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	for field, wrong := range map[string][]string{"for": {"", "soon", "1000d", "500ms"}, "reason": {"", strings.Repeat("x", 300)}, "form": {"x"}} {
		for _, text := range wrong {
			form := url.Values{"form": {uuid.NewString()}, "source": {"192.0.2.7"}, "to": {"pause"}, "for": {"2h"}, "reason": {"listed"}}
			form.Set(field, text)
			v.send("POST", "/sources/change", form).Says(t, 422, `id="problem"`, field, text)
		}
	}
	for _, path := range []string{"/sources/change", "/sources/change?source=192.0.2.9&to=pause", "/sources/change?source=192.0.2.7&to=explode"} {
		effort.Is(t, v.get(path).Status, 404, path)
	}
	form := url.Values{"form": {uuid.NewString()}, "source": {"192.0.2.7"}, "to": {"explode"}, "for": {"2h"}, "reason": {"x"}}
	effort.Is(t, v.send("POST", "/sources/change", form).Status, 404, "a change that is none")
	effort.Is(t, len(g.Overrides(t)), 1, "overrides hold")
}

// TestAnOverrideOfMoreThanPauseIsNotEnded sets one as the command line can.
func TestAnOverrideOfMoreThanPauseIsNotEnded(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "eve", false)
	g.SetOverride(t, ledger.ThrottleOverride{ID: uuid.New(), Key: "source:192.0.2.8", Reason: "ticket <b>",
		Fields: map[string]string{"pause": "yes", "source_per_day": "10"}})
	a := v.send("POST", "/sources/change", url.Values{"source": {"192.0.2.8"}, "to": {"resume"}, "reason": {"over"}})
	effort.ErrorIf(t, a.Status != 422 || !strings.Contains(a.Body, "still held by an override") ||
		!strings.Contains(a.Body, "ticket &lt;b&gt;"), "%d %s", a.Status, a.Body)
	effort.Is(t, len(holds(t, g, "192.0.2.8")), 1, "hold")
}

func TestHealthShowsEveryNode(t *testing.T) {
	t.Parallel()
	g := pagetest.Start(t)
	v := visit(t, g, "ben", true)
	page := v.get("/health").Body
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
	g.Book.Away.Store(true)
	g.Alone()
	a := v.get("/health")
	for _, want := range []string{"Other nodes are not shown", "This node", "Ask the provider to open it."} {
		effort.Is(t, a.Status, 200, "alone")
		effort.Has(t, a.Body, want, "alone")
	}
	effort.Lacks(t, a.Body, "Ask the owner of the network", "it shows a node that was not asked")
	if banner := v.get("/throttles").Body; !strings.Contains(banner, "Node node-2 can't check addresses.") || !strings.Contains(banner, `<a href="/health">What to do</a>`) {
		t.Error("the banner does not lead to the page")
	}
}
