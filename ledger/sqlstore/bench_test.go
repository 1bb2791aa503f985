package sqlstore_test

import (
	"database/sql"
	"fmt"
	neturl "net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

const (
	benchRows  = 1_000_000
	benchBatch = 1_000
)

// benched is an empty ledger, as durable as in production, and a bare table t (n, payload) of the same database.
type benched struct {
	*ledgertest.Fixture
	bare *sql.DB
}

// onEngines runs a benchmark on each database.
func onEngines(b *testing.B, bench func(b *testing.B, d benched)) {
	run := func(name, driver string, open func(b *testing.B) (url, bare string)) {
		b.Run(name, func(b *testing.B) {
			url, bare := open(b)
			d := benched{Fixture: ledgertest.NewFixture(b, openAt(b, url), 1<<40)}
			var err error
			if d.bare, err = sql.Open(driver, bare); err == nil {
				d.bare.SetMaxOpenConns(1)
				_, err = d.bare.Exec(`CREATE TABLE t (n BIGINT PRIMARY KEY, payload ` +
					map[string]string{"sqlite": "BLOB", "pgx": "BYTEA"}[driver] + `)`)
			}
			effort.OK(b, err)
			b.Cleanup(func() { _ = d.bare.Close() })
			bench(b, d)
		})
	}
	run("sqlite", "sqlite", func(b *testing.B) (url, bare string) {
		q := neturl.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(4096)"}}
		return "sqlite:" + filepath.Join(b.TempDir(), "ledger.db"),
			"file:" + filepath.Join(b.TempDir(), "bare.db") + "?" + q.Encode()
	})
	run("postgresql", "pgx", func(b *testing.B) (url, bare string) {
		server := postgres.New(b, postgres.Options{Durable: true})
		url = server.NewDatabase(b, "bench", "")
		effort.OK(b, sqlstore.Migrate(b.Context(), url))
		return url, server.NewDatabase(b, "bare", "")
	})
}

// scattered gives settlement number of a file whose outcomes arrive in another
// order than its rows, as they do when domains answer at their own pace.
func scattered(l ledger.Lease, number, of int64) ledger.Settlement {
	s := ledger.Settlement{Lease: l, Number: number, Results: make([]ledger.Result, 0, benchBatch)}
	outcomes := [...]smtp.Outcome{smtp.Valid, smtp.Valid, smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown}
	for i := range int64(benchBatch) {
		ordinal := i*of + number - 1
		h := uint64(ordinal) * 0x9e3779b97f4a7c15
		s.Results = append(s.Results, ledger.Result{Ordinal: ordinal,
			Email:   fmt.Sprintf("%s.%d@%s.example", strconv.FormatUint(h>>44, 36), ordinal%977, strconv.FormatUint(h>>52, 36)),
			Outcome: outcomes[h>>33%6], Reason: smtp.Reason(1 + h>>30%20),
			At: time.UnixMilli(1_763_000_000_000 + int64(h>>50))})
	}
	return s
}

// settleAll settles a whole file of benchRows, and says how long that took, and how long it took to insert the very
// bytes of its payloads into the bare table. Both take turns with each batch, so that what else the machine does hits
// them alike.
func settleAll(b *testing.B, d benched) (id uuid.UUID, settled, inserted time.Duration) {
	const n = benchRows / benchBatch
	v, l := d.Prepares(benchRows)
	for number := int64(1); number <= n; number++ {
		s := scattered(l, number, n)
		packed, err := ledger.EncodeResults(s.Results)
		began := time.Now()
		if err == nil {
			_, err = d.Settle(b.Context(), s)
		}
		half := time.Now()
		if err == nil {
			_, err = d.bare.ExecContext(b.Context(), `INSERT INTO t (n, payload) VALUES ($1, $2)`, number, packed.Bytes)
		}
		effort.OK(b, err)
		settled, inserted = settled+half.Sub(began), inserted+time.Since(half)
	}
	return v.ID, settled, inserted
}

// BenchmarkSettle settles 1,000,000 outcomes in batches of 1,000. It prints the share of the speed of bare inserts
// that the ledger reaches with all its rules; 1 is equal.
func BenchmarkSettle(b *testing.B) {
	onEngines(b, func(b *testing.B, d benched) {
		var settled, inserted time.Duration
		for b.Loop() {
			effort.Must(d.bare.Exec(`DELETE FROM t`))(b)
			_, s, i := settleAll(b, d)
			settled, inserted = settled+s, inserted+i
		}
		b.ReportMetric(float64(settled.Milliseconds())/float64(b.N), "ledger-ms")
		b.ReportMetric(float64(inserted)/float64(settled), "of-same-bytes")
	})
}

// BenchmarkResults reads 1,000,000 settled rows in order; the bytes are those of their addresses.
func BenchmarkResults(b *testing.B) {
	onEngines(b, func(b *testing.B, d benched) {
		id, _, _ := settleAll(b, d)
		b.ReportAllocs()
		for b.Loop() {
			next, bytes := int64(0), 0
			err := d.Results(b.Context(), d.Workspace, id, func(r ledger.Result) error {
				if r.Ordinal != next {
					return fmt.Errorf("ordinal %d, want %d", r.Ordinal, next)
				}
				next, bytes = next+1, bytes+len(r.Email)
				return nil
			})
			effort.FatalIf(b, err != nil || next != benchRows, "%d rows, %v", next, err)
			b.SetBytes(int64(bytes))
		}
	})
}
