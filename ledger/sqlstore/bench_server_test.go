package sqlstore_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// storesMax is how many stores the test's server has connections for, 16 each.
const storesMax = 12

// BenchmarkBeats is what a cluster asks of its ledger on PostgreSQL: a heartbeat of all
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
	books, beats := make([]ledger.Book, min(nodes, storesMax)), make([]ledger.Heartbeat, nodes)
	for i := range books {
		books[i] = openCounted(b, url, registry, fmt.Sprint(i))
	}
	for i := range nodes {
		beats[i].Incarnation = ledger.Incarnation{Session: uuid.New(), Node: uuid.New()}
		if _, err := books[i%len(books)].WriteHeartbeat(b.Context(), beats[i]); err != nil {
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
				beats[i].View = []ledger.Incarnation{{Session: uuid.New(), Node: uuid.New()}}
			}
			all.Go(func() {
				if _, err := books[i%len(books)].WriteHeartbeat(b.Context(), beats[i]); err != nil {
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
		tuning, err := s.Settings(b.Context())
		if err != nil || len(tuning.Overrides) != holding {
			b.Fatalf("%d hold, want %d, %v", len(tuning.Overrides), holding, err)
		}
	}
}
