package dispatcher

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/domain"
	"rollcall/actors/inspect"
	"rollcall/actors/process"
	"rollcall/actors/verification"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/mx"
)

const deadLetters = time.Millisecond

// warningLog keeps the lines that were logged at warning or above.
type warningLog struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (l *warningLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

func (l *warningLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.Contains(line, text) })
}

// book is the real ledger, noting the calls and failing where a test says so.
type book struct {
	*sqlstore.Store
	mu      sync.Mutex
	calls   []string          // guarded by mu
	leases  map[uuid.UUID]int // guarded by mu: verifications that were handed out
	before  map[string]func() // guarded by mu: run before a call
	refuses map[string]error  // guarded by mu
	most    int               // guarded by mu: leases at a time
	void    atomic.Bool       // a renewal is not answered
}

var errAway = errors.New("the ledger is away")

func (b *book) on(call string) error {
	b.mu.Lock()
	b.calls = append(b.calls, call)
	before, err := b.before[call], b.refuses[call]
	b.mu.Unlock()
	if before != nil {
		before()
	}
	return err
}

func (b *book) refuse(call string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuses[call] = err
}

func (b *book) Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) (
	[]ledger.Verification, error) {
	if err := b.on("lease"); err != nil {
		return nil, err
	}
	list, err := b.Store.Lease(ctx, node, limit, ttl, except...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most = max(b.most, limit)
	for _, v := range list {
		b.leases[v.ID]++
	}
	return list, err
}

func (b *book) Renew(ctx context.Context, node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error) {
	call := "renew"
	if ttl == 0 {
		call = "give back"
	}
	if err := b.on(call); err != nil {
		return nil, err
	}
	if b.void.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.Store.Renew(ctx, node, ttl)
}

func (b *book) Release(ctx context.Context, l ledger.Lease) error {
	if err := b.on("release"); err != nil {
		return err
	}
	return b.Store.Release(ctx, l)
}

func (b *book) Park(ctx context.Context, l ledger.Lease, o ledger.Estimate, state []byte) (ledger.Verification, error) {
	if err := b.on("release"); err != nil {
		return ledger.Verification{}, err
	}
	return b.Store.Park(ctx, l, o, state)
}

func (b *book) Sweep(ctx context.Context, r ledger.Retention) (int, error) {
	if err := b.on("sweep"); err != nil {
		return 0, err
	}
	return b.Store.Sweep(ctx, r)
}

func (b *book) OpenFile(ctx context.Context, id uuid.UUID) (io.ReadCloser, error) {
	if err := b.on("open " + id.String()); err != nil {
		return nil, err
	}
	return b.Store.OpenFile(ctx, id)
}

func (b *book) Crashed(ctx context.Context, l ledger.Lease) (ledger.Verification, error) {
	if err := b.on("crashed"); err != nil {
		return ledger.Verification{}, err
	}
	return b.Store.Crashed(ctx, l)
}

// Verification tells what the ledger said before the call "look" is noted, which may be old by then.
func (b *book) Verification(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	v, err := b.Store.Verification(ctx, workspace, id)
	if refused := b.on("look"); refused != nil {
		return ledger.Verification{}, refused
	}
	return v, err
}

func (b *book) count(call string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, c := range b.calls {
		if c == call {
			n++
		}
	}
	return n
}

// handed is how many verifications were handed out, and taken how often this one was.
func (b *book) handed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.leases)
}

func (b *book) taken(id uuid.UUID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leases[id]
}

// at has something run before each of these calls.
func (b *book) at(call string, run func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before[call] = run
}

// office is one node with a real ledger. DNS answers none.test at once (no mail) and slow.test when the test ends.
type office struct {
	t         *testing.T
	url       string // of the ledger
	book      *book
	system    *actor.ActorSystem
	workspace uuid.UUID
	node      uuid.UUID
	log       *warningLog
	options   Options
	dropped   atomic.Int64 // questions for slow.test whose domain actor has ended
	ahead     atomic.Bool  // this node has more than the others
	uploaded  byte         // verifications
}

// inBubble runs a test whose minutes take no time. The ledger's clock is the real
// one all the same: its leases do not run out in here.
func inBubble(t *testing.T, test func(o *office)) {
	t.Helper()
	ledgertest.WarmCodec(t)
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(10*deadLetters + 2*time.Second) }) // the goroutines that the guard keeps end too
		test(newOffice(t))
	})
}

