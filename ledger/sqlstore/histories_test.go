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
	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/sqlstore/engine"
)

var (
	historiesN = flag.Int("histories", historiesFew, "how many concurrent histories are checked on SQLite")
	serverN    = flag.Int("serverhistories", 1, "how many of them on PostgreSQL, and as many with cuts")
	serverSize = flag.Int("serverhistory", 300, "operations of each history on PostgreSQL")
	scratch    = flag.String("scratch", "", "folder for the SQLite files of histories and races; "+
		"a memory file system is faster than a disk")
)

const (
	// historiesFew are those of a default run, which looks for two mistakes only.
	historiesFew = 2
	// historySize is the number of operations of one history.
	historySize = 2000
	// checkMax bounds the search for an order: it takes some milliseconds, on a
	// server with cuts some seconds, and one that did not end is a failure.
	checkMax = time.Minute
	// nodesN is the number of nodes where the ledger is a server: two clients at
	// each, and all together with some hundred connections.
	nodesN = 8
)

// openScratch opens a new embedded ledger in the folder for such; drop removes it.
func openScratch(t testing.TB) (s *sqlstore.Store, drop func()) {
	t.Helper()
	folder := effort.Must(os.MkdirTemp(*scratch, "rollcall-histories-"))(t)
	s, err := sqlstore.Open(t.Context(), "sqlite:"+filepath.Join(folder, "ledger.db"), sqlstore.Options{})
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(folder)))
	}
	return s, func() {
		effort.ErrIs(t, errors.Join(s.Close(), os.RemoveAll(folder)), nil)
	}
}

// checksHistory records a history and checks it.
func checksHistory(t *testing.T, books []ledger.Book, o ledgertest.HistoryOptions) {
	t.Helper()
	begin := time.Now()
	h, err := ledgertest.RecordHistory(t.Context(), books, o)
	effort.OK(t, err, "seed", o.Seed)
	recorded := time.Now()
	if result, why := h.Check(checkMax); result != porcupine.Ok {
		t.Errorf("seed %d: %s: %s", o.Seed, result, why())
	}
	t.Logf("seed %d: %s, recorded in %v, checked in %v", o.Seed, h, recorded.Sub(begin), time.Since(recorded))
}

func TestHistoriesHaveAnOrder(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	for seed := range uint64(*historiesN) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			s, drop := openScratch(t)
			defer drop()
			checksHistory(t, []ledger.Book{s}, ledgertest.HistoryOptions{Seed: seed, Operations: historySize})
		})
	}
}

// node is one of several nodes at the same ledger. Each has its own proxy to it.
type node struct {
	*sqlstore.Store
	proxy *postgres.Proxy
	// unsure counts the commits whose answer was cut off: they may have been made, and the transaction runs again.
	unsure atomic.Int64
}

// openNodes opens the ledger at url several times, each by way of a proxy.
func openNodes(t *testing.T, url string) []*node {
	t.Helper()
	nodes := make([]*node, nodesN)
	for i := range nodes {
		nodes[i] = &node{}
		nodes[i].proxy, nodes[i].Store = throughProxy(t, url)
	}
	return nodes
}

// faults meets one commit in forty and one other statement in a thousand.
func (n *node) faults(random *rand.Rand) postgres.Plan {
	return func(s postgres.Statement) postgres.Act {
		switch {
		case s.Commit && random.IntN(40) == 0:
			act := atCommit[random.IntN(len(atCommit))]
			if act.Kind != postgres.CutBefore && act != conflict {
				n.unsure.Add(1)
			}
			return act
		case !s.Commit && random.IntN(1000) == 0:
			return postgres.Act{Kind: postgres.CutSent}
		}
		return postgres.Act{}
	}
}

func TestHistoriesOfNodesHaveAnOrder(t *testing.T) {
	t.Parallel()
	for name, cuts := range map[string]bool{"undisturbed": false, "cut": true} {
		for seed := range uint64(*serverN) {
			t.Run(name, func(t *testing.T) { // so that connections end with each
				checksHistoryOfNodes(t, seed, cuts)
			})
		}
	}
}

// checksHistoryOfNodes records a history of several nodes on one server and checks it.
func checksHistoryOfNodes(t *testing.T, seed uint64, cuts bool) {
	nodes := openNodes(t, sqlstore.NewLedger(t))
	o := ledgertest.HistoryOptions{Seed: seed, Operations: *serverSize, Faults: cuts, Passing: true,
		Unchanged: func(err error) bool { return errors.Is(err, engine.ErrUnavailable) },
		Repeats:   func(client int) int { return int(nodes[(client-1)%nodesN].unsure.Load()) }}
	var books []ledger.Book
	for i, n := range nodes {
		books = append(books, n)
		if cuts {
			n.proxy.SetPlan(n.faults(rand.New(rand.NewPCG(seed, uint64(i)))))
		}
	}
	checksHistory(t, books, o)
	injected := 0
	for _, n := range nodes {
		injected += n.proxy.Injected()
	}
	t.Logf("%d faults", injected)
	effort.ErrorIf(t, cuts && injected == 0, "nothing was cut")
}

