package sqlstore_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest/cutter"
	"rollcall/ledger/ledgertest/histories"
	"rollcall/ledger/sqlstore"
)

var (
	historiesN = flag.Int("histories", 2, "how many concurrent histories are checked on SQLite")
	serverN    = flag.Int("serverhistories", 1, "how many of them on PostgreSQL, and as many with cuts")
	serverSize = flag.Int("serverhistory", 600, "operations of each history on PostgreSQL")
	scratch    = flag.String("scratch", "", "folder for the SQLite files of histories and races; "+
		"a memory file system is faster than a disk")
)

const (
	// historySize is the number of operations of one history.
	historySize = 2000
	// checkMax bounds the search for an order: it takes some milliseconds, on a
	// server with cuts some seconds, and one that did not end is a failure.
	checkMax = time.Minute
	// historiesAtOnce keeps two processors busy.
	historiesAtOnce = 2
	// nodesN is the number of nodes where the ledger is a server: two clients at
	// each, and all together with some hundred connections.
	nodesN = 8
)

// openScratch opens a new embedded ledger in the folder for such; drop removes it.
func openScratch(t testing.TB) (s *sqlstore.Store, drop func()) {
	t.Helper()
	folder, err := os.MkdirTemp(*scratch, "rollcall-histories-")
	if err != nil {
		t.Fatal(err)
	}
	s, err = sqlstore.Open(t.Context(), "sqlite:"+filepath.Join(folder, "ledger.db"), sqlstore.Options{})
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(folder)))
	}
	return s, func() {
		if err := errors.Join(s.Close(), os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	}
}

// tally sums up histories.
type tally struct {
	operations, unknown, cuts atomic.Int64
	recording, checking       atomic.Int64 // nanoseconds, of all workers together
}

// one records a history and checks it.
func (y *tally) one(t *testing.T, books []ledger.Book, o histories.Options) {
	begin := time.Now()
	h, err := histories.Record(t.Context(), books, o)
	if err != nil {
		t.Errorf("seed %d: %v", o.Seed, err)
		return
	}
	recorded := time.Now()
	if result, why := h.Check(checkMax); result != porcupine.Ok {
		t.Errorf("seed %d: %s: %s", o.Seed, result, why())
	}
	y.operations.Add(int64(h.Operations()))
	y.unknown.Add(int64(h.Unknown()))
	y.recording.Add(int64(recorded.Sub(begin)))
	y.checking.Add(int64(time.Since(recorded)))
	if o.Seed == 0 {
		t.Logf("seed 0: %s", h.Summary())
	}
}

func (y *tally) tell(t *testing.T, n int, begin time.Time) {
	t.Logf("%d histories, %d operations, %d unknown runs, %d faults, in %.1f s (%.1f s of recording, %.1f s of "+
		"checking)", n, y.operations.Load(), y.unknown.Load(), y.cuts.Load(), time.Since(begin).Seconds(),
		time.Duration(y.recording.Load()).Seconds(), time.Duration(y.checking.Load()).Seconds())
}

func TestHistoriesHaveAnOrder(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	begin := time.Now()
	var y tally
	var seeds atomic.Int64
	var workers sync.WaitGroup
	most := *historiesN
	for range min(historiesAtOnce, most) {
		workers.Go(func() {
			for seed := seeds.Add(1) - 1; seed < int64(most) && !t.Failed(); seed = seeds.Add(1) - 1 {
				s, drop := openScratch(t)
				y.one(t, []ledger.Book{s}, histories.Options{Seed: uint64(seed), Operations: historySize})
				drop()
			}
		})
	}
	workers.Wait()
	y.tell(t, most, begin)
}

// mute makes what it is asked and, the fifth time, does not say so.
type mute struct {
	ledger.Book
	asked *atomic.Int64
}

func (m mute) Create(ctx context.Context, n ledger.NewVerification) (ledger.Verification, bool, error) {
	v, created, err := m.Book.Create(ctx, n)
	if m.asked.Add(1) == 5 {
		err = sqlstore.ErrUnknown
	}
	return v, created, err
}

// TestACreateThatToldNothingIsAskedAgain: who asks again is told that the verification was
// there, although no other call made it.
func TestACreateThatToldNothingIsAskedAgain(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	s, drop := openScratch(t)
	defer drop()
	var y tally
	var asked atomic.Int64
	y.one(t, []ledger.Book{mute{s, &asked}}, histories.Options{Seed: 1, Operations: historySize, Faults: true})
	if asked.Load() < 6 {
		t.Error("every create was answered")
	}
}

// node is one of several at the same ledger, with a line of its own to it.
type node struct {
	*sqlstore.Store
	proxy *cutter.Proxy
	// unsure counts the commits that were cut and may have been made, so that the
	// run that follows is a second one.
	unsure atomic.Int64
}

// openNodes opens the ledger at url several times, each by way of a proxy.
func openNodes(t *testing.T, url string) []*node {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	nodes := make([]*node, nodesN)
	for i := range nodes {
		proxy, err := cutter.Start(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := proxy.Close(); err != nil {
				t.Error(err)
			}
		})
		nodes[i] = &node{proxy: proxy, Store: openAt(t, proxy.URL(config.Database))}
	}
	return nodes
}

// faults meets one commit in forty and one other statement in a thousand.
func (n *node) faults(random *rand.Rand) cutter.Plan {
	atCommit := []cutter.Act{{Kind: cutter.CutBefore}, {Kind: cutter.CutSent}, {Kind: cutter.CutExecuted},
		{Kind: cutter.CutAnswer}, {Kind: cutter.FailUndone, Code: cutter.SerializationFailure},
		{Kind: cutter.FailDone, Code: cutter.CompletionUnknown}}
	return func(s cutter.Statement) cutter.Act {
		switch {
		case s.Commit && random.IntN(40) == 0:
			act := atCommit[random.IntN(len(atCommit))]
			if act.Kind != cutter.CutBefore && act.Kind != cutter.FailUndone {
				n.unsure.Add(1)
			}
			return act
		case !s.Commit && random.IntN(1000) == 0:
			return cutter.Act{Kind: cutter.CutSent}
		}
		return cutter.Act{}
	}
}

func TestHistoriesOfNodesHaveAnOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cuts bool
	}{{"undisturbed", false}, {"cut", true}} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			var y tally
			for seed := range uint64(*serverN) {
				t.Run("", func(t *testing.T) { // so that connections end with each
					y.onServer(t, seed, c.cuts)
				})
			}
			y.tell(t, *serverN, begin)
		})
	}
}

// onServer records a history of several nodes on one server and checks it.
func (y *tally) onServer(t *testing.T, seed uint64, cuts bool) {
	nodes := openNodes(t, sqlstore.NewLedger(t))
	o := histories.Options{Seed: seed, Operations: *serverSize, Faults: cuts, Passing: true,
		Unchanged: func(err error) bool { return errors.Is(err, sqlstore.ErrUnavailable) },
		Repeats:   func(client int) int { return int(nodes[(client-1)%nodesN].unsure.Load()) }}
	var books []ledger.Book
	for i, n := range nodes {
		books = append(books, n)
		if cuts {
			n.proxy.SetPlan(n.faults(rand.New(rand.NewPCG(seed, uint64(i)))))
		}
	}
	y.one(t, books, o)
	for _, n := range nodes {
		y.cuts.Add(int64(n.proxy.Injected()))
	}
	if cuts && y.cuts.Load() == 0 {
		t.Error("nothing was cut")
	}
}
