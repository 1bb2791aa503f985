package verification

import (
	"context"
	"maps"
	"testing"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

// TestACheckOfOneAddressRunsAsAFileDoes: from the form over intake and the receiver to its result.
func TestACheckOfOneAddressRunsAsAFileDoes(t *testing.T) {
	for address, c := range map[string]struct {
		outcome smtp.Outcome
		result  string
	}{
		"yes@good.test":   {smtp.Valid, "valid mailbox_exists"},
		"no@good.test":    {smtp.Invalid, "invalid mailbox_not_found"},
		"x@all.test":      {smtp.CatchAll, "catch_all accept_all"},
		`"x,y"@none.test`: {smtp.Invalid, "invalid no_mail_service"},
	} {
		w := newWorld(t, 5)
		ctx := context.Background()
		v, err := w.book.CreateSingle(ctx, ledger.CreateSingle{ID: uuid.New(), Workspace: w.workspace, Identity: uuid.New(), Address: address,
			Limits: ledger.Limits{Open: 1, Stored: 1 << 10, Unpaid: 1}})
		if err != nil {
			t.Fatal(err)
		}
		v = w.finishes(w.options(w.watches()), v.ID)
		if v.Status != ledger.Completed || v.Kind != ledger.Single || v.SingleEmail != address || v.SingleOutcome != c.outcome || v.Total != 1 {
			t.Errorf("%s: %+v", address, v)
		}
		if got := w.results(v.ID); !maps.Equal(got, map[string]string{address: c.result}) {
			t.Errorf("%s: %v", address, got)
		}
		if b := w.sound(); b.Spent != 1 || b.Available != 4 {
			t.Errorf("%s: balance %+v", address, b)
		}
		page, err := w.book.RecentResults(ctx, ledger.RecentQuery{Workspace: w.workspace, Verification: v.ID, Limit: 9})
		if err != nil || len(page.Results) != 1 || page.Results[0].Email != address || page.Results[0].Outcome != c.outcome {
			t.Errorf("%s: recent %+v, %v", address, page, err)
		}
	}
}
