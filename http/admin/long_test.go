package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestEntriesOfAVerification in two pages, and what is refused.
func TestEntriesOfAVerification(t *testing.T) {
	r := newRig(t)
	d := ledgertest.NewFixture(t, r.book, 50)
	v, l := d.Prepares(3)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	d.Settles(l, 2, 2, 2, smtp.Unknown)
	path := "/v1/workspaces/" + d.Workspace.String() + "/verifications/" + v.ID.String() + "/entries"
	want := map[string]any{"verification": v.ID.String(), "status": "completed", "addresses": 3.0, "held": 3.0,
		"charged": 2.0, "released": 1.0, "still_held": 0.0, "count": 3.0}
	var lines []string
	for after := ""; ; {
		status, page := r.call("GET", path+"?limit=2"+after, "")
		for _, e := range page["entries"].([]any) {
			e := e.(map[string]any)
			effort.ErrorIf(t, len(e) != 4 || e["at"] == "", "entry %v", e)
			lines = append(lines, fmt.Sprint(e["kind"], " ", e["settlement"], " ", e["credits"]))
		}
		next, more := page["next"].(string)
		delete(page, "entries")
		delete(page, "next")
		effort.ErrorIf(t, status != 200 || !same(page, want), "%d %v, want %v", status, page, want)
		if !more {
			break
		}
		after = "&after=" + next
	}
	effort.Is(t, strings.Join(lines, ", "), "release 2 1, charge 1 2, hold <nil> 3", "entries")
	_, page := r.call("GET", path, "")
	effort.ErrorIf(t, len(page["entries"].([]any)) != 3 || page["next"] != nil, "without a limit: %v", page)
	for query, want := range map[string]int{"?limit=0": 400, "?limit=1001": 400, "?limit=a": 400,
		"?after=a": 400, "?after=1.2.gift": 400, "?after=1.2": 400, "?limit=1000": 200} {
		sent(r.ask("GET", path+query, "")).is(t, want, query)
	}
	other := strings.Replace(path, d.Workspace.String(), uuid.NewString(), 1)
	if status, out := r.call("GET", other, ""); status != 404 || codeOf(out) != "verification_not_found" {
		t.Errorf("in another workspace: %d %v", status, out)
	}
}

// TestDrainEndsLongCalls so that the ledger can be closed.
func TestDrainEndsLongCalls(t *testing.T) {
	r := newRig(t)
	r.server.Drain()
	r.server.Drain()
	sent(r.ask("GET", "/v1/audit", "")).is(t, 503, "audit after the drain")
}
