package dispatcher

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what a dispatcher does with leases.
type Metrics struct {
	leases    prometheus.Gauge
	taken     prometheus.Counter
	takenOver prometheus.Counter
	lost      prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		leases: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_leases",
			Help: "Verifications that this node has."}),
		taken: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_leases_taken_total",
			Help: "Verifications that this node leased, those that it took over included."}),
		takenOver: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_takeovers_total",
			Help: "Verifications that this node leased and that had an owner before, lost, stopped or draining."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_leases_lost_total",
			Help: "Leases that this node lost: others have them, or it could not renew them in time."}),
	}
	r.MustRegister(m.leases, m.taken, m.takenOver, m.lost)
	return m
}