func newOffice(t *testing.T) *office {
	t.Helper()
	url := effort.Ledger(t, sqlstore.Migrate)
	store := effort.Must(sqlstore.Open(context.Background(), url, sqlstore.Options{}))(t)
	b := &book{Store: store, leases: map[uuid.UUID]int{}, before: map[string]func(){}, refuses: map[string]error{}}
	o := &office{t: t, url: url, book: b, workspace: uuid.New(), node: uuid.New(), log: &warningLog{}}
	log := slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.system = actor.NewActorSystem(actor.WithDeadLetterThrottleInterval(deadLetters),
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	process.NewPanicGuard(prometheus.NewRegistry(), log).Install(o.system)
	t.Cleanup(func() {
		o.system.Shutdown()
		effort.OK(t, store.Close())
	})
	effort.Must(store.CreateWorkspace(context.Background(), o.workspace, "test"))(t)
	effort.Must(store.Grant(context.Background(), uuid.New(), o.workspace, 1000, "test"))(t)
	o.options = Options{Book: b, Node: o.node, LeasesMax: 10, BytesMax: 1 << 20, Log: log,
		Ahead: func(int, int64) bool { return o.ahead.Load() }, Weight: equal, Metrics: NewMetrics(prometheus.NewRegistry()),
		Retention: ledger.Retention{Uploads: time.Hour, Results: time.Hour, Funding: time.Hour},
		Work: verification.Options{Book: b, RowsMax: 1000, DomainsMax: 10, Log: log, Left: &atomic.Int64{},
			Metrics: verification.NewMetrics(prometheus.NewRegistry()),
			Domain: domain.Options{Facts: domain.NewFacts(), Log: log, Route: o.route,
				Load:    domain.NewLoad(func(uuid.UUID) int { return 1 }),
				Match:   func(r mx.Route) string { return r.Receiver },
				Resolve: func(string) *actor.PID { return nil },
				Version: func() uint64 { return 0 }, GiveUpAfter: time.Hour,
				Waits:         func(string) []time.Duration { return []time.Duration{time.Minute} },
				ControlPauses: []time.Duration{time.Second}}}}
	return o
}

func (o *office) route(ctx context.Context, name string) (mx.Route, error) {
	if name == "slow.test" {
		<-ctx.Done()
		o.dropped.Add(1)
		return mx.Route{}, ctx.Err()
	}
	return mx.Route{Domain: name, NoMail: smtp.NoMailService}, nil
}

func (o *office) uploads(rows string) uuid.UUID {
	o.t.Helper()
	ctx := context.Background()
	id := uuid.New()
	o.uploaded++
	id[0] = o.uploaded // those of one millisecond are leased in the order of their ids
	v, _, err := o.book.Create(ctx, ledger.NewVerification{ID: id, Workspace: o.workspace,
		Identity: uuid.New(), Bytes: int64(len(rows)), BytesMax: 1 << 30,
		Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000}, UploadExpiry: 24 * time.Hour})
	effort.OK(o.t, err)
	u, err := o.book.OpenUpload(ctx, v.ID)
	if err == nil {
		_, err = o.book.AppendChunk(ctx, v.ID, u.Writer, 0, []byte(rows))
	}
	effort.OK(o.t, err)
	return v.ID
}

// starts begins the dispatcher and stops it at the end of the test.
func (o *office) starts() *Dispatcher {
	o.t.Helper()
	d := effort.Must(Start(o.system, o.options))(o.t)
	o.t.Cleanup(func() { o.stops(d) })
	return d
}

func (o *office) stops(d *Dispatcher) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	effort.ErrIs(o.t, d.Stop(ctx), nil)
}

func (o *office) sees(id uuid.UUID) ledger.Verification {
	o.t.Helper()
	return effort.Must(o.book.Store.Verification(context.Background(), o.workspace, id))(o.t)
}

// until waits for a condition with a bound.
func (o *office) until(what string, holds func() bool) {
	o.t.Helper()
	for range 30_000 {
		if holds() {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	o.t.Fatalf("not in time: %s", what)
}

func (o *office) finished(id uuid.UUID) func() bool {
	return func() bool { return o.sees(id).Status == ledger.Completed }
}

// free reports whether anybody could take all of these now.
func (o *office) free(ids ...uuid.UUID) bool {
	o.t.Helper()
	list := effort.Must(o.book.Store.Lease(context.Background(), uuid.New(), 100, time.Hour))(o.t)
	for _, v := range list {
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return v.ID == id })
	}
	return len(ids) == 0
}

