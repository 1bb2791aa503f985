package sqlstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
