package sqlstore_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
)

// BenchmarkCreate makes verifications, and cancels each, in a workspace that has so many files whose
// bytes are kept: a create adds them up.
func BenchmarkCreate(b *testing.B) {
	const fill = `INSERT INTO verifications (id, workspace, identity, kind, filename, bytes, upload_expires, status,
		created, total, completed, paid)
		WITH RECURSIVE many (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < %d)
		SELECT %s, (SELECT id FROM workspaces), %[2]s, 'bulk', '', 1, 0, 'cancelled', n, 1, 1, 1 FROM many; ANALYZE`
	for _, kept := range []int{1, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("sqlite/%d", kept), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "ledger.db")
			createsBeside(b, "sqlite:"+path, func() { changeIn(b, path, fmt.Sprintf(fill, kept, "randomblob(16)")) })
		})
		b.Run(fmt.Sprintf("postgresql/%d", kept), func(b *testing.B) {
			url := sqlstore.NewLedger(b)
			createsBeside(b, url, func() {
				changeIn(b, url, strings.Replace(fmt.Sprintf(fill, kept, "uuid_send(gen_random_uuid())"), "ANALYZE",
					"VACUUM ANALYZE verifications", 1))
			})
		})
	}
}

func createsBeside(b *testing.B, url string, fill func()) {
	b.Helper()
	s, err := sqlstore.Open(b.Context(), url, sqlstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	d := ledgertest.NewDesk(b, s, 0)
	fill()
	for b.Loop() {
		n := d.Asks(7)
		n.Limits.Unpaid = 1 << 30
		v, _, err := s.Create(b.Context(), n)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := s.Cancel(b.Context(), d.Workspace, v.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// changeIn runs statements on a ledger that is open elsewhere, each for itself.
func changeIn(b *testing.B, where, statements string) {
	b.Helper()
	driver := "sqlite"
	if strings.HasPrefix(where, "postgres") {
		driver = "pgx"
	}
	db, err := sql.Open(driver, where)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for one := range strings.SplitSeq(statements, ";") {
		if _, err := db.Exec(one); err != nil {
			b.Fatal(err)
		}
	}
}
