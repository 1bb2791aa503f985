package receiver

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/process"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/receiver/status"
)

// Metrics counts what the receiver actors of a node do.
type Metrics struct {
	*scheduler.Metrics
	sessions  prometheus.Gauge
	opened    prometheus.Counter
	receivers prometheus.Gauge
	shareless prometheus.Gauge

	slots     atomic.Pointer[registry.ReceiverSlots]
	collected atomic.Pointer[Registry] // whose receivers are collected; nil: none yet
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Metrics:   scheduler.NewMetrics(r),
		sessions:  process.NewGauge(r, "smtp_sessions", "SMTP sessions open or opening."),
		opened:    process.NewCounter(r, "smtp_sessions_opened_total", "SMTP sessions begun."),
		receivers: process.NewGauge(r, "receivers", "Receiver actors that live on this node."),
		shareless: process.NewGauge(r, "receivers_without_share",
			"Receiver actors on this node whose share of the limits is zero."),
	}
	process.NewGaugeFunc(r, "smtp_sessions_silent",
		"SMTP sessions that ended here and that receivers may still hold.", m.silent)
	process.NewGaugeFunc(r, "receivers_waiting",
		"Receiver actors that wait until fewer than smtp.receivers_at_once have work on this node.", m.waiting)
	r.MustRegister(status.NewCollector(m.collectStatus))
	return m
}

// waiting counts the receivers that have no slot yet.
func (m *Metrics) waiting() float64 {
	if slots := m.slots.Load(); slots != nil {
		return float64(slots.Waiting())
	}
	return 0
}

// silent counts the sessions of which only the end is awaited.
func (m *Metrics) silent() float64 {
	if living := m.collected.Load(); living != nil {
		return float64(living.SilentCount())
	}
	return 0
}

// collectStatus asks the receivers of the node; false: there is none yet.
func (m *Metrics) collectStatus(ctx context.Context) ([]inspect.Receiver, bool) {
	living := m.collected.Load()
	if living == nil {
		return nil, false
	}
	return living.CollectStatus(ctx), true
}
