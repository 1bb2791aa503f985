package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

// The values of the label kind.
const (
	kindWrite = "write"
	kindRead  = "read"
)

// meters counts what a Store does.
type meters struct {
	retries *prometheus.CounterVec // by why
	failed  *prometheus.CounterVec // by kind
	took    prometheus.Histogram
	waited  *prometheus.HistogramVec // by kind and who
	doubted prometheus.Gauge
}

// The values of the label who.
const (
	whoNode      = "node"
	whoWorkspace = "workspace"
	whoStranger  = "stranger"
)

func newMeters() meters {
	m := meters{
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_ledger_retries_total",
			Help: "Transactions and reads of the ledger that were run again, by why."}, []string{"why"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_ledger_failures_total",
			Help: "Transactions and reads of the ledger that were given up because it did not answer, by kind " +
				"(write, read)."}, []string{"kind"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_ledger_transaction_seconds",
			Help:    "How long one transaction of the ledger took, with its waits and further runs.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 11)}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rollcall_ledger_turn_wait_seconds",
			Help: "How long uses of the ledger waited for their turn, by kind (write, read) and who: node (its own work, " +
				"which goes first), workspace (they take turns), stranger (whose key is not known yet).",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 11)}, []string{"kind", "who"}),
		doubted: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_ledger_clock_doubted",
			Help: "1 while this node erases and expires nothing, because the ledger's clock jumped or " +
				"differs from the node's."}),
	}
	for _, why := range []string{whyConflict, whyDuplicate, whyConnection, whyBusy, whyResources, whyUnknown,
		whyReadOnly, whyAborted} {
		m.retries.WithLabelValues(why)
	}
	for _, kind := range []string{kindWrite, kindRead} {
		m.failed.WithLabelValues(kind)
		for _, who := range []string{whoNode, whoWorkspace, whoStranger} {
			m.waited.WithLabelValues(kind, who)
		}
	}
	return m
}

// waits returns what is told how long a use of that kind has waited.
func (m meters) waits(kind string) func(who uuid.UUID, long time.Duration) {
	node, stranger := m.waited.WithLabelValues(kind, whoNode), m.waited.WithLabelValues(kind, whoStranger)
	workspace := m.waited.WithLabelValues(kind, whoWorkspace)
	return func(who uuid.UUID, long time.Duration) {
		seen := workspace
		switch who {
		case uuid.Nil:
			seen = node
		case ledger.Strangers:
			seen = stranger
		}
		seen.Observe(long.Seconds())
	}
}

func (m meters) register(to prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.retries, m.failed, m.took, m.waited, m.doubted} {
		if err := to.Register(c); err != nil {
			return fmt.Errorf("register the ledger's metrics: %w", err)
		}
	}
	return nil
}

// fails counts a call that the ledger did not answer.
func (m meters) fails(kind string, err error) {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
		m.failed.WithLabelValues(kind).Inc()
	}
}

// underWay is a transaction that is not over.
type underWay struct {
	meters
	began time.Time
	span  tracing.Span
	runs  int64
}

func (m meters) write(ctx context.Context) (context.Context, *underWay) {
	w := &underWay{meters: m, began: time.Now()}
	ctx, w.span = tracing.Within(ctx, tracing.LedgerWrite)
	return ctx, w
}

func (w *underWay) end(err error) {
	w.took.Observe(time.Since(w.began).Seconds())
	w.fails(kindWrite, err)
	w.span.Count(tracing.Attempts, w.runs)
	w.span.End(err != nil)
}
