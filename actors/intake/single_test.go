package intake

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// TestTheFileOfOneAddressIsReadAsThatAddress: what the ledger writes for a check is no header and no defect, whatever is in
// the address.
func TestTheFileOfOneAddressIsReadAsThatAddress(t *testing.T) {
	t.Parallel()
	s, err := sqlstore.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	workspace := uuid.New()
	if _, err := s.CreateWorkspace(t.Context(), workspace, "checks"); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"a@b.test", "email@test", "A.B+c@Sub.Example.TEST", `"a,b"@c.test`, `"a\"b"@c.test`, `"a""b"@c.test`, `"\\"@c.test`,
		"a@bücher.test", "jörg@b.test", "=1+1@b.test", "'@b.test", "a@xn--bcher-kva.test", strings.Repeat("a", 64) + "@b.test"} {
		c := ledger.CreateSingle{ID: uuid.New(), Workspace: workspace, Identity: uuid.New(), Address: address,
			Limits: ledger.Limits{Open: 100, Stored: 1 << 20, Unpaid: 100}}
		if c.Check() != nil {
			if _, err := s.CreateSingle(t.Context(), c); err == nil {
				t.Errorf("%q is no address and was taken", address)
			}
			continue
		}
		v, err := s.CreateSingle(t.Context(), c)
		if err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		f := readSingle(t, s, v)
		if f.Rows() != 1 || f.Len() != 1 || f.Spelling(0) != address {
			t.Errorf("%q: %d rows, %d addresses, the first %q", address, f.Rows(), f.Len(), f.Spelling(0))
		}
	}
	if list, err := s.History(t.Context(), ledger.HistoryQuery{Workspace: workspace, Limit: 99}); err != nil || len(list) < 11 {
		t.Errorf("%d were taken, %v", len(list), err)
	}
}

func readSingle(t *testing.T, s *sqlstore.Store, v ledger.Verification) *File {
	t.Helper()
	bytes, err := s.OpenFile(t.Context(), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bytes.Close() }()
	f, err := Read(io.Reader(bytes), Limits{RowsMax: 1})
	if err != nil {
		t.Fatalf("%q: %v", v.SingleEmail, err)
	}
	return f
}
