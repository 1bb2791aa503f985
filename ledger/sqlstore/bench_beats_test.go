package sqlstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// storesMax is how many stores the test's server has connections for, 16 each.
const storesMax = 12

// BenchmarkBeats is what a cluster asks of its ledger on PostgreSQL: a beat of all
// nodes that says nothing new, and one in which all of them publish another view, as
// when a member dies.
func BenchmarkBeats(b *testing.B) {
	server := postgres.New(b, postgres.Options{Durable: true})
	for _, nodes := range []int{3, 10, 50} {
		for _, publish := range []bool{false, true} {
			b.Run(fmt.Sprintf("nodes=%d/publish=%v", nodes, publish), func(b *testing.B) {
				url := server.NewDatabase(b, fmt.Sprintf("beats_%d_%v_%d", nodes, publish, b.N), "")
				if err := sqlstore.Migrate(b.Context(), url); err != nil {
					b.Fatal(err)
				}
				benchBeats(b, url, nodes, publish)
			})
		}
	}
}

func benchBeats(b *testing.B, url string, nodes int, publish bool) {
	registry := prometheus.NewRegistry()
	books, beats := make([]ledger.Book, min(nodes, storesMax)), make([]ledger.Beat, nodes)
	for i := range books {
		books[i] = openCounted(b, url, registry, fmt.Sprint(i))
	}
	for i := range nodes {
		beats[i].Process = ledger.Process{Session: uuid.New(), Node: uuid.New()}
		if _, err := books[i%len(books)].Beat(b.Context(), beats[i]); err != nil {
			b.Fatal(err)
		}
	}
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), `ANALYZE`); err != nil { // as autovacuum does
		b.Fatal(err)
	}
	_ = conn.Close(b.Context())
	before, failed := counted(b, registry), atomic.Int64{}
	b.ResetTimer()
	for range b.N {
		var all sync.WaitGroup
		for i := range nodes {
			if publish {
				beats[i].View = []ledger.Process{{Session: uuid.New(), Node: uuid.New()}}
			}
			all.Go(func() {
				if _, err := books[i%len(books)].Beat(b.Context(), beats[i]); err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
	}
	b.StopTimer()
	each := float64(nodes * b.N)
	b.ReportMetric(each/b.Elapsed().Seconds(), "beats/s")
	b.ReportMetric((counted(b, registry)-before)/each, "re-runs/beat")
	b.ReportMetric(float64(failed.Load())/each, "failed/beat")
}
