package verification

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the verification actors of a node do.
type Metrics struct {
	outcomes    *prometheus.CounterVec
	settlements prometheus.Counter
	settling    prometheus.Histogram
	unsettled   prometheus.Counter
	domains     prometheus.Gauge
	crashes     prometheus.Counter
	refused     prometheus.Counter
	unkept      prometheus.Counter
	parked      prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_outcomes_total",
			Help: "Outcomes settled, by outcome and reason."}, []string{"outcome", "reason"}),
		settlements: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_settlements_total",
			Help: "Settlements committed."}),
		settling: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_settle_seconds",
			Help:    "How long one settlement took. High values: the ledger is slow.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 9)}),
		unsettled: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_settle_failures_total",
			Help: "Settlements that failed and were tried again."}),
		domains: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_domains",
			Help: "Domain actors at work on this node."}),
		crashes: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_domain_crashes_total",
			Help: "Domain actors that crashed: a fault of ours."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_stale_epochs_total",
			Help: "Writes that the ledger refused because another node has the verification."}),
		unkept: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_evidence_not_kept_total",
			Help: "Settlements without their evidence: a fault of ours."}),
		parked: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_verifications_parked_total",
			Help: "Verifications that were parked: they gave back their lease and memory until their next work."}),
	}
	r.MustRegister(m.parked, m.outcomes, m.settlements, m.settling, m.unsettled, m.domains, m.crashes, m.refused, m.unkept)
	return m
}
