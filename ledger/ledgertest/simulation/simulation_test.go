package simulation

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
)

var (
	seeds      = flag.Uint64("seeds", 0, "how many lives to simulate; 0: 200, or as the run is short or long")
	first      = flag.Uint64("first", 1, "the first seed; with -seeds 1 it replays a failure")
	operations = flag.Int("operations", 2000, "operations of each life")
)

func TestMain(m *testing.M) {
	effort.CollectSeldom()
	m.Run()
}

// lives lives so many lives as the run asks for, one after the other on each processor, and gives their sums.
func lives(t *testing.T, live func(seed uint64) Life) (sum Life) {
	t.Helper()
	began, n := time.Now(), *seeds
	if n == 0 {
		n = uint64(effort.Cases(200))
	}
	var next atomic.Uint64
	next.Store(*first)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *first+n {
					return
				}
				life := live(seed)
				if life.Violation != "" {
					t.Errorf("seed %d: %s\nreplay: go test ./ledger/ledgertest/simulation "+
						"-run '^%s$' -first %d -seeds 1 -operations %d", seed, life.Violation, t.Name(), seed, *operations)
					return
				}
				mu.Lock()
				sum.Answers, sum.Commits = sum.Answers+life.Answers, sum.Commits+life.Commits
				sum.Transactions, sum.Faults = sum.Transactions+life.Transactions, sum.Faults+life.Faults
				sum.Verifications += life.Verifications
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds of %d operations: %d answers, %d transactions, %d commits, %d with a fault, %d verifications, %v",
		n, *operations, sum.Answers, sum.Transactions, sum.Commits, sum.Faults, sum.Verifications,
		time.Since(began).Round(time.Millisecond))
	effort.ErrorIf(t, sum.Faults == 0 || sum.Commits == 0, "nothing happened")
	return sum
}

// TestEveryLifeKeepsTheBooks simulates -seeds lives.
func TestEveryLifeKeepsTheBooks(t *testing.T) {
	sum := lives(t, func(seed uint64) Life { return Run(seed, *operations) })
	effort.ErrorIf(t, sum.Verifications == 0 && !t.Failed(), "no verification was made")
}

// TestEveryLifeOfAClusterKeepsItsTurns simulates -seeds lives of processes.
func TestEveryLifeOfAClusterKeepsItsTurns(t *testing.T) {
	lives(t, func(seed uint64) Life { return RunCluster(seed, *operations/4) })
}

// TestASeedReplaysExactly: twice the same seed is twice the same life.
func TestASeedReplaysExactly(t *testing.T) {
	for seed := range uint64(effort.Cases(20)) {
		a, b := Run(seed, 500), Run(seed, 500)
		effort.ErrorIf(t, a != b, "seed %d: %+v, then %+v", seed, a, b)
		a, b = RunCluster(seed, 500), RunCluster(seed, 500)
		effort.ErrorIf(t, a != b, "seed %d of a cluster: %+v, then %+v", seed, a, b)
	}
}
