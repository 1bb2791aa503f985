package sqlstore_test

import (
	"database/sql"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
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
	d := ledgertest.NewDesk(b, book, 2*benchRows)
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
func settleAll(b *testing.B, d *ledgertest.Desk, l ledger.Lease) {
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
			d := ledgertest.NewDesk(b, book, 2*benchRows)
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
func readAll(b *testing.B, d *ledgertest.Desk, id uuid.UUID) (bytes, peak int64) {
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

// BenchmarkPointReads are the reads of every request.
func BenchmarkPointReads(b *testing.B) {
	d := ledgertest.NewDesk(b, openStore(b), 100)
	v, _ := d.Prepares(10)
	k, err := d.CreateKey(b.Context(), ledger.Key{ID: "abcdefghijkl", Workspace: d.Workspace})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		read func() error
	}{
		{"key", func() error { _, err := d.KeyByID(b.Context(), k.ID); return err }},
		{"balance", func() error { _, err := d.Balance(b.Context(), d.Workspace); return err }},
		{"verification", func() error {
			_, err := d.Verification(b.Context(), d.Workspace, v.ID)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
