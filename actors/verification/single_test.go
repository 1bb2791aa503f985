package verification

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/actors/intake"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
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
		effort.OK(t, err)
		v = w.finishes(w.options(w.watches()), v.ID)
		effort.ErrorIf(t, v.Status != ledger.Completed || v.Kind != ledger.Single || v.SingleEmail != address ||
			v.SingleOutcome != c.outcome || v.Total != 1, "%s: %+v", address, v)
		effort.Same(t, w.results(v.ID), map[string]string{address: c.result}, address)
		b := w.sound()
		effort.ErrorIf(t, b.Spent != 1 || b.Available != 4, "%s: balance %+v", address, b)
		page, err := w.book.RecentResults(ctx, ledger.RecentQuery{Workspace: w.workspace, Verification: v.ID, Limit: 9})
		effort.ErrorIf(t, err != nil || len(page.Results) != 1 || page.Results[0].Email != address ||
			page.Results[0].Outcome != c.outcome, "%s: recent %+v, %v", address, page, err)
	}
}

// TestTheFileOfOneAddressIsReadAsThatAddress: what the ledger writes for a check is no header and no defect, whatever
// is in the address.
func TestTheFileOfOneAddressIsReadAsThatAddress(t *testing.T) {
	t.Parallel()
	s := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	defer func() { _ = s.Close() }()
	workspace := uuid.New()
	effort.Must(s.CreateWorkspace(t.Context(), workspace, "checks"))(t)
	for _, address := range []string{"a@b.test", "email@test", "A.B+c@Sub.Example.TEST",
		`"a,b"@c.test`, `"a\"b"@c.test`, `"a""b"@c.test`,
		`"\\"@c.test`, "a@bücher.test", "jörg@b.test", "=1+1@b.test", "'@b.test", "a@xn--bcher-kva.test",
		strings.Repeat("a", 64) + "@b.test"} {
		c := ledger.CreateSingle{ID: uuid.New(), Workspace: workspace, Identity: uuid.New(), Address: address,
			Limits: ledger.Limits{Open: 100, Stored: 1 << 20, Unpaid: 100}}
		if c.Check() != nil {
			_, err := s.CreateSingle(t.Context(), c)
			effort.ErrorIf(t, err == nil, "%q is no address and was taken", address)
			continue
		}
		v, err := s.CreateSingle(t.Context(), c)
		effort.OK(t, err, address)
		f := readSingle(t, s, v)
		effort.ErrorIf(t, f.Rows() != 1 || f.Len() != 1 || spelled(f, 0) != address,
			"%q: %d rows, %d addresses, the first %q", address, f.Rows(), f.Len(), spelled(f, 0))
	}
	list, err := s.History(t.Context(), ledger.HistoryQuery{Workspace: workspace, Limit: 99})
	effort.ErrorIf(t, err != nil || len(list) < 11, "%d were taken, %v", len(list), err)
}

func readSingle(t *testing.T, s *sqlstore.Store, v ledger.Verification) *intake.File {
	t.Helper()
	bytes := effort.Must(s.OpenFile(t.Context(), v.ID))(t)
	defer func() { _ = bytes.Close() }()
	f, err := intake.Read(io.Reader(bytes), intake.Limits{RowsMax: 1})
	effort.OK(t, err, v.SingleEmail)
	return f
}

// spelled is an address as the file spells it.
func spelled(f *intake.File, ordinal int) string {
	var b strings.Builder
	f.SpellTo(&b, ordinal)
	return b.String()
}
