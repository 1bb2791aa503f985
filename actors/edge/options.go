package edge

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/guard"
)

// Options are what the actors and the limiter of a node need; all but Guard are required.
type Options struct {
	Limits Limits // the same on all nodes

	// Share says which part of a key's limits may be used here: k/n. It is asked for
	// the node that hosts the key's actor, 1/1 while all nodes agree on it, and for a
	// node that cannot reach that actor. It must not block.
	Share func(key string) (k, n int)

	Metrics *Metrics
	Guard   *guard.Guard // of goroutines; nil: none
}

// Validate says what is missing or out of range; its error wraps ErrOptions.
func (o Options) Validate() error {
	if o.Share == nil || o.Metrics == nil {
		return fmt.Errorf("%w: share and metrics are needed", ErrOptions)
	}
	return o.Limits.validate()
}

// Metrics counts what the limits per key cost.
type Metrics struct {
	asks      *prometheus.CounterVec // end: answered, timed_out, moved
	fallbacks *prometheus.CounterVec // limit: reads, creates, downloads
	living    prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_edge_asks_total",
			Help: "Questions to the actors that count what keys use, by how they ended."}, []string{"end"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_edge_fallbacks_total",
			Help: "Requests that were counted by this node's part of a limit because the key's actor did not answer."},
			[]string{"limit"}),
		living: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_edge_keys",
			Help: "API keys that are counted by an actor of this node."}),
	}
	r.MustRegister(m.asks, m.fallbacks, m.living)
	return m
}
