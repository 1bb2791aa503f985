package dispatcher

import "github.com/prometheus/client_golang/prometheus"

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
			Help: "Verifications that this node leased and that had an owner before, lost, stopped or draining."}),
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
