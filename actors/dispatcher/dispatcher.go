package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/verification"
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

// lookupWithin bounds Lookup: a verification actor answers at once, unless it has much
// to do.
const lookupWithin = time.Second

// Lookup says what the open addresses of a verification wait for; false when this node
// does not have it, or does not answer in time.
func (d *Dispatcher) Lookup(id uuid.UUID) (inspect.Verification, bool) {
	found, err := d.root.RequestFuture(d.pid, ask{id}, lookupWithin).Result()
	v, ok := found.(inspect.Verification)
	return v, ok && err == nil
}

// tell forwards a question to the verification's actor.
func (s *shell) tell(c actor.Context, id uuid.UUID) {
	if r, ok := s.running[id]; ok {
		c.RequestWithCustomSender(r.pid, verification.Ask{}, c.Sender())
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
	taken     prometheus.Counter
	takenOver prometheus.Counter
	lost      prometheus.Counter
	crashed   prometheus.Counter
	bytes     prometheus.Gauge
	waiting   prometheus.Gauge
	full      prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		leases: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_leases",
			Help: "Verifications that this node has."}),
		taken: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_leases_taken_total",
			Help: "Verifications that this node leased, those that it took over included."}),
		takenOver: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_takeovers_total",
			Help: "Verifications that this node took over from an owner that was lost, stopped or draining."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_leases_lost_total",
			Help: "Leases that this node lost: others have them, or it could not renew them in time."}),
		crashed: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_verification_crashes_total",
			Help: "Verification actors that crashed: a fault of this program. The second time the file is set aside."}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_file_bytes",
			Help: "Bytes of the files that this node has in memory."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_files_waiting",
			Help: "Verifications that this node has and whose files wait for memory."}),
		full: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_workspaces_full",
			Help: "Workspaces that have their share of this node's leases: their other files wait."}),
	}
	r.MustRegister(m.crashed, m.bytes, m.waiting, m.full, m.leases, m.taken, m.takenOver, m.lost)
	return m
}
