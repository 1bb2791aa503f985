package verification

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
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
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// deadLetters is how long the library's goroutine that counts them lives.
const deadLetters = time.Millisecond

var quietLog = slog.New(slog.DiscardHandler)

// world is a real ledger and a real actor system, with domains that answer as their names say: see route and mailboxes.
type world struct {
	t         testing.TB
	book      *sqlstore.Store
	system    *actor.ActorSystem
	workspace uuid.UUID
	node      uuid.UUID
	receiver  *actor.PID
	mailboxes *mailboxes
	patience  time.Duration // of every wait
}

func newWorld(t testing.TB, credits ledger.Credits) *world {
	t.Helper()
	url := effort.Ledger(t, sqlstore.Migrate)
	book := effort.Must(sqlstore.Open(context.Background(), url, sqlstore.Options{}))(t)
	t.Cleanup(func() { effort.OK(t, book.Close()) })
	w := &world{t: t, book: book, workspace: uuid.New(), node: uuid.New(), mailboxes: &mailboxes{},
		patience: 2 * time.Minute}
	w.system = actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quietLog }),
		actor.WithDeadLetterThrottleInterval(deadLetters))
	w.receiver = w.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return w.mailboxes }))
	t.Cleanup(func() {
		_ = w.system.Root.StopFuture(w.receiver).Wait()
		w.system.Shutdown()
		<-time.After(10 * deadLetters) // a bubble must leave nothing behind
	})
	effort.Must(book.CreateWorkspace(context.Background(), w.workspace, "test"))(t)
	if credits > 0 {
		w.grants(credits)
	}
	return w
}

func (w *world) grants(n ledger.Credits) {
	w.t.Helper()
	effort.Must(w.book.Grant(context.Background(), uuid.New(), w.workspace, n, "test"))(w.t)
}

// mailboxes is a receiver actor: "yes…" is accepted, "no…" refused, "later…" is put off for an hour, "soon…" for three
// seconds, "second…" for twenty at the first time and refused then, "never…" is not answered; at all.test everything is
// accepted.
type mailboxes struct {
	mu    sync.Mutex
	asked map[string]int // guarded by mu: how often each address was offered
	// before is called before each offer is answered. Guarded by mu.
	before func()
}

func (m *mailboxes) times() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int{}
	for address, n := range m.asked {
		out[address] = n
	}
	return out
}

// Receive implements actor.Actor.
func (m *mailboxes) Receive(c actor.Context) {
	offer, ok := c.Message().(*wire.Offer)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.before != nil {
		m.before()
	}
	if m.asked == nil {
		m.asked = map[string]int{}
	}
	var texts wire.Texts
	r := &wire.Results{Task: offer.GetTask(), Chunk: offer.GetChunk(), Batch: 1, Credit: 2}
	for _, p := range offer.GetProbes() {
		m.asked[p.GetLocal()+"@"+offer.GetTask().GetDomain()]++
		a := &wire.Answer{Ordinal: p.GetOrdinal()}
		switch {
		case strings.HasPrefix(p.GetLocal(), "yes") || offer.GetTask().GetDomain() == "all.test":
			a.Outcome, a.Reason = uint32(smtp.Valid), uint32(smtp.MailboxExists)
		case strings.HasPrefix(p.GetLocal(), "second") && m.asked[p.GetLocal()+"@"+offer.GetTask().GetDomain()] == 1:
			a.Reason, a.WaitMs = uint32(smtp.Greylisted), (20 * time.Second).Milliseconds()
		case strings.HasPrefix(p.GetLocal(), "later"):
			a.Reason, a.WaitMs = uint32(smtp.Greylisted), time.Hour.Milliseconds()
		case strings.HasPrefix(p.GetLocal(), "soon"):
			a.Reason, a.WaitMs = uint32(smtp.Greylisted), (3 * time.Second).Milliseconds()
		case strings.HasPrefix(p.GetLocal(), "never"):
			continue
		default:
			a.Outcome, a.Reason = uint32(smtp.Invalid), uint32(smtp.MailboxNotFound)
		}
		outcome, reason := a.Verdict()
		a.Attempts = texts.Attempts([]evidence.Attempt{{At: time.Now(), Stage: smtp.StageRcpt,
			Host: "mx." + offer.GetTask().GetDomain(), Code: codes[outcome], Text: outcome.String(), Outcome: outcome,
			Reason: reason, Rule: "world"}})
		r.Answers = append(r.Answers, a)
	}
	r.Texts = texts.List()
	c.Respond(&wire.OfferAck{Task: offer.GetTask(), Chunk: offer.GetChunk(), Credit: 2})
	c.Request(c.Sender(), r)
}

// codes are what receivers say.
var codes = map[smtp.Outcome]int{smtp.Valid: 250, smtp.Invalid: 550, smtp.Undecided: 450}

