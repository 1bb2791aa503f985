package receiver

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/receiver/status"
)

// Metrics counts what the receiver actors of a node do.
type Metrics struct {
	*scheduler.Metrics
	sessions  prometheus.Gauge
	opened    prometheus.Counter
	living    prometheus.Gauge
	shareless prometheus.Gauge

	slots     atomic.Pointer[registry.ReceiverSlots]
	collected atomic.Pointer[Registry] // whose receivers are collected; nil: none yet
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_" + name, Help: help})
	}
	m := &Metrics{
		Metrics:  scheduler.NewMetrics(r),
		sessions: gauge("smtp_sessions", "SMTP sessions open or opening."),
		opened:   counter("smtp_sessions_opened_total", "SMTP sessions begun."),
		living:   gauge("receivers", "Receiver actors that live on this node."),
		shareless: gauge("receivers_without_share",
			"Receiver actors on this node whose share of the limits is zero."),
	}
	silent := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_smtp_sessions_silent",
		Help: "SMTP sessions that ended here and that receivers may still hold."}, m.silent)
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_receivers_waiting",
		Help: "Receiver actors that wait until fewer than smtp.receivers_at_once have work on this node."}, m.waiting)
	r.MustRegister(waiting, status.NewCollector(m.survey), silent, m.sessions, m.opened, m.living, m.shareless)
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

// survey asks the receivers of the node; false: there is none yet.
func (m *Metrics) survey(ctx context.Context) ([]inspect.Receiver, bool) {
	living := m.collected.Load()
	if living == nil {
		return nil, false
	}
	return living.Survey(ctx), true
}
