package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/process"
	"rollcall/actors/verification"
	"rollcall/ledger"
)

// Dispatcher is the handle on a node's dispatcher actor. Safe for concurrent use.
type Dispatcher struct {
	root *actor.RootContext
	pid  *actor.PID
	held *atomic.Int64
	once sync.Once
	err  error // of Stop
}

// Start starts the dispatcher; it takes work from now on.
func Start(system *actor.ActorSystem, o Options) (*Dispatcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	held := &atomic.Int64{}
	props := actor.PropsFromProducer(func() actor.Actor { return newShell(o, held) },
		actor.WithSupervisor(actor.NewOneForOneStrategy(0, 0, stopFailing)))
	pid, err := system.Root.SpawnNamed(props, "dispatcher")
	if err != nil {
		return nil, fmt.Errorf("start dispatcher: %w", err)
	}
	return &Dispatcher{root: system.Root, pid: pid, held: held}, nil
}

// Leases is how many verifications this node has.
func (d *Dispatcher) Leases() int { return int(d.held.Load()) }

// Drain(true) returns every lease and takes no more; Drain(false) takes work again. It doesn't wait, the last call
// wins, and a dispatcher that stops takes no work again.
func (d *Dispatcher) Drain(draining bool) { d.root.Send(d.pid, drain{draining}) }

// Wake makes the dispatcher look for work, and its verifications for a cancel, at once.
func (d *Dispatcher) Wake() { d.root.Send(d.pid, wake{}) }

// Stop takes no more work, settles what is known, returns every lease and ends. If ctx ends first, the remaining leases
// run out by themselves. A second call waits for the first and returns the same.
func (d *Dispatcher) Stop(ctx context.Context) error {
	d.once.Do(func() { d.err = d.stop(ctx) })
	return d.err
}

func (d *Dispatcher) stop(ctx context.Context) error {
	done := make(chan struct{})
	d.root.Send(d.pid, stop{done})
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("drain: %w", ctx.Err())
	}
	_ = d.root.StopFuture(d.pid).Wait() // ten seconds at most, for actors that do not block
	return err
}

// lookupWithin bounds Lookup: a verification actor answers at once, unless it has much to do.
const lookupWithin = time.Second

// Lookup says what the open addresses of a verification wait for; false when this node
// does not have it, or does not answer in time.
func (d *Dispatcher) Lookup(id uuid.UUID) (inspect.Verification, bool) {
	found, err := d.root.RequestFuture(d.pid, ask{id}, lookupWithin).Result()
	v, ok := found.(inspect.Verification)
	return v, ok && err == nil
}

func (s *shell) forwardLookup(c actor.Context, id uuid.UUID) {
	if l := s.leased[id]; l != nil && l.pid != nil {
		c.RequestWithCustomSender(l.pid, verification.Ask{}, c.Sender())
		return
	}
	for _, w := range s.admission.waiters {
		if w.state.ID == id {
			c.Respond(inspect.Verification{ID: id.String(), Workspace: w.state.Workspace.String(),
				Status: string(w.state.Status), Total: w.state.Total, Final: w.state.Counts.Sum(), At: time.Now(),
				Why: "its file waits for memory: this node has others in work"})
			return
		}
	}
	c.Respond(notHere{})
}

// notHere answers a question about a verification that this node doesn't have.
type notHere struct{}

// Metrics counts what a dispatcher does with leases.
type Metrics struct {
	leases    prometheus.Gauge
	takenOver prometheus.Counter
	lost      prometheus.Counter
	crashed   prometheus.Counter
	bytes     prometheus.Gauge
	waiting   prometheus.Gauge
	full      prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{
		leases: process.NewGauge(r, "leases", "Verifications that this node has."),
		takenOver: process.NewCounter(r, "takeovers_total",
			"Verifications that this node took over from an owner that was lost, stopped or draining."),
		lost: process.NewCounter(r, "leases_lost_total",
			"Leases that this node lost: others have them, or it could not renew them in time."),
		crashed: process.NewCounter(r, "verification_crashes_total",
			"Verification actors that crashed: a fault of this program. The second time the file fails with internal_error."),
		bytes:   process.NewGauge(r, "file_bytes", "Bytes of the files that this node has in memory."),
		waiting: process.NewGauge(r, "files_waiting", "Verifications that this node has and whose files wait for memory."),
		full: process.NewGauge(r, "workspaces_full",
			"Workspaces that have their share of this node's leases: their other files wait."),
	}
}

// Book is what the dispatcher needs of the ledger.
type Book interface {
	Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) ([]ledger.Verification, error)
	Renew(ctx context.Context, node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error)
	Release(ctx context.Context, l ledger.Lease) error
	Crashed(ctx context.Context, l ledger.Lease) (ledger.Verification, error)
	Sweep(ctx context.Context, r ledger.Retention) (int, error)
}

// Options is what a dispatcher needs to know. All fields are required.
type Options struct {
	Book      Book
	Node      uuid.UUID // of this node, the same after a restart
	Retention ledger.Retention
	Work      verification.Options
	// LeasesMax bounds the verifications this node has, and BytesMax the bytes of the files that it has in memory; one
	// file is always taken, however large. Workspaces share both: see package ledger/quota.
	LeasesMax int
	BytesMax  int64
	// Weight returns a workspace's weight in sharing leases, at least 1. It must not block.
	Weight func(workspace uuid.UUID) int
	// Ahead reports whether this node, with these leases and addresses, has clearly more in work than another node that
	// takes work. If so, this node leaves new work to that one for a while. Ahead must not block.
	Ahead   func(leases int, addresses int64) bool
	Log     *slog.Logger
	Metrics *Metrics
}

// Validate returns an error that names a missing option.
func (o Options) Validate() error {
	switch {
	case o.Book == nil || o.Log == nil || o.Ahead == nil || o.Weight == nil || o.Metrics == nil:
		return errors.New("dispatcher options: no book, logger, ahead, weight or metrics")
	case o.Node == uuid.Nil:
		return errors.New("dispatcher options: no node id")
	case o.LeasesMax < 1 || o.BytesMax < 1:
		return errors.New("dispatcher options: leases or bytes below 1")
	case o.Retention.Uploads <= 0 || o.Retention.Results <= 0 || o.Retention.Funding <= 0:
		return errors.New("dispatcher options: a retention is not positive")
	}
	return o.Work.Validate()
}

const (
	// leaseAtOnce is how many verifications one question leases: one, since its size decides whether another node
	// should take the next.
	leaseAtOnce = 1

	// addressBytes is about the length of a row. A leased file may not be read yet, so its addresses are estimated from
	// its bytes.
	addressBytes = 25

	// leaveLooks is how many searches for work a node skips if it has more work than others. It searches once a second.
	leaveLooks = 3

	searchEvery = time.Second      // how often to look for work without a hint
	sweepEvery  = 10 * time.Second // how often to run the ledger's timed steps
	callWithin  = 15 * time.Second // one question to the ledger
	overtakeMax = time.Minute      // how long other large files may overtake one that waits for memory
)