// route answers none.test (no mail), silent.test (an error), and the rest with a host.
func route(_ context.Context, name string) (mx.Route, error) {
	switch name {
	case "none.test":
		return mx.Route{Domain: name, NoMail: smtp.NoMailService}, nil
	case "silent.test":
		return mx.Route{}, errors.New("no answer")
	}
	return mx.Route{Domain: name, Receiver: name, Expires: time.Now().Add(24 * time.Hour),
		Hosts: []mx.Host{{Name: "mx." + name, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}}, nil
}

// options are for verifications of this world; book may stand before the ledger.
func (w *world) options(book Book) Options {
	return Options{Book: book, RowsMax: 100_000, DomainsMax: 50, Log: quietLog, Left: &atomic.Int64{},
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Domain: domain.Options{Route: route, Facts: domain.NewFacts(), Log: quietLog,
			Load: domain.NewLoad(func(uuid.UUID) int { return 1 }),
			Match: func(r mx.Route) string {
				if r.Domain == "crash.test" {
					panic("a fault in a domain actor")
				}
				return r.Receiver
			},
			Resolve: func(string) *actor.PID { return w.receiver },
			Version: func() uint64 { return 0 }, GiveUpAfter: 2 * time.Hour,
			Waits:         func(string) []time.Duration { return []time.Duration{10 * time.Millisecond} },
			ControlPauses: []time.Duration{10 * time.Millisecond}}}
}

// uploads makes a verification of addresses, whose bytes are all there.
func (w *world) uploads(rows ...string) ledger.Verification {
	w.t.Helper()
	ctx := context.Background()
	file := []byte("email\n" + strings.Join(rows, "\n") + "\n")
	v, _, err := w.book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: w.workspace,
		Identity: uuid.New(), Bytes: int64(len(file)), BytesMax: 1 << 30,
		Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000}, UploadExpiry: time.Hour})
	effort.OK(w.t, err)
	u, err := w.book.OpenUpload(ctx, v.ID)
	at := int64(0)
	for chunk := range slices.Chunk(file, ledger.ChunkBytesMax) {
		if err == nil {
			_, err = w.book.AppendChunk(ctx, v.ID, u.Writer, at, chunk)
		}
		at += int64(len(chunk))
	}
	effort.OK(w.t, err)
	return v
}

// leases takes one verification for a node.
func (w *world) leases(node, id uuid.UUID) (ledger.Verification, ledger.Lease) {
	w.t.Helper()
	list := effort.Must(w.book.Lease(context.Background(), node, 1000, time.Hour))(w.t)
	for _, v := range list {
		if v.ID == id {
			return v, ledger.Lease{Verification: id, Node: node, Epoch: v.Epoch}
		}
	}
	w.t.Fatalf("verification %s is not to be leased: %+v", id, w.sees(id))
	return ledger.Verification{}, ledger.Lease{}
}

func (w *world) sees(id uuid.UUID) ledger.Verification {
	w.t.Helper()
	return effort.Must(w.book.Verification(context.Background(), w.workspace, id))(w.t)
}

// run is one verification actor below a parent that stands for the dispatcher.
type run struct {
	w     *world
	id    uuid.UUID
	pid   *actor.PID // of the parent
	ended chan struct{}

	parked atomic.Int64 // how often
	over   atomic.Bool  // nobody leases it again
}

// wakes is when a verification that was parked may be leased again.
func (w *world) wakes(v ledger.Verification) (time.Time, bool) {
	state, err := w.book.Parked(context.Background(), v.ID)
	now := w.sees(v.ID)
	return now.NextTry, err == nil && state != nil && now.State() == ledger.WaitingReceivers && now.NextTry.After(time.Now())
}

// woken tells that a verification that was parked is leased again.
type woken struct {
	v ledger.Verification
	l ledger.Lease
}

// starts begins an actor for a verification of this world, and another one each time that it was
// parked. The ledger's clock is that of the machine, far ahead of a bubble's.
func (w *world) starts(o Options, v ledger.Verification, l ledger.Lease) *run {
	w.t.Helper()
	effort.OK(w.t, o.Validate())
	r := &run{w: w, ended: make(chan struct{})}
	stop := actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	props := func(m woken) *actor.Props {
		return actor.PropsFromProducer(func() actor.Actor { return New(o, m.v, m.l) }, actor.WithSupervisor(stop))
	}
	var child *actor.PID
	told, asleep := false, false
	r.pid = w.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			child = c.Spawn(props(woken{v, l}))
		case woken:
			child, asleep = c.Spawn(props(m)), false
		case Ended:
			effort.Is(w.t, m.Verification, v.ID, "the end of is told")
			c.Stop(child)
			if at, parked := w.wakes(v); parked && !told {
				r.parked.Add(1)
				asleep = true
				self := c.Self()
				time.AfterFunc(time.Until(at), func() {
					if r.over.Load() {
						return
					}
					v, l := w.leases(l.Node, v.ID)
					w.system.Root.Send(self, woken{v, l})
				})
				return
			}
			close(r.ended) // a second time panics
		case Look, Drain, Lost:
			_, look := m.(Look)
			if told = told || !look; told && asleep { // it was parked just before
				asleep = false
				r.over.Store(true)
				close(r.ended)
				return
			}
			c.Send(child, m)
		case Ask:
			if _, parked := w.wakes(v); parked { // as the ledger says
				now := w.sees(v.ID)
				c.Respond(inspect.Verification{Total: now.Total, Final: now.Counts.Sum(), Finish: now.Expected})
				return
			}
			c.RequestWithCustomSender(child, m, c.Sender())
		}
	}))
	w.t.Cleanup(func() { _ = w.system.Root.StopFuture(r.pid).Wait() })
	return r
}

