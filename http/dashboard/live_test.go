package dashboard_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/dashboard"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

// settle gives more results to the verification that was made last.
func (g *rig) settle(number int64, results ...ledger.Result) {
	g.t.Helper()
	effort.Must(g.book.Settle(g.t.Context(), ledger.Settlement{Lease: g.held, Number: number, Results: results}))(g.t)
}

// The balance comes with the part when the verification has moved credits, and costs a question to the ledger only
// then.
func TestThePartBringsTheBalanceWhenCreditsWereMoved(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	v := g.verification("list.csv", 9, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	viewer, path := g.as["viewer"], g.path("/verifications/"+v.ID.String())
	page := viewer.get(path)
	effort.FatalIf(t, !strings.Contains(page.body, `id="credits">991<`), "the head has not the balance: %s", page.body)
	tag := viewer.get(path + "/live").header.Get("ETag")
	asked := func(reads int64, credits string) {
		t.Helper()
		before := g.book.balances.Load()
		a := viewer.get(path+"/live", "If-None-Match", tag)
		found := regexp.MustCompile(` data-credits="([^"]*)"`).FindStringSubmatch(a.body)
		got := ""
		if found != nil {
			got = found[1]
		}
		if n := g.book.balances.Load() - before; n != reads || got != credits {
			t.Errorf("%d: the balance was read %d times and is %q, want %d and %q", a.status, n, got, reads, credits)
		}
		tag = a.header.Get("ETag")
	}
	asked(0, "")
	g.settle(2, result(1, "b@x.test", smtp.Valid, smtp.MailboxExists), result(2, "c@x.test", smtp.Unknown, smtp.Greylisted))
	asked(1, "992")
	asked(0, "")
	effort.Must(g.book.Cancel(t.Context(), g.workspace, v.ID))(t)
	asked(0, "") // it is being cancelled: the part is another, no credit has moved
	effort.Must(g.book.FinishCancel(t.Context(), g.held))(t)
	balance := effort.Must(g.book.Store.Balance(t.Context(), g.workspace))(t)
	effort.MustBe(t, balance.Held, 0)
	asked(1, web.Thin(balance.Available))
	asked(0, "")
}

// TestEverythingAPartShowsIsInItsKey: a key is of the part's JSON, so nothing that a template sees may be left out of
// that.
func TestEverythingAPartShowsIsInItsKey(t *testing.T) {
	t.Parallel()
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		switch _, own := of.MethodByName("MarshalJSON"); {
		case of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice:
			look(of.Elem())
		case of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]():
			effort.ErrorIf(t, own, "%v may leave something out of its JSON", of)
			for f := range of.Fields() {
				effort.ErrorIf(t, f.IsExported() && f.Tag.Get("json") != "", "%v: %s may be left out", of, f.Name)
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[dashboard.LiveView]())
}

// TestOneUserSlowsNobodyElsesPages: whoever asks too much is told to wait. Pages of others ask as often as before.
func TestOneUserSlowsNobodyElsesPages(t *testing.T) {
	t.Parallel()
	g := newRigWith(t, func(*dashboard.Options) {}, func(l *httpd.Limits) { l.Pages = httpd.DefaultLimits().Pages })
	path := g.path("/verifications/" + g.verification("list.csv", 9).ID.String() + "/live")
	var asked, told atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 30 {
				asked.Add(1)
				if a := g.as["viewer"].get(path); a.status == 429 && a.header.Get("Retry-After") != "" {
					told.Add(1)
				}
			}
		})
	}
	all.Wait()
	effort.ErrorIf(t, told.Load() == 0 || asked.Load()-told.Load() < 60,
		"of %d requests at once %d were told to wait", asked.Load(), told.Load())
	if a := g.as["viewer"].get(g.path("")); a.status == 429 && !strings.Contains(a.body, "Too much at once") {
		t.Errorf("a page: %d %s", a.status, a.body)
	}
	g.as["member"].get(path).says(t, 200, `data-hx-trigger="every 2s"`, "another user")
}

