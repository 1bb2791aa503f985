package sqlstore_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

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

// scattered gives settlement number of a file whose outcomes arrive in another
// order than its rows, as they do when domains answer at their own pace.
func scattered(l ledger.Lease, number, of int64) ledger.Settlement {
	s := ledger.Settlement{Lease: l, Number: number, Results: make([]ledger.Result, 0, benchBatch)}
	outcomes := [...]smtp.Outcome{smtp.Valid, smtp.Valid, smtp.Valid, smtp.Invalid, smtp.CatchAll,
		smtp.Unknown}
	for i := range int64(benchBatch) {
		ordinal := i*of + number - 1
		h := uint64(ordinal) * 0x9e3779b97f4a7c15
		s.Results = append(s.Results, ledger.Result{Ordinal: ordinal,
			Email: fmt.Sprintf("%s.%d@%s.example", strconv.FormatUint(h>>44, 36), ordinal%977,
				strconv.FormatUint(h>>52, 36)),
			Outcome: outcomes[h>>33%6], Reason: smtp.Reason(1 + h>>30%20),
			At: time.UnixMilli(1_763_000_000_000 + int64(h>>50))})
	}
	return s
}

// BenchmarkSettle settles 1,000,000 outcomes in batches of 1,000. Beside each batch
// it inserts into bare tables of the same engine, each in one durable transaction:
// the very bytes of the ledger's payload, and the same results as CSV text. It
// prints the share of the bare speed that the ledger reaches with all its rules; 1
// is equal. Figures are medians of the runs (-benchtime 5x).
func BenchmarkSettle(b *testing.B) {
	for _, e := range engines() {
		b.Run(e.name, func(b *testing.B) {
			at := e.start(b)
			var took, same, text []float64
			for b.Loop() {
				r := settleRace(b, at)
				took = append(took, float64(r.ledger.Milliseconds()))
				same = append(same, float64(r.same)/float64(r.ledger))
				text = append(text, float64(r.text)/float64(r.ledger))
			}
			b.ReportMetric(median(took), "ledger-ms")
			b.ReportMetric(median(same), "of-same-bytes")
			b.ReportMetric(median(text), "of-csv-text")
		})
	}
}

// race is how long each side of BenchmarkSettle took.
type race struct{ ledger, same, text time.Duration }

// settleRace settles one file. The sides take turns with each batch, so that
// what else the machine does hits them alike.
func settleRace(b *testing.B, at place) (r race) {
	const n = benchRows / benchBatch
	book, _ := at.open(b)
	d := ledgertest.NewFixture(b, book, 2*benchRows)
	_, l := d.Prepares(benchRows)
	same, text := bareInsert(b, at.bare(b)), bareInsert(b, at.bare(b))
	for number := int64(1); number <= n; number++ {
		s := scattered(l, number, n)
		packed, err := ledger.EncodeResults(s.Results)
		if err != nil {
			b.Fatal(err)
		}
		csv := csvOf(s.Results)
		r.ledger += timed(b, func() error { _, err := d.Settle(b.Context(), s); return err })
		r.same += timed(b, func() error { return same(number, packed.Bytes) })
		r.text += timed(b, func() error { return text(number, csv) })
	}
	return r
}