func (r *run) tell(m any) { r.w.system.Root.Send(r.pid, m) }

// wait waits for the end of the actor.
func (r *run) wait() {
	r.w.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(r.w.patience):
		r.w.t.Fatal("the verification actor does not end")
	}
}

// finishes runs a verification to the end of its actor.
func (w *world) finishes(o Options, id uuid.UUID) ledger.Verification {
	w.t.Helper()
	v, l := w.leases(w.node, id)
	w.starts(o, v, l).wait()
	return w.sees(id)
}

// results returns "outcome reason" by address.
func (w *world) results(id uuid.UUID) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	effort.OK(w.t, w.book.Results(context.Background(), w.workspace, id, func(r ledger.Result) error {
		out[r.Email] = fmt.Sprint(r.Outcome, " ", r.Reason)
		return nil
	}))
	return out
}

// sound checks the invariants of the ledger and gives the balance.
func (w *world) sound() ledger.Balance {
	w.t.Helper()
	report, err := w.book.Audit(context.Background())
	effort.FatalIf(w.t, err != nil || len(report.Violations) > 0, "audit: %+v, %v", report.Violations, err)
	return w.balance()
}

func (w *world) balance() ledger.Balance {
	w.t.Helper()
	return effort.Must(w.book.Balance(context.Background(), w.workspace))(w.t)
}

// until waits for a condition on a verification.
func (w *world) until(id uuid.UUID, what string, holds func(v ledger.Verification) bool) ledger.Verification {
	w.t.Helper()
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	deadline := time.After(w.patience)
	for {
		v := w.sees(id)
		if holds(v) {
			return v
		}
		select {
		case <-every.C:
		case <-deadline:
			w.t.Fatalf("not %s in time: %+v", what, v)
		}
	}
}

// watched is a ledger that checks each state that it answers: nothing falls, and every step is legal. Calls are made
// one after the other, because answers to calls at the same time have no order.
type watched struct {
	*sqlstore.Store
	t    testing.TB
	mu   sync.Mutex                        // held during a call
	last map[uuid.UUID]ledger.Verification // guarded by mu
	seen []ledger.Status                   // guarded by mu: each change
}

func (w *world) watches() *watched {
	return &watched{Store: w.book, t: w.t, last: map[uuid.UUID]ledger.Verification{}}
}

func (b *watched) note(call func() (ledger.Verification, error)) (ledger.Verification, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, err := call()
	if err != nil {
		return v, err
	}
	before, known := b.last[v.ID]
	effort.ErrorIf(b.t, known && (v.Counts.Sum() < before.Counts.Sum() || v.Settlements < before.Settlements),
		"progress fell from %+v to %+v", before.Counts, v.Counts)
	if known && before.Status != v.Status {
		effort.ErrIs(b.t, ledger.Step(before.State(), v.State()), nil)
	}
	if before.Status != v.Status {
		b.seen = append(b.seen, v.Status)
	}
	b.last[v.ID] = v
	return v, nil
}

func (b *watched) Prepare(ctx context.Context, l ledger.Lease, rows, duplicates, total int64) (
	ledger.Verification, error) {
	return b.note(func() (ledger.Verification, error) { return b.Store.Prepare(ctx, l, rows, duplicates, total) })
}

func (b *watched) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	return b.note(func() (ledger.Verification, error) { return b.Store.Settle(ctx, s) })
}

func (b *watched) Wait(ctx context.Context, l ledger.Lease, o ledger.Estimate) (ledger.Verification, error) {
	return b.note(func() (ledger.Verification, error) { return b.Store.Wait(ctx, l, o) })
}

func (b *watched) Park(
	ctx context.Context, l ledger.Lease, o ledger.Estimate, state []byte,
) (ledger.Verification, error) {
	return b.note(func() (ledger.Verification, error) { return b.Store.Park(ctx, l, o, state) })
}

func (b *watched) statuses() []ledger.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]ledger.Status(nil), b.seen...)
}

// inBubble runs a test whose hours take no time.
func inBubble(t *testing.T, credits ledger.Credits, test func(w *world)) {
	t.Helper()
	ledgertest.WarmCodec(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, credits)
		w.patience = 10 * time.Hour
		test(w)
	})
}