func TestPartsAskAgainAsTheirStateSays(t *testing.T) {
	t.Parallel()
	credits := &ledger.Issue{Code: ledger.CreditsRequired}
	for _, c := range []struct {
		v    ledger.Verification
		want string
	}{
		{ledger.Verification{Status: ledger.Uploading}, "2s"}, {ledger.Verification{Status: ledger.Verifying}, "2s"},
		{ledger.Verification{Status: ledger.Waiting}, "10s"}, {ledger.Verification{Status: ledger.Waiting, Issue: credits}, "5s"},
		{ledger.Verification{Status: ledger.Verifying, Kind: ledger.Single}, "1s"}, {ledger.Verification{Status: ledger.Cancelling}, "2s"},
		{ledger.Verification{Status: ledger.Completed}, ""}, {ledger.Verification{Status: ledger.Failed}, ""},
	} {
		effort.Is(t, dashboard.EveryOf(c.v), c.want, fmt.Sprintf("%s %v", c.v.Status, c.v.Issue))
	}
}

// A part that was not made because nothing has changed is the same as one that was.
func TestAPartIsMadeAgainOnlyWhenItShowsSomethingElse(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	v := g.verification("list.csv", 9, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	path := g.path("/verifications/" + v.ID.String() + "/live")
	viewer, member := g.as["viewer"].get(path), g.as["member"].get(path)
	if viewer.header.Get("ETag") == member.header.Get("ETag") || strings.Contains(viewer.body, "Cancel") || !strings.Contains(member.body, "Cancel") {
		t.Error("a viewer is shown what a member is")
	}
	for range 3 {
		for name, tag := range map[string]string{"viewer": viewer.header.Get("ETag"), "member": member.header.Get("ETag")} {
			if a := g.as[name].get(path, "If-None-Match", tag); a.status != 304 || a.header.Get("ETag") != tag {
				t.Errorf("%s: %d %q", name, a.status, a.header.Get("ETag"))
			}
		}
		a := g.as["viewer"].get(path, "If-None-Match", member.header.Get("ETag"))
		effort.ErrorIf(t, a.status != 200 || a.body != viewer.body, "with the tag of another role: %d", a.status)
	}
	g.settle(2, result(1, "b@x.test", smtp.Valid, smtp.MailboxExists))
	g.as["viewer"].get(path, "If-None-Match", viewer.header.Get("ETag")).says(t, 200, ">2<", "after a settlement")
}

func TestAFileThatIsOverSaysWhatItCost(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	none := g.create("none.csv", 10)
	effort.Must(g.book.Cancel(t.Context(), g.workspace, none.ID))(t)
	some := g.verification("some.csv", 2, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	effort.Must(g.book.Cancel(t.Context(), g.workspace, some.ID))(t)
	effort.Must(g.book.FinishCancel(t.Context(), g.held))(t)
	failed := g.create("failed.csv", 4)
	g.engine().FillsWith(failed, []byte("a@b\n"))
	effort.Must(g.book.Refuse(t.Context(), g.lease(failed.ID), ledger.Issue{Code: "invalid_row",
		Message: "The row has no address.", Row: 7, Text: "anna@<b>"}))(t)
	for _, c := range []struct {
		id   uuid.UUID
		as   string
		has  []string
		lack string
	}{
		{none.ID, "member", []string{"cancelled before any address was checked: there are no results, and it cost nothing"}, "can be downloaded as soon"},
		{some.ID, "member", []string{"It was cancelled. Unchecked addresses cost nothing."}, "no results"},
		{failed.ID, "member", []string{"Row 7: The row has no address. No credits were used.", `aria-label="Row 7"><code>anna@&lt;b&gt;</code>`,
			"Upload the corrected file"}, "can be downloaded as soon"},
		{failed.ID, "viewer", []string{"No credits were used.", "anna@&lt;b&gt;"}, "Upload the corrected file"},
	} {
		page := g.as[c.as].get(g.path("/verifications/" + c.id.String())).body
		for _, want := range c.has {
			effort.Has(t, page, want, c.id, "for a", c.as)
		}
		effort.Lacks(t, page, c.lack, c.id, "for a", c.as)
	}
}

func TestAnExpectedEndHasItsDay(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	v := g.verification("list.csv", 2)
	ends := g.clock().UTC().Truncate(24 * time.Hour).Add(24*time.Hour + 11*time.Hour + 12*time.Minute)
	effort.Must(g.book.Wait(t.Context(), g.held, ledger.Estimate{Next: ends.Add(-time.Hour), Expected: ends}))(t)
	effort.Has(t, g.as["viewer"].get(g.path("/verifications/"+v.ID.String())).body,
		"It's expected to end tomorrow at 11:12 UTC.", "the page")
}