func TestWorkIsFoundAndFinished(t *testing.T) {
	inBubble(t, func(o *office) {
		early := o.uploads("a@none.test\n")
		o.starts()
		o.until("the first is finished", o.finished(early))
		late := o.uploads("b@none.test\n") // nobody tells
		o.until("the second is finished", o.finished(late))
		effort.Not(o.t, o.book.count("sweep"), 0, "nothing was swept")
	})
}

func TestWakeLooksAtOnce(t *testing.T) {
	inBubble(t, func(o *office) {
		d := o.starts()
		o.until("the rounds begin", func() bool { return o.book.count("lease") > 0 })
		synctest.Wait()
		before := o.book.count("lease")
		d.Wake()
		synctest.Wait()
		n := o.book.count("lease")
		effort.ErrorIf(o.t, n != before+1, "%d looks after waking, want 1", n-before)
	})
}

func TestNothingIsLeasedBeforeTheEarlierLifeIsOver(t *testing.T) {
	inBubble(t, func(o *office) {
		id := o.uploads("a@none.test\n")
		effort.Must(o.book.Store.Lease(context.Background(), o.node, 10, time.Hour))(o.t)
		asked, goOn := make(chan struct{}), make(chan struct{})
		o.book.at("give back", func() { close(asked); <-goOn })
		d := o.starts()
		<-asked
		d.Wake()
		synctest.Wait()
		effort.MustBe(o.t, o.book.count("lease"), 0, "looks before the old leases were given back")
		close(goOn)
		o.until("the work of the earlier life is finished", o.finished(id))
		effort.Is(o.t, o.sees(id).Epoch, 2, "finished at epoch")
	})
}

func TestStopWhileTheEarlierLifeIsGivenBackIsQuiet(t *testing.T) {
	inBubble(t, func(o *office) {
		asked := make(chan struct{})
		o.book.at("give back", func() { close(asked); <-time.After(time.Second) })
		o.book.refuse("give back", errAway)
		d := o.starts()
		<-asked
		o.stops(d)
		<-time.After(time.Minute)
		if o.log.has("") || o.book.count("lease") != 0 {
			o.t.Errorf("logged %q, leased %d times", o.log.lines, o.book.count("lease"))
		}
	})
}

func TestExpiredLeasesAreTakenOver(t *testing.T) {
	o := newOffice(t) // on the real clock, which is the ledger's
	id := o.uploads("a@none.test\n")
	effort.Must(o.book.Store.Lease(t.Context(), uuid.New(), 10, 300*time.Millisecond))(t)
	o.starts()
	o.until("the lost node's work is finished", o.finished(id))
	effort.Is(t, o.sees(id).Epoch, 2, "finished at epoch")
}

func TestLeasesAreBounded(t *testing.T) {
	inBubble(t, func(o *office) {
		o.options.LeasesMax = 5
		for range 8 {
			o.uploads("a@slow.test\n")
		}
		o.starts()
		<-time.After(30 * time.Second)
		effort.Is(o.t, o.book.handed(), 3, "were leased of one workspace")
		for range 3 { // one more than there is room for
			o.workspace = uuid.New()
			_, err := o.book.CreateWorkspace(context.Background(), o.workspace, "another")
			if err == nil {
				_, err = o.book.Grant(context.Background(), uuid.New(), o.workspace, 5, "test")
			}
			effort.OK(o.t, err)
			o.uploads("a@slow.test\n")
		}
		<-time.After(30 * time.Second)
		effort.Is(o.t, o.book.handed(), 5)
	})
}

// TestAFileOverWhichTheProgramFailsIsGivenBack: its lease is given back for a minute, and the other files go on.
func TestAFileOverWhichTheProgramFailsIsGivenBack(t *testing.T) {
	o := newOffice(t) // on the real clock, which is the ledger's
	bad := o.uploads("a@none.test\n")
	o.book.at("open "+bad.String(), func() { panic("a fault that this file brings about") })
	good := o.uploads("b@none.test\n")
	o.starts()
	o.until("the other file is finished", o.finished(good))
	o.until("the crash is noted", func() bool { return o.book.count("crashed") == 1 && o.log.has("verification actor crashed") })
	o.until("its lease is given back", func() bool {
		_, err := o.book.Cancel(context.Background(), o.workspace, bad)
		return err == nil && o.sees(bad).Status == ledger.Cancelled
	})
	effort.Is(t, o.book.count("open "+bad.String()), 1, "it was opened times within a minute")
}

