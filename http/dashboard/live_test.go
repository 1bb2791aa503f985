package dashboard_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"rollcall/http/dashboard/view"
	"rollcall/ledger"
	"rollcall/smtp"
)

// settle gives more results to the verification that was made last.
func (g *rig) settle(number int64, results ...ledger.Result) {
	g.t.Helper()
	if _, err := g.book.Settle(context.Background(), ledger.Settlement{Lease: g.held, Number: number, Results: results}); err != nil {
		g.t.Fatal(err)
	}
}

// The balance comes with the part when the verification has moved credits, and costs a question to the ledger only then.
func TestThePartBringsTheBalanceWhenCreditsWereMoved(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	v := g.verification("list.csv", 9, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	viewer, path := g.as["viewer"], g.path("/verifications/"+v.ID.String())
	page := viewer.get(path)
	if !strings.Contains(page.body, `id="credits">991<`) {
		t.Fatalf("the head has not the balance: %s", page.body)
	}
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
	if _, err := g.book.Cancel(t.Context(), g.workspace, v.ID); err != nil {
		t.Fatal(err)
	}
	asked(0, "") // it is being cancelled: the part is another, no credit has moved
	if _, err := g.book.FinishCancel(t.Context(), g.held); err != nil {
		t.Fatal(err)
	}
	balance, err := g.book.Store.Balance(t.Context(), g.workspace)
	if err != nil || balance.Held != 0 {
		t.Fatalf("%+v, %v", balance, err)
	}
	asked(1, view.Thin(balance.Available))
	asked(0, "")
}
