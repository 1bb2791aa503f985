package admin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestEntriesOfAVerification in two pages, and what is refused.
func TestEntriesOfAVerification(t *testing.T) {
	var service *admin.Service
	r := newRig(t, func(o *admin.Options) {
		o.Pages = func(s *admin.Service) (admin.Pages, error) { service = s; return nil, nil }
	})
	d := ledgertest.NewFixture(t, r.book, 50)
	v, l := d.Prepares(3)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	d.Settles(l, 2, 2, 2, smtp.Unknown)
	call := admin.EntriesCall{Workspace: d.Workspace, Verification: v.ID, Limit: 2}
	var lines []string
	for {
		page := effort.Must(service.ReadEntries(t.Context(), call))(t)
		for _, e := range page.Entries {
			lines = append(lines, fmt.Sprint(e.Kind, " ", e.Number, " ", e.Amount))
		}
		if call.After = page.Next; page.Next == "" {
			break
		}
	}
	effort.Is(t, strings.Join(lines, ", "), "release 2 1, charge 1 2, hold 0 3", "entries")
	refused := func(call admin.EntriesCall, code string) {
		t.Helper()
		var why *admin.Refusal
		if _, err := service.ReadEntries(t.Context(), call); !errors.As(err, &why) || why.Code != code {
			t.Errorf("%+v: got %v, want %s", call, err, code)
		}
	}
	for _, call.After = range []string{"a", "1.2.gift", "1.2"} {
		refused(call, "invalid_request")
	}
	call.After, call.Workspace = "", uuid.New()
	refused(call, "verification_not_found")
}

// TestDrainEndsLongCalls so that the ledger can be closed.
func TestDrainEndsLongCalls(t *testing.T) {
	r := newRig(t)
	r.server.Drain()
	r.server.Drain()
	sent(r.ask("GET", "/v1/audit", "")).is(t, 503, "audit after the drain")
}
