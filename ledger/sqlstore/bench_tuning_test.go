package sqlstore_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// manyOverrides are statements that write 100,000 overrides that are over or were
// cleared, and some that hold; the id of one is made of its number i.
const manyOverrides = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000 + %d)
	INSERT INTO throttle_overrides (id, name, fields, author, reason, created, expires, ends)
	SELECT %s, 'mx' || i, '{"rate":"5/s","sessions":"2"}', 'ada', 'complaints', 1,
		CASE WHEN i %% 2 = 0 OR i > 100000 THEN 4000000000000 ELSE 1000 + i END,
		CASE WHEN i > 100000 THEN 4000000000000 ELSE 1000 + i END FROM n`

// BenchmarkTuning is what each node asks every second, beside 100,000 overrides of
// before.
func BenchmarkTuning(b *testing.B) {
	server := postgres.New(b, postgres.Options{Durable: true})
	for _, holding := range []int{0, 10, 1000} {
		b.Run(fmt.Sprintf("sqlite/holding=%d", holding), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "ledger.db")
			s := openAt(b, "sqlite:"+path)
			if err := tryChange(path, fmt.Sprintf(manyOverrides, holding, `randomblob(16)`)); err != nil {
				b.Fatal(err)
			}
			benchTuning(b, s, holding)
		})
		b.Run(fmt.Sprintf("postgresql/holding=%d", holding), func(b *testing.B) {
			url := server.NewDatabase(b, fmt.Sprintf("tuning_%d_%d", holding, b.N), "")
			if err := sqlstore.Migrate(b.Context(), url); err != nil {
				b.Fatal(err)
			}
			conn, err := pgx.Connect(b.Context(), url)
			if err != nil {
				b.Fatal(err)
			}
			for _, statement := range []string{
				fmt.Sprintf(manyOverrides, holding, `decode(md5(i::text), 'hex')`), `ANALYZE`} {
				if _, err := conn.Exec(b.Context(), statement); err != nil {
					b.Fatal(err)
				}
			}
			_ = conn.Close(b.Context())
			benchTuning(b, openAt(b, url), holding)
		})
	}
}

func benchTuning(b *testing.B, s *sqlstore.Store, holding int) {
	for b.Loop() {
		tuning, err := s.Tuning(b.Context())
		if err != nil || len(tuning.Overrides) != holding {
			b.Fatalf("%d hold, want %d, %v", len(tuning.Overrides), holding, err)
		}
	}
}
