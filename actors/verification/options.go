package verification

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/domain"
	"rollcall/actors/process"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

// Book is what a verification actor needs of the ledger.
type Book interface {
	Verification(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error)
	OpenFile(ctx context.Context, id uuid.UUID) (io.ReadCloser, error)
	Refuse(ctx context.Context, l ledger.Lease, issue ledger.Issue) (ledger.Verification, error)
	Prepare(ctx context.Context, l ledger.Lease, rows, duplicates, total int64) (ledger.Verification, error)
	Settled(ctx context.Context, id uuid.UUID, yield func(ordinals []int64) error) error
	Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error)
	Wait(ctx context.Context, l ledger.Lease, o ledger.Estimate) (ledger.Verification, error)
	Park(ctx context.Context, l ledger.Lease, o ledger.Estimate, state []byte) (ledger.Verification, error)
	Parked(ctx context.Context, id uuid.UUID) ([]byte, error)
	FinishCancel(ctx context.Context, l ledger.Lease) (ledger.Verification, error)
	Release(ctx context.Context, l ledger.Lease) error
}

// Options is what every verification actor of a node shares. All fields but the Window and the Tracer are required.
type Options struct {
	Book       Book
	Domain     domain.Options
	RowsMax    int64           // a file that comes in with more rows is refused
	DomainsMax int             // domains at work at a time for one verification
	Window     *process.Window // how many of these while the node is busy; nil: all
	Left       *atomic.Int64   // addresses that this node has and that are not settled
	Log        *slog.Logger
	Metrics    *Metrics
	Tracer     *tracing.Tracer // nil: nothing is traced
}

// Validate returns an error that names a missing option.
func (o Options) Validate() error {
	if o.Book == nil || o.Left == nil || o.Log == nil || o.Metrics == nil {
		return errors.New("verification options: no book, left, logger or metrics")
	}
	if o.RowsMax < 1 || o.DomainsMax < 1 {
		return errors.New("verification options: rows or domains below 1")
	}
	return o.Domain.Validate()
}

// Messages of the dispatcher to a verification actor.
type (
	// Look asks it to check whether its customer cancelled.
	Look struct{}
	// Drain asks it to settle what it has, return its lease and end.
	Drain struct{}
	// Ask asks what its open addresses wait for; the response is an inspect.Verification.
	Ask struct{}
	// Lost tells it that its lease is gone: it must end and write nothing more.
	Lost struct{}
)

// Nearly is what a verification actor sends the dispatcher, once, when nearly all of its addresses are answered, so
// that other files needn't wait.
type Nearly struct{ Verification uuid.UUID }

// nearlyShare is the part of the addresses that may be open then. Guess.
const nearlyShare = 10

// Ended is the last message of a verification actor to the dispatcher.
type Ended struct{ Verification uuid.UUID }

// Metrics counts what the verification actors of a node do.
type Metrics struct {
	outcomes    *prometheus.CounterVec
	settlements prometheus.Counter
	settling    prometheus.Histogram
	unsettled   prometheus.Counter
	domains     prometheus.Gauge
	crashes     prometheus.Counter
	unkept      prometheus.Counter
	parked      prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_outcomes_total",
			Help: "Outcomes settled, by outcome and reason."}, []string{"outcome", "reason"}),
		settlements: process.NewCounter(r, "settlements_total", "Settlements committed."),
		settling: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_settle_seconds",
			Help:    "How long one settlement took. High values: the ledger is slow.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 9)}),
		unsettled: process.NewCounter(r, "settle_failures_total", "Settlements that failed and were tried again."),
		domains:   process.NewGauge(r, "domains", "Domain actors at work on this node."),
		crashes:   process.NewCounter(r, "domain_crashes_total", "Domain actors that crashed: a fault of ours."),
		unkept:    process.NewCounter(r, "evidence_not_kept_total", "Settlements without their evidence: a fault of ours."),
		parked: process.NewCounter(r, "verifications_parked_total",
			"Verifications that were parked: they returned their lease and memory until their next work."),
	}
	r.MustRegister(m.outcomes, m.settling)
	return m
}
