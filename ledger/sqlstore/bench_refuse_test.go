package sqlstore_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
)

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