// The mistakes that a checked history must find. Each leaves the tables in order, so that no audit sees it.
const (
	oldBalance   = "a balance of before"
	lostSettle   = "a settlement that is answered and not written"
	doubleGrant  = "a grant that is made twice"
	doubleLease  = "a lease that is handed out twice"
	doubleCreate = "a second verification for one identity"
	lostCancel   = "a cancel that is answered and not done"
	unfenced     = "a chunk of an older writer that is taken"
)

// broken is a ledger that makes one mistake in each third call of its kind.
type broken struct {
	ledger.Book
	mistake string

	mu       sync.Mutex
	calls    int
	balances map[uuid.UUID]ledger.Balance
	leased   []ledger.Verification
}

func newBroken(b ledger.Book, mistake string) *broken {
	return &broken{Book: b, mistake: mistake, balances: map[uuid.UUID]ledger.Balance{}}
}

// errs reports whether this call makes the mistake.
func (b *broken) errs(mistake string) bool {
	if b.mistake != mistake {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	return b.calls%3 == 0
}

func (b *broken) Balance(ctx context.Context, w uuid.UUID) (ledger.Balance, error) {
	now, err := b.Book.Balance(ctx, w)
	wrong := b.errs(oldBalance)
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.balances[w]; ok && wrong {
		return old, err
	}
	b.balances[w] = now
	return now, err
}

func (b *broken) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	if b.errs(lostSettle) {
		v, err := b.Wait(ctx, s.Lease, ledger.Estimate{})
		v.Settlements, v.Held = s.Number, v.Held-ledger.Credits(len(s.Results))
		for _, r := range s.Results {
			v.Counts.Add(r.Outcome)
		}
		return v, err
	}
	return b.Book.Settle(ctx, s)
}

func (b *broken) Grant(ctx context.Context, id, w uuid.UUID, n ledger.Credits, why string) (
	ledger.Balance, error) {
	now, err := b.Book.Grant(ctx, id, w, n, why)
	if err == nil && b.errs(doubleGrant) {
		return b.Book.Grant(ctx, uuid.New(), w, n, why)
	}
	return now, err
}

func (b *broken) Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) (
	[]ledger.Verification, error) {
	wrong := b.errs(doubleLease)
	b.mu.Lock()
	old := b.leased
	b.mu.Unlock()
	if wrong && len(old) > 0 {
		return old, nil
	}
	list, err := b.Book.Lease(ctx, node, limit, ttl, except...)
	if len(list) > 0 {
		b.mu.Lock()
		b.leased = list
		b.mu.Unlock()
	}
	return list, err
}

func (b *broken) Create(ctx context.Context, n ledger.NewVerification) (ledger.Verification, bool, error) {
	if b.errs(doubleCreate) {
		n.Identity = uuid.New()
	}
	return b.Book.Create(ctx, n)
}

func (b *broken) Cancel(ctx context.Context, w, id uuid.UUID) (ledger.Verification, error) {
	if !b.errs(lostCancel) {
		return b.Book.Cancel(ctx, w, id)
	}
	v, err := b.Book.Verification(ctx, w, id)
	if !v.Status.Final() {
		v.Status, v.NextTry, v.Issue = ledger.Cancelling, time.Time{}, nil
	}
	return v, err
}

func (b *broken) AppendChunk(ctx context.Context, id uuid.UUID, writer, offset int64, data []byte) (
	ledger.Upload, error) {
	u, err := b.Book.AppendChunk(ctx, id, writer, offset, data)
	if b.mistake == unfenced && err != nil && u.Writer > writer { // seldom enough by itself
		return b.Book.AppendChunk(ctx, id, u.Writer, offset, data)
	}
	return u, err
}

// TestHistoriesFindMistakes shows that the check is not blind.
func TestHistoriesFindMistakes(t *testing.T) {
	effort.Unraced(t, "the clients of the other histories")
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	// Whether somebody looks where the mistake was is up to chance. A search without
	// end finds a mistake too, as it does elsewhere.
	const seeds, operations, checkMax = 8, 400, time.Second / 2
	t.Run(doubleLease+", where leases pass over files", func(t *testing.T) {
		findsMistake(t, doubleLease, seeds, checkMax, ledgertest.HistoryOptions{Operations: operations, Passing: true})
	})
	mistakes := []string{oldBalance, lostSettle, doubleGrant, doubleLease, doubleCreate, lostCancel, unfenced}
	if *historiesN <= historiesFew {
		mistakes = mistakes[:2]
	}
	for _, mistake := range mistakes {
		t.Run(mistake, func(t *testing.T) {
			findsMistake(t, mistake, seeds, checkMax, ledgertest.HistoryOptions{Operations: operations})
		})
	}
}

// findsMistake checks histories of a broken ledger until one has no order.
func findsMistake(t *testing.T, mistake string, seeds uint64, checkMax time.Duration, o ledgertest.HistoryOptions) {
	t.Helper()
	for o.Seed = range seeds {
		s, drop := openScratch(t)
		h, err := ledgertest.RecordHistory(t.Context(), []ledger.Book{newBroken(s, mistake)}, o)
		drop()
		effort.OK(t, err)
		if result, _ := h.Check(checkMax); result != porcupine.Ok {
			return
		}
	}
	t.Errorf("not found in %d histories", seeds)
}
