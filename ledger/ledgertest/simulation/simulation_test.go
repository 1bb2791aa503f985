package simulation

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds      = flag.Uint64("seeds", 200, "how many lives to simulate")
	first      = flag.Uint64("first", 1, "the first seed; with -seeds 1 it replays a failure")
	operations = flag.Int("operations", 2000, "operations of each life")
)

// TestEveryLifeKeepsTheBooks simulates -seeds lives, one after the other on each
// processor.
func TestEveryLifeKeepsTheBooks(t *testing.T) {
	began := time.Now()
	var next, answers, transactions, faults, verifications atomic.Int64
	next.Store(int64(*first))
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !t.Failed() {
				seed := uint64(next.Add(1) - 1)
				if seed >= *first+*seeds {
					return
				}
				life := Run(seed, *operations)
				if life.Violation != "" {
					t.Errorf("seed %d: %s\nreplay: go test ./ledger/ledgertest/simulation "+
						"-run TestEveryLife -first %d -seeds 1 -operations %d", seed, life.Violation, seed, *operations)
					return
				}
				answers.Add(life.Answers)
				transactions.Add(life.Transactions)
				faults.Add(life.Faults)
				verifications.Add(int64(life.Verifications))
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds of %d operations: %d answers, %d transactions, %d with a fault, %d verifications, %v",
		*seeds, *operations, answers.Load(), transactions.Load(), faults.Load(), verifications.Load(),
		time.Since(began).Round(time.Millisecond))
	if faults.Load() == 0 {
		t.Error("no fault was made")
	}
}

// TestEveryLifeOfAClusterKeepsItsTurns simulates -seeds lives of processes.
func TestEveryLifeOfAClusterKeepsItsTurns(t *testing.T) {
	var sum Life
	for seed := *first; seed < *first+*seeds; seed++ {
		life := RunCluster(seed, *operations/4)
		if life.Violation != "" {
			t.Fatalf("seed %d: %s\nreplay: go test ./ledger/ledgertest/simulation "+
				"-run TestEveryLifeOfACluster -first %d -seeds 1 -operations %d", seed, life.Violation, seed, *operations)
		}
		sum.Answers, sum.Commits = sum.Answers+life.Answers, sum.Commits+life.Commits
		sum.Faults += life.Faults
	}
	t.Logf("%d seeds: %d answers, %d commits, %d faults", *seeds, sum.Answers, sum.Commits, sum.Faults)
	if sum.Faults == 0 || sum.Commits == 0 {
		t.Error("nothing happened")
	}
}

// TestASeedReplaysExactly: twice the same seed is twice the same life.
func TestASeedReplaysExactly(t *testing.T) {
	for seed := range uint64(20) {
		if a, b := Run(seed, 500), Run(seed, 500); a != b {
			t.Errorf("seed %d: %+v, then %+v", seed, a, b)
		}
		if a, b := RunCluster(seed, 500), RunCluster(seed, 500); a != b {
			t.Errorf("seed %d of a cluster: %+v, then %+v", seed, a, b)
		}
	}
}
