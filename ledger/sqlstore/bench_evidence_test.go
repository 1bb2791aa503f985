package sqlstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

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
				d := ledgertest.NewDesk(b, book, 2*evidenceBatches*benchBatch)
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
func settleBoth(b *testing.B, d *ledgertest.Desk, files *[2]ledger.Verification) (took [2]time.Duration) {
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
func readEvidence(b *testing.B, d *ledgertest.Desk, v ledger.Verification) error {
	bytes := 0
	_, err := d.Evidence(b.Context(), v.ID, 0, func(k ledger.Kept) error {
		bytes += len(k.Evidence)
		return nil
	})
	if err == nil && bytes != evidenceBatches*evidenceBytes {
		return fmt.Errorf("%d bytes of evidence", bytes)
	}
	return err
}
