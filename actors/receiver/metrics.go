package receiver

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/process"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/receiver/status"
)

// Metrics counts what the receiver actors of a node do.
type Metrics struct {
	*scheduler.Metrics
	opened    prometheus.Counter
	shareless prometheus.Gauge
	collected atomic.Pointer[Registry] // the receivers to collect from; nil: none yet
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Metrics: scheduler.NewMetrics(r),
		opened:  process.NewCounter(r, "smtp_sessions_opened_total", "SMTP sessions begun."),
		shareless: process.NewGauge(r, "receivers_without_share",
			"Receiver actors on this node whose share of the limits is zero."),
	}
	m.gauge(r, "receivers", "Receiver actors that live on this node.", (*Registry).Count)
	m.gauge(r, "smtp_sessions", "SMTP sessions open or opening.", (*Registry).Sessions)
	m.gauge(r, "smtp_sessions_silent", "SMTP sessions that ended here and that receivers may still hold.",
		(*Registry).SilentCount)
	m.gauge(r, "receivers_waiting",
		"Receiver actors that wait until fewer than smtp.receivers_at_once have work on this node.", (*Registry).waiting)
	r.MustRegister(status.NewCollector(m.collectStatus))
	return m
}

// gauge registers a number that the node's receivers are asked for. The number is 0 while there is no node.
func (m *Metrics) gauge(r prometheus.Registerer, name, help string, count func(living *Registry) int) {
	process.NewGaugeFunc(r, name, help, func() float64 {
		if living := m.collected.Load(); living != nil {
			return float64(count(living))
		}
		return 0
	})
}

// collectStatus asks the receivers of the node. False: there is no node yet.
func (m *Metrics) collectStatus(ctx context.Context) ([]inspect.Receiver, bool) {
	living := m.collected.Load()
	if living == nil {
		return nil, false
	}
	return living.CollectStatus(ctx), true
}