// TestACrashIsNotedBeforeItsLeaseIsGivenBack: this holds even if a renewal names that lease in between.
func TestACrashIsNotedBeforeItsLeaseIsGivenBack(t *testing.T) {
	inBubble(t, func(o *office) {
		bad := o.uploads("a@none.test\n")
		o.book.at("open "+bad.String(), func() { panic("a fault that this file brings about") })
		o.book.at("crashed", func() { <-time.After(2*renewEvery + time.Second) })
		o.starts()
		<-time.After(3 * renewEvery)
		if renewed, released := o.book.count("renew"), o.book.count("release"); renewed < 3 || released != 0 {
			o.t.Errorf("renewed %d times and given back %d times while the crash was noted", renewed, released)
		}
		n := o.book.taken(bad)
		effort.ErrorIf(o.t, n != 1 || o.free(bad), "it was taken %d times within a minute", n)
	})
}

func TestEachLeaseIsWeighedBeforeTheNext(t *testing.T) {
	inBubble(t, func(o *office) {
		row := "a@slow.test\n"
		o.options.Ahead = func(leases int, addresses int64) bool {
			if want := int64(leases) * int64(len("email\n"+row)) / addressBytes; addresses > want {
				o.t.Errorf("%d leases weigh %d addresses, want at most %d", leases, addresses, want)
			}
			return leases >= 2
		}
		for range 5 {
			o.uploads(row)
		}
		o.starts()
		<-time.After(searchEvery / 2)
		effort.Is(o.t, o.book.handed(), 2, "were leased at once by a node that is ahead with 2")
	})
}

func TestANodeThatIsAheadLeavesNewWorkToOthersForAWhile(t *testing.T) {
	inBubble(t, func(o *office) {
		o.ahead.Store(true)
		id := o.uploads("a@none.test\n")
		d := o.starts()
		<-time.After((leaveLooks-1)*searchEvery - searchEvery/2)
		d.Wake()
		synctest.Wait()
		effort.Is(o.t, o.book.handed(), 0, "a node that is ahead leased at once")
		o.until("nobody else took it", o.finished(id))
	})
}

func TestADrainedDispatcherTakesNothingAnyMore(t *testing.T) {
	inBubble(t, func(o *office) {
		d := o.starts()
		slow := o.uploads("a@slow.test\n")
		o.until("it has work", func() bool { return o.book.handed() == 1 })
		d.Drain(true)
		o.until("it gave its lease back", func() bool { return d.Leases() == 0 })
		o.uploads("a@none.test\n")
		d.Wake()
		<-time.After(10 * searchEvery)
		n := o.book.handed()
		effort.ErrorIf(o.t, n != 1, "%d verifications were leased after the drain, want none", n-1)
		leases, err := o.book.Store.Lease(context.Background(), uuid.New(), 10, time.Hour)
		if err != nil || !slices.ContainsFunc(leases, func(v ledger.Verification) bool { return v.ID == slow }) {
			o.t.Errorf("another node leases %v, %v, want what the drained one had", leases, err)
		}
	})
}

func TestFilesBeyondTheMemoryWaitInLine(t *testing.T) {
	inBubble(t, func(o *office) {
		o.options.BytesMax = 20
		first := o.uploads("a@slow.test\n")
		second := o.uploads("abcdef@none.test\n")
		d := o.starts()
		<-time.After(20 * time.Second)
		if v := o.sees(second); v.Status != ledger.Preparing || o.book.handed() != 2 {
			o.t.Fatalf("%d leased, the second: %+v", o.book.handed(), v)
		}
		o.stops(d)
		effort.ErrorIf(o.t, !o.free(first, second),
			"a lease was not given back: of the one at work, or of the one in line")
	})
}

