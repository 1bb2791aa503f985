package sqlstore_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// benchFiles is the book of the benchmarks below: so many verifications of 1,000
// addresses each.
const benchFiles = 1000

// fillBook settles benchFiles verifications, each in one batch of addresses that
// do not compress well.
func fillBook(b *testing.B, s *sqlstore.Store) *ledgertest.Desk {
	b.Helper()
	d := ledgertest.NewDesk(b, s, 1000*benchFiles+1)
	random := rand.New(rand.NewPCG(1, 2))
	for range benchFiles {
		v := d.Creates(30_000)
		d.Fills(v)
		l := d.Takes(v.ID)
		if _, err := d.Prepare(b.Context(), l, 1000, 0, 1000); err != nil {
			b.Fatal(err)
		}
		batch := ledgertest.Batch(l, 1, 0, 999, smtp.Valid)
		for i := range batch.Results {
			r := &batch.Results[i]
			r.Email = fmt.Sprintf("%x.%x@%x.example", random.Uint32(), random.Uint32(), random.Uint32N(100_000))
			r.Outcome = []smtp.Outcome{smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown}[random.IntN(4)]
			r.At = r.At.Add(time.Duration(random.Int64N(int64(time.Hour))))
		}
		if _, err := d.Settle(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	return d
}

// beside runs do while grants go on, and reports how long those took.
func beside(b *testing.B, d *ledgertest.Desk, do func()) {
	b.Helper()
	stop, ended := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var took []time.Duration
		for {
			select {
			case <-stop:
				ended <- took
				return
			default:
			}
			began := time.Now()
			d.Grants(1)
			took = append(took, time.Since(began))
		}
	}()
	for b.Loop() {
		do()
	}
	close(stop)
	took := <-ended
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "commit-p50-µs")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "commit-max-µs")
}

// BenchmarkAudit audits a book of 1,000,000 outcomes that goes on working.
func BenchmarkAudit(b *testing.B) {
	for _, e := range engines() {
		b.Run(e.name, func(b *testing.B) {
			s, _ := e.start(b).open(b)
			d := fillBook(b, s)
			beside(b, d, func() {
				if r, err := s.Audit(b.Context()); err != nil || r.Found > 0 || r.Outcomes != 1000*benchFiles {
					b.Fatalf("%+v, %v", r, err)
				}
			})
		})
	}
}

// BenchmarkBackup copies a book of 1,000,000 outcomes that goes on working.
func BenchmarkBackup(b *testing.B) {
	s := openStore(b)
	d := fillBook(b, s)
	path := filepath.Join(b.TempDir(), "copy.db")
	beside(b, d, func() {
		if err := s.Backup(b.Context(), path); err != nil {
			b.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(info.Size())
		if err := os.Remove(path); err != nil {
			b.Fatal(err)
		}
	})
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

// parkedFill inserts verifications that are parked for some hours, one address each, and the
// state of their work.
const parkedFill = `INSERT INTO verifications (id, workspace, identity, kind, filename, bytes, durable,
	upload_expires, status, created, records, total, held, next_try, wake_at, epoch, paid)
	SELECT %[1]s, $1, %[1]s, 'bulk', 'list.csv', 20, 20, $2 + i, 'waiting', $2 + i, 1, 1, 0, $2 + 3600000 + i * 100, $2 + 3600000 + i * 100,
	1, 1 FROM %[2]s`

// BenchmarkLeaseBesideParked is the question that each node asks each second for work, beside so many
// verifications that are parked: nothing is due, then one is, which is leased and given back.
func BenchmarkLeaseBesideParked(b *testing.B) {
	for _, e := range engines() {
		for _, rows := range []int64{0, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", e.name, rows), func(b *testing.B) {
				book, bare := e.start(b).open(b)
				d := ledgertest.NewDesk(b, book, 9)
				due := d.Takes(d.Uploads().ID) // before its workspace has many
				fill := fmt.Sprintf(parkedFill, e.randomID, e.series)
				now := time.Now().UnixMilli()
				_, err := bare.ExecContext(b.Context(), fill, d.Workspace[:], now, rows)
				if err == nil {
					_, err = bare.ExecContext(b.Context(), e.analyze)
				}
				if err != nil {
					b.Fatal(err)
				}
				full := []uuid.UUID{uuid.New(), uuid.New()}
				b.Run("nothing due", func(b *testing.B) {
					for b.Loop() {
						if list, err := book.Lease(b.Context(), d.Node, 1, time.Minute, full...); err != nil || len(list) > 0 {
							b.Fatalf("%d leased, %v", len(list), err)
						}
					}
				})
				if err := book.Release(b.Context(), due); err != nil {
					b.Fatal(err)
				}
				b.Run("one due", func(b *testing.B) {
					for b.Loop() {
						list, err := book.Lease(b.Context(), d.Node, 1, time.Minute, full...)
						if err != nil || len(list) != 1 {
							b.Fatalf("%d leased, %v", len(list), err)
						}
						l := ledger.Lease{Verification: list[0].ID, Node: d.Node, Epoch: list[0].Epoch}
						if err := book.Release(b.Context(), l); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkRefuse measures the transaction that refuses a file and erases its bytes, by the
// size of the file.
func BenchmarkRefuse(b *testing.B) {
	for name, url := range map[string]func() string{
		"sqlite":     func() string { return "sqlite:" + filepath.Join(b.TempDir(), "ledger.db") },
		"postgresql": func() string { return sqlstore.NewLedger(b) },
	} {
		for _, mib := range []int64{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/%d MiB", name, mib), func(b *testing.B) {
				s, err := sqlstore.Open(b.Context(), url(), sqlstore.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				d := ledgertest.NewDesk(b, s, 0)
				for b.Loop() {
					b.StopTimer()
					l := uploaded(b, d, mib<<20)
					b.StartTimer()
					if _, err := s.Refuse(b.Context(), l, ledger.Issue{Code: "csv_malformed"}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// uploaded is the lease of a file of some bytes, in chunks as the storage URL stores them.
func uploaded(b *testing.B, d *ledgertest.Desk, size int64) ledger.Lease {
	b.Helper()
	v := d.Creates(size)
	u, err := d.OpenUpload(b.Context(), v.ID)
	for data := bytes.Repeat([]byte("a@b.example\n"), 256<<10/12); err == nil && u.Durable < size; {
		u, err = d.AppendChunk(b.Context(), v.ID, u.Writer, u.Durable, data[:min(int64(len(data)), size-u.Durable)])
	}
	if err != nil {
		b.Fatal(err)
	}
	return d.Takes(v.ID)
}