// timed tells how long something took that must succeed.
func timed(b *testing.B, do func() error) time.Duration {
	start := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// bareInsert prepares the insert into a bare table.
func bareInsert(b *testing.B, db *sql.DB) func(n int64, payload []byte) error {
	insert, err := db.Prepare(`INSERT INTO t (n, payload) VALUES ($1, $2)`)
	if err != nil {
		b.Fatal(err)
	}
	return func(n int64, payload []byte) error {
		_, err := insert.ExecContext(b.Context(), n, payload)
		return err
	}
}

// median is the middle one of some figures, the higher of two.
func median(figures []float64) float64 {
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// csvOf gives results as the rows of a results file.
func csvOf(results []ledger.Result) []byte {
	var text []byte
	for _, r := range results {
		text = fmt.Appendf(text, "%s,%s,%s,%s\n", r.Email, r.Outcome, r.Reason.Message(),
			r.At.Format(time.RFC3339Nano))
	}
	return text
}

// settleAll settles a whole file of benchRows.
func settleAll(b *testing.B, d *ledgertest.Fixture, l ledger.Lease) {
	const n = benchRows / benchBatch
	for number := int64(1); number <= n; number++ {
		if _, err := d.Settle(b.Context(), scattered(l, number, n)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkResults reads 1,000,000 settled rows in order and prints how many
// bytes of results CSV that makes a second, and the greatest heap.
func BenchmarkResults(b *testing.B) {
	for _, e := range engines() {
		b.Run(e.name, func(b *testing.B) {
			book, _ := e.start(b).open(b)
			d := ledgertest.NewFixture(b, book, 2*benchRows)
			v, l := d.Prepares(benchRows)
			settleAll(b, d, l)
			debug.FreeOSMemory()
			var bytes, peak int64
			for b.Loop() {
				n, most := readAll(b, d, v.ID)
				bytes, peak = n, max(peak, most)
			}
			b.SetBytes(bytes)
			b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
		})
	}
}

// readAll reads benchRows results and tells how many bytes of CSV they make, and
// the greatest heap meanwhile.
func readAll(b *testing.B, d *ledgertest.Fixture, id uuid.UUID) (bytes, peak int64) {
	next := int64(0)
	err := d.Results(b.Context(), d.Workspace, id, func(r ledger.Result) error {
		if r.Ordinal != next {
			return fmt.Errorf("ordinal %d, want %d", r.Ordinal, next)
		}
		next++
		bytes += int64(len(r.Email) + len(r.Outcome.String()) + len(r.Reason.Message()) +
			len(",,,2006-01-02T15:04:05.000Z\n"))
		if r.Ordinal%50_000 == 0 {
			peak = max(peak, heap())
		}
		return nil
	})
	if err != nil || next != benchRows {
		b.Fatalf("%d rows, %v", next, err)
	}
	return bytes, peak
}

func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// engine is a database that a benchmark runs on.
type engine struct {
	name string
	// randomID and series are a random key, and a table of the numbers from 0 to
	// below the parameter $3, as i.
	randomID, series string
	// analyze lets the database look at what it has, as PostgreSQL does by itself in time; nothing does so for SQLite.
	analyze string
	start   func(b *testing.B) place
}

// place is a running engine, as durable as in production.
type place struct {
	// open makes an empty ledger, and a connection past its rules to the same database.
	open func(b *testing.B) (*sqlstore.Store, *sql.DB)
	// bare makes an empty table t (n, payload).
	bare func(b *testing.B) *sql.DB
}

// engines are those of the machine; one that is missing skips its benchmark.
func engines() []engine {
	return []engine{
		{"sqlite", "randomblob(16)", `(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n
			WHERE i < $3 - 1) SELECT i FROM n)`, "", startSQLite},
		{"postgresql", "uuid_send(gen_random_uuid())", `generate_series(0, CAST($3 AS BIGINT) - 1) AS n(i)`,
			"VACUUM ANALYZE", startPostgreSQL},
	}
}

func startSQLite(*testing.B) place {
	return place{
		open: func(b *testing.B) (*sqlstore.Store, *sql.DB) {
			path := filepath.Join(b.TempDir(), "ledger.db")
			book := openBook(b, "sqlite:"+path)
			// A large cache: filling a million rows by random keys is not what is measured.
			q := url.Values{"_pragma": {"cache_size(-400000)", "synchronous(OFF)"}}
			return book, connect(b, "sqlite", "file:"+path+"?"+q.Encode())
		},
		bare: func(b *testing.B) *sql.DB {
			q := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(4096)"}}
			db := connect(b, "sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+"?"+q.Encode())
			return bareTable(b, db, `CREATE TABLE t (n INTEGER PRIMARY KEY, payload BLOB)`)
		},
	}
}

func startPostgreSQL(b *testing.B) place {
	server := postgres.New(b, postgres.Options{Durable: true})
	made := 0
	database := func(b *testing.B) string {
		made++
		return server.NewDatabase(b, fmt.Sprintf("bench%d", made), "")
	}
	return place{
		open: func(b *testing.B) (*sqlstore.Store, *sql.DB) {
			url := database(b)
			if err := sqlstore.Migrate(b.Context(), url); err != nil {
				b.Fatal(err)
			}
			return openBook(b, url), connect(b, "pgx", url)
		},
		bare: func(b *testing.B) *sql.DB {
			return bareTable(b, connect(b, "pgx", database(b)),
				`CREATE TABLE t (n BIGINT PRIMARY KEY, payload BYTEA)`)
		},
	}
}

// openBook opens a ledger that ends with the benchmark.
func openBook(b *testing.B, url string) *sqlstore.Store {
	b.Helper()
	book, err := sqlstore.Open(b.Context(), url, sqlstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = book.Close() })
	return book
}

// connect opens one connection that ends with the benchmark.
func connect(b *testing.B, driver, name string) *sql.DB {
	b.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// bareTable makes the table of a bare database.
func bareTable(b *testing.B, db *sql.DB, statement string) *sql.DB {
	b.Helper()
	if _, err := db.ExecContext(b.Context(), statement); err != nil {
		b.Fatal(err)
	}
	return db
}

const (
	evidenceBatches = 200
	// evidenceBytes is what 1,000 cases take when no two of them are alike.
	evidenceBytes = 200 << 10
)

// BenchmarkEvidence settles two files of 200,000 outcomes by turns, one with
// evidence, and reads them by turns: results must not get slower by evidence that
// they do not show. Figures are medians (-benchtime 5x).
func BenchmarkEvidence(b *testing.B) {
	for _, e := range engines() {
		b.Run(e.name, func(b *testing.B) {
			at := e.start(b)
			var settle, results [2][]float64
			var evidence []float64
			for b.Loop() {
				book, _ := at.open(b)
				d := ledgertest.NewFixture(b, book, 2*evidenceBatches*benchBatch)
				files := [2]ledger.Verification{}
				for i, took := range settleBoth(b, d, &files) {
					settle[i] = append(settle[i], float64(took.Microseconds())/evidenceBatches/1e3)
				}
				for range 3 {
					for i, v := range files {
						took := timed(b, func() error {
							return d.Results(b.Context(), d.Workspace, v.ID, func(ledger.Result) error { return nil })
						})
						results[i] = append(results[i], float64(took.Microseconds())/1e3)
					}
				}
				took := timed(b, func() error { return readEvidence(b, d, files[1]) })
				evidence = append(evidence, float64(took.Microseconds())/1e3)
			}
			for i, name := range []string{"bare", "with"} {
				b.ReportMetric(median(settle[i]), name+"-ms/settle")
				b.ReportMetric(median(results[i]), name+"-ms/results")
			}
			b.ReportMetric(median(evidence), "ms/evidence")
		})
	}
}

// settleBoth settles the second file with evidence, and the first without.
func settleBoth(b *testing.B, d *ledgertest.Fixture, files *[2]ledger.Verification) (took [2]time.Duration) {
	random := rand.NewChaCha8([32]byte{})
	var leases [2]ledger.Lease
	for i := range files {
		files[i], leases[i] = d.Prepares(evidenceBatches * benchBatch)
	}
	for number := int64(1); number <= evidenceBatches; number++ {
		for i, l := range leases {
			s := scattered(l, number, evidenceBatches)
			if i == 1 {
				s.Evidence = make([]byte, evidenceBytes)
				_, _ = random.Read(s.Evidence)
			}
			took[i] += timed(b, func() error { _, err := d.Settle(b.Context(), s); return err })
		}
	}
	return took
}

// readEvidence reads all evidence of a file.
func readEvidence(b *testing.B, d *ledgertest.Fixture, v ledger.Verification) error {
	bytes := 0
	_, err := d.Evidence(b.Context(), v.ID, 0, func(k ledger.StoredSettlement) error {
		bytes += len(k.Evidence)
		return nil
	})
	if err == nil && bytes != evidenceBatches*evidenceBytes {
		return fmt.Errorf("%d bytes of evidence", bytes)
	}
	return err
}

const (
	// historyPage is the limit of a page that the API has when none is asked for.
	historyPage = 20
	// historyStart is when the first verification was made; one each second follows.
	historyStart = 1_700_000_000_000
	// One in a hundred is a single, so that a filter has to skip something.
	historySingles = 100
)

// historyFill inserts verifications that were completed and erased long ago: it is
// told how to make a random id, how to count from 0, and historySingles.
const historyFill = `INSERT INTO verifications (id, workspace, identity, kind, filename, bytes, durable,
	upload_expires, status, created, completed, records, total, count_valid, upload_deleted, results_deleted)
	SELECT %[1]s, $1, %[1]s, CASE i %% %[3]d WHEN 0 THEN 'single' ELSE 'bulk' END, 'list.csv', 1000, 1000,
	$2 + i * 1000 + 500, 'completed', $2 + i * 1000, $2 + i * 1000 + 500, 10, 10, 10, 1, 1 FROM %[2]s`

// BenchmarkHistory reads pages of the history of a workspace with 1,000 and with
// 1,000,000 verifications: the first page, one in the middle, and the same of
// one kind. Each is one range read of an index, so that the number hardly counts.
func BenchmarkHistory(b *testing.B) {
	for _, e := range engines() {
		for _, rows := range []int64{1_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", e.name, rows), func(b *testing.B) {
				book, bare := e.start(b).open(b)
				d := ledgertest.NewFixture(b, book, 0)
				fillHistory(b, e, bare, d.Workspace, rows)
				middle := &ledger.Position{Created: time.UnixMilli(historyStart + rows/2*1000), ID: uuid.Max}
				for _, c := range []struct {
					name  string
					query ledger.HistoryQuery
				}{
					{"first", ledger.HistoryQuery{}},
					{"middle", ledger.HistoryQuery{After: middle}},
					{"first of a kind", ledger.HistoryQuery{Kind: ledger.Single}},
					{"middle of a kind", ledger.HistoryQuery{Kind: ledger.Single, After: middle}},
				} {
					c.query.Workspace, c.query.Limit = d.Workspace, historyPage
					want := historyPage
					if c.query.Kind != "" { // a small workspace has fewer than a page of them
						want = min(want, int(rows)/historySingles)
						if c.query.After != nil {
							want = min(want, int(rows)/2/historySingles+1)
						}
					}
					b.Run(c.name, func(b *testing.B) { readPages(b, book, c.query, want) })
				}
			})
		}
	}
}

// fillHistory makes a workspace's verifications, past the rules of the ledger.
func fillHistory(b *testing.B, e engine, bare *sql.DB, workspace uuid.UUID, rows int64) {
	b.Helper()
	fill := fmt.Sprintf(historyFill, e.randomID, e.series, historySingles)
	_, err := bare.ExecContext(b.Context(), fill, workspace[:], int64(historyStart), rows)
	if err == nil {
		_, err = bare.ExecContext(b.Context(), e.analyze)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// readPages reads one page again and again.
func readPages(b *testing.B, book ledger.Book, q ledger.HistoryQuery, want int) {
	b.ReportAllocs()
	for b.Loop() {
		page, err := book.History(b.Context(), q)
		if err != nil || len(page) != want {
			b.Fatalf("%d of %d verifications, %v", len(page), want, err)
		}
	}
}

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
	d := ledgertest.NewFixture(b, s, 0)
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