// TestLookup tells of what is at work, of what is in line, and of nothing else.
func TestLookup(t *testing.T) {
	inBubble(t, func(o *office) {
		o.options.BytesMax = 20
		first, second := o.uploads("a@slow.test\n"), o.uploads("abcdef@none.test\n")
		d := o.starts()
		<-time.After(10 * time.Second)
		v, ok := d.Lookup(first)
		effort.ErrorIf(t, !ok || v.ID != first.String() || v.Workspace != o.workspace.String() ||
			v.Status != "verifying" || v.Total != 1 || len(v.Waits) != 1 || v.Waits[0].Addresses != 1 ||
			v.Waits[0].For != inspect.ForRoute, "at work: %+v, %v", v, ok)
		v, ok = d.Lookup(second)
		effort.ErrorIf(t, !ok || v.ID != second.String() || v.Why == "" || len(v.Waits) != 0, "in line: %+v, %v", v, ok)
		v, ok = d.Lookup(uuid.New())
		effort.ErrorIf(t, ok, "somebody else's: %+v", v)
		o.stops(d)
		v, ok = d.Lookup(first)
		effort.ErrorIf(t, ok, "after the end: %+v", v)
	})
}

func TestLeasesThatCannotBeRenewedAreDroppedByOurClock(t *testing.T) {
	inBubble(t, func(o *office) {
		o.uploads("a@slow.test\n")
		o.starts()
		o.until("two renewals", func() bool { return o.book.count("renew") == 2 })
		ended := func() bool { return o.log.has("lease not renewed in time") }
		o.book.refuse("renew", errAway)
		o.book.refuse("lease", errAway)
		began := time.Now()
		o.until("the work is dropped", ended)
		if took := time.Since(began); took > leaseTTL-leaseMargin+searchEvery || took < leaseTTL-leaseMargin-renewEvery {
			o.t.Errorf("dropped after %v, want about %v", took, leaseTTL-leaseMargin)
		}
		leased := o.book.count("lease")
		o.book.refuse("renew", nil)
		o.book.refuse("lease", nil)
		o.until("looked again", func() bool { return o.book.count("lease") > leased+1 })
		o.until("taken again", func() bool { return o.book.count("release") > 0 && o.book.handed() == 1 })
	})
}

// TestSlowAndUnansweredRenewalsKeepTheLeases has renewals that take longer than
// they are apart, and then one that nobody answers.
func TestSlowAndUnansweredRenewalsKeepTheLeases(t *testing.T) {
	inBubble(t, func(o *office) {
		id := o.uploads("a@slow.test\n")
		o.book.mu.Lock()
		o.book.before["renew"] = func() { <-time.After(renewEvery + time.Second) }
		o.book.mu.Unlock()
		o.starts()
		o.until("slow renewals", func() bool { return o.book.count("renew") == 6 })
		o.book.mu.Lock()
		delete(o.book.before, "renew")
		o.book.mu.Unlock()
		o.until("quick ones", func() bool { return o.book.count("renew") == 9 })
		o.book.void.Store(true)
		o.until("one into the void", func() bool { return o.book.count("renew") == 10 })
		o.book.void.Store(false)
		o.until("more", func() bool { return o.book.count("renew") == 13 })
		effort.ErrorIf(o.t, o.log.has("lease not renewed in time") || o.book.taken(id) != 1,
			"the lease was taken %d times, want 1", o.book.taken(id))
	})
}

func TestLostLeasesEndTheWorkAndUnknownOnesAreGivenBack(t *testing.T) {
	inBubble(t, func(o *office) {
		lost := o.uploads("a@slow.test\n")
		o.starts()
		o.until("a renewal", func() bool {
			return o.book.count("renew") > 0 && o.sees(lost).Status == ledger.Verifying
		})
		effort.OK(o.t, o.book.Store.Release(context.Background(), ledger.Lease{Verification: lost, Node: o.node, Epoch: 1}))
		o.until("taken anew, at a later epoch", func() bool { return o.sees(lost).Epoch > 1 })
		// A lease of ours that we do not know of, such as of an answer that was lost.
		o.book.refuse("lease", errAway)
		synctest.Wait()
		unknown := o.uploads("b@slow.test\n")
		effort.Must(o.book.Store.Lease(context.Background(), o.node, 10, time.Hour))(o.t)
		o.book.refuse("lease", nil)
		before := o.book.count("release")
		o.until("given back", func() bool { return o.book.count("release") > before })
		o.until("taken by us", func() bool { return o.sees(unknown).Epoch > 1 })
	})
}

