package sqlstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// BenchmarkContention settles batches of 1,000 from several verifications at once,
// all of one workspace, whose account they share, or each of its own. It prints
// settlements a second and how many transactions had to be run again for each, as
// two nodes do it: half of the verifications through either store.
func BenchmarkContention(b *testing.B) {
	server := postgres.New(b, postgres.Options{Durable: true})
	const each = 60 // settlements of one verification
	for _, shared := range []bool{true, false} {
		for _, files := range []int{1, 2, 4, 8, 16} {
			name := fmt.Sprintf("own-workspaces/files-%d", files)
			if shared {
				name = fmt.Sprintf("one-workspace/files-%d", files)
			}
			b.Run(name, func(b *testing.B) {
				url := server.NewDatabase(b, fmt.Sprintf("contention_%t_%d_%d", shared, files, b.N), "")
				if err := sqlstore.Migrate(b.Context(), url); err != nil {
					b.Fatal(err)
				}
				registry := prometheus.NewRegistry()
				nodes := [2]ledger.Book{openCounted(b, url, registry, "a"), openCounted(b, url, registry, "b")}
				for b.Loop() {
					settleAtOnce(b, nodes, files, each, shared)
				}
				n := float64(b.N * files * each)
				b.ReportMetric(n/b.Elapsed().Seconds(), "settlements/s")
				b.ReportMetric(counted(b, registry)/n, "re-runs/settlement")
			})
		}
	}
}

// openCounted opens a ledger whose re-runs are counted under the name of a node.
func openCounted(b *testing.B, url string, r prometheus.Registerer, node string) *sqlstore.Store {
	s, err := sqlstore.Open(b.Context(), url, sqlstore.Options{
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, r)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// counted adds up rollcall_ledger_retries_total.
func counted(b *testing.B, r prometheus.Gatherer) (sum float64) {
	families, err := r.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// settleAtOnce settles so many verifications side by side. Their making is not timed.
func settleAtOnce(b *testing.B, nodes [2]ledger.Book, files, each int, shared bool) {
	b.StopTimer()
	leases, desk := make([]ledger.Lease, files), (*ledgertest.Desk)(nil)
	for i := range leases {
		if desk == nil || !shared {
			desk = ledgertest.NewDesk(b, nodes[0], ledger.Credits(files*each*benchBatch))
		}
		_, leases[i] = desk.Prepares(int64(each * benchBatch))
	}
	b.StartTimer()
	var all sync.WaitGroup
	for i, l := range leases {
		all.Go(func() {
			for number := int64(1); number <= int64(each); number++ {
				if _, err := nodes[i%2].Settle(b.Context(), scattered(l, number, int64(each))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
