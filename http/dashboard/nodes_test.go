package dashboard_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/http/dashboard"
	"rollcall/ledger"
)

// anotherNode starts the pages of a second node, which shares the ledger and nothing else.
func (g *rig) anotherNode() *rig {
	g.t.Helper()
	n := &rig{t: g.t, book: g.book, workspace: g.workspace}
	pages, err := dashboard.New(context.Background(), dashboard.Options{Book: g.book, PublicURL: func() string { return n.url },
		UploadURL: "http://127.0.0.1:7", MaxFileBytes: 1 << 20, MaxRows: 1000, SessionIdle: time.Hour, SessionLife: 24 * time.Hour,
		PerWorkspace: ledger.Limits{Open: 100, Stored: 1 << 30, Unpaid: 1000}, Log: slog.New(slog.DiscardHandler), Now: g.clock,
		Waits: g.waits, Checks: func() bool { return true }, Wake: func() {}, Registerer: prometheus.NewRegistry()})
	effort.OK(g.t, err)
	server := httptest.NewServer(pages)
	n.url = server.URL
	g.t.Cleanup(func() { server.Close(); pages.Stop() })
	return n
}

// TestWhatEndsAtOneNodeEndsAtTheOthers: another node has just let somebody in and remembers it. Five seconds later it does
// not any more, whatever was ended and wherever.
func TestWhatEndsAtOneNodeEndsAtTheOthers(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	other := g.anotherNode()
	member := func(email string) (here, there *browser, user ledger.SignedIn) {
		here = g.join(email, g.workspace, ledger.Member)
		found := effort.Must(g.book.UserByEmail(t.Context(), email))(t)
		user.User = found
		return here, &browser{g: other, session: here.session}, user
	}
	owner := g.as["owner"]
	people := func(u ledger.SignedIn) string { return g.path("/people/" + u.User.ID.String()) }
	form := func() string { return uuid.NewString() }
	for name, c := range map[string]struct {
		end  func(here *browser, u ledger.SignedIn) answer
		path string // that the other node refuses then
		want int
	}{
		"signed out": {func(here *browser, _ ledger.SignedIn) answer { return here.post("/sign-out") }, "/you", 303},
		"another session": {func(here *browser, u ledger.SignedIn) answer {
			return g.browser(g.as["nobody"].signIn(u.User.Email, password, "/").cookie()).post("/you/sessions", "all", "1")
		}, "/you", 303},
		"by an owner": {func(_ *browser, u ledger.SignedIn) answer { return owner.post(people(u)+"/sessions", "form", form()) }, "/you", 303},
		"the role": {func(_ *browser, u ledger.SignedIn) answer {
			return owner.post(people(u)+"/role", "form", form(), "role", "viewer")
		}, g.path("/check"), 403},
		"the membership": {func(_ *browser, u ledger.SignedIn) answer {
			return owner.post(people(u)+"/role", "form", form(), "remove", "1")
		}, g.path(""), 404},
		"the user": {func(_ *browser, u ledger.SignedIn) answer {
			effort.Must(g.book.DisableUser(ledger.WithActor(t.Context(), "operator"), u.User.ID, true))(t)
			return answer{status: 303}
		}, "/you", 303},
	} {
		here, there, user := member(uuid.NewString()[:8] + "@acme.test")
		effort.MustBe(t, there.get(c.path).status, 200, name, "the other node answers before it ends")
		c.end(here, user).must(t, 303, name, "ending it")
		g.now.Add(5)
		effort.Is(t, there.get(c.path).status, c.want, name, "five seconds later the other node answers")
	}
}

// TestNobodyActsOnWhatANodeBelieves: a session is believed for some seconds by the node that has just let it in.
// Whoever was disabled, signed out, removed or given a lower role meanwhile changes nothing more, by any form at any
// node.
func TestNobodyActsOnWhatANodeBelieves(t *testing.T) {
	effort.NotShort(t, "posts eighty forms")
	effort.Unraced(t, "one call after the other")
	t.Parallel()
	g := newRig(t)
	nodes, ctx := []*rig{g, g.anotherNode()}, ledger.WithActor(t.Context(), "operator")
	endings := map[string]struct {
		end            func(u ledger.User) error
		inside, itself int // what forms of the workspace and of the user are answered
	}{
		"disabled":     {func(u ledger.User) error { _, err := g.book.DisableUser(ctx, u.ID, true); return err }, 401, 401},
		"signed out":   {func(u ledger.User) error { _, err := g.book.EndSessions(ctx, u.ID, ledger.Hash{}); return err }, 401, 401},
		"removed":      {func(u ledger.User) error { return g.book.SetRole(ctx, g.workspace, u.ID, "") }, 404, 0},
		"a lower role": {func(u ledger.User) error { return g.book.SetRole(ctx, g.workspace, u.ID, ledger.Viewer) }, 403, 0},
	}
	posted := 0
	for _, pattern := range dashboard.Patterns() {
		inside := strings.HasPrefix(pattern, "POST /w/")
		if !inside && !strings.HasPrefix(pattern, "POST /you/") || pattern == "POST /w/{ws}/verifications/{id}/results" {
			continue // it needs no session, or reads
		}
		for name, c := range endings {
			want := c.itself
			if inside {
				want = c.inside
			}
			if want == 0 {
				continue
			}
			for i, node := range nodes {
				email := uuid.NewString()[:8] + "@acme.test"
				warm := &browser{g: node, session: g.join(email, g.workspace, ledger.Owner).session}
				effort.MustBe(t, warm.get(g.path("")).status, 200, "an owner at node", i)
				path := table[pattern].path(g)
				effort.OK(t, c.end(effort.Must(g.book.UserByEmail(t.Context(), email))(t)))
				before := g.kept()
				a := warm.send("POST", path, table[pattern].form, table[pattern].header...)
				effort.ErrorIf(t, a.status != want, "%s, %s at node %d: %d, want %d", pattern, name, i, a.status, want)
				effort.Is(t, g.kept(), before, pattern, name, "at node", i, "something was changed")
				posted++
			}
		}
	}
	effort.ErrorIf(t, posted < 80, "only %d forms were posted", posted)
}