func TestWorkThatAnotherNodeHasIsDropped(t *testing.T) {
	inBubble(t, func(o *office) {
		id := o.uploads("a@slow.test\n")
		o.starts()
		o.until("at work", func() bool { return o.sees(id).Status == ledger.Verifying })
		lease := ledger.Lease{Verification: id, Node: o.node, Epoch: 1}
		effort.OK(o.t, o.book.Store.Release(context.Background(), lease))
		if !o.free(id) { // and so takes it
			o.t.Fatal("not taken")
		}
		began := time.Now()
		o.until("dropped", func() bool { return o.dropped.Load() == 1 })
		took := time.Since(began)
		effort.ErrorIf(o.t, took > renewEvery+time.Second, "dropped after %v, want it with the next renewal", took)
		effort.Is(o.t, o.sees(id).Epoch, 2, "at epoch")
	})
}

func TestCancelIsSeen(t *testing.T) {
	inBubble(t, func(o *office) {
		id := o.uploads("a@slow.test\n")
		d := o.starts()
		o.until("at work", func() bool { return o.sees(id).Status == ledger.Verifying })
		effort.Must(o.book.Cancel(context.Background(), o.workspace, id))(o.t)
		d.Wake()
		synctest.Wait()
		v := o.sees(id)
		effort.ErrorIf(o.t, v.Status != ledger.Cancelled || v.Held != 0, "after waking: %+v", v)
	})
}

// TestACancelIsSeenByALookThatBeganBefore it: what that look brings home is too old.
func TestACancelIsSeenByALookThatBeganBefore(t *testing.T) {
	inBubble(t, func(o *office) {
		id := o.uploads("a@slow.test\n")
		looks, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		o.book.at("look", func() { once.Do(func() { close(looks); <-goOn }) })
		d := o.starts()
		<-looks
		effort.Must(o.book.Cancel(context.Background(), o.workspace, id))(o.t)
		d.Wake()
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		v := o.sees(id)
		effort.ErrorIf(o.t, v.Status != ledger.Cancelled, "it is %v after the look, want it cancelled", v.Status)
	})
}

func TestStopWaitsForALeaseThatIsOnItsWay(t *testing.T) {
	inBubble(t, func(o *office) {
		id := o.uploads("a@slow.test\n")
		asked := make(chan struct{})
		var once sync.Once
		o.book.at("lease", func() { once.Do(func() { close(asked) }); <-time.After(3 * time.Second) })
		d := o.starts()
		<-asked
		o.stops(d)
		effort.ErrorIf(o.t, o.book.taken(id) != 1 || !o.free(id),
			"leased %d times and not given back", o.book.taken(id))
		o.stops(d) // again
	})
}

func TestStopEndsWithItsContext(t *testing.T) {
	inBubble(t, func(o *office) {
		id := o.uploads("a@none.test\n")
		o.book.at("release", func() { <-time.After(time.Hour) })
		o.options.BytesMax = 1
		d := effort.Must(Start(o.system, o.options))(o.t)
		o.until("the first is finished", o.finished(id))
		other := o.uploads("a@slow.test\n")
		o.until("the other is at work", func() bool { return o.sees(other).Status == ledger.Verifying })
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if err := d.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 3*time.Second {
			o.t.Errorf("stopped after %v: %v", time.Since(began), err)
		}
		<-time.After(2 * time.Hour)
	})
}

func TestOptionsAreComplete(t *testing.T) {
	o := newOffice(t)
	for name, change := range map[string]func(o *Options){
		"book": func(o *Options) { o.Book = nil }, "log": func(o *Options) { o.Log = nil },
		"node":   func(o *Options) { o.Node = uuid.Nil },
		"leases": func(o *Options) { o.LeasesMax = 0 }, "bytes": func(o *Options) { o.BytesMax = 0 },
		"retention": func(o *Options) { o.Retention.Funding = -1 },
		"work":      func(o *Options) { o.Work.RowsMax = 0 },
		"domain":    func(o *Options) { o.Work.Domain.Waits = nil },
	} {
		broken := o.options
		change(&broken)
		_, err := Start(o.system, broken)
		effort.ErrorIf(t, err == nil, "no %s: accepted", name)
	}
}
