package http

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// storageMetrics is what the storage listener counts.
type storageMetrics struct {
	requests  *prometheus.CounterVec // label status: the HTTP status
	bytes     prometheus.Counter
	receiving prometheus.Gauge
	took      *prometheus.HistogramVec // label class
	refused   *prometheus.CounterVec   // label reason: of PROXY headers
	crowded   *prometheus.CounterVec   // reason: of uploads without a place
	held      prometheus.Counter       // seconds
	conns     *connMetrics
	full      prometheus.Counter
}

func (m *storageMetrics) register(to prometheus.Registerer) error {
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_upload_requests_total", Help: "Answers of the storage URL, by status.",
	}, []string{"status"})
	m.bytes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_upload_durable_bytes_total", Help: "Uploaded bytes made durable.",
	})
	m.full = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_upload_disk_full_total",
		Help: "Uploads refused because less than ledger.disk_reserve was free on the disk of the ledger.",
	})
	m.receiving = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rollcall_uploads_receiving", Help: "Uploads that are sending bytes.",
	})
	m.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rollcall_upload_request_seconds",
		Help: "Time of a request of the storage URL, the sending of its bytes included, by class of status " +
			"(2xx, 3xx: more is wanted, 4xx, 5xx).",
		Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800},
	}, []string{"class"})
	for _, class := range classes[2:] {
		m.took.WithLabelValues(class)
	}
	m.refused = newRefused("rollcall_upload_proxy_headers_refused_total", "storage URL")
	m.crowded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_upload_places_refused_total",
		Help: "Uploads that were told to come again for want of a place, by reason: share (their workspace had as many as " +
			"were still free) or full (none was free).",
	}, []string{"reason"})
	for _, reason := range []string{crowdedShare, crowdedFull} {
		m.crowded.WithLabelValues(reason)
	}
	m.held = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_upload_held_back_seconds_total",
		Help: "How long uploads were not read because their workspace had sent upload.bytes_per_second.",
	})
	m.conns = newConnMetrics("rollcall_upload", "storage URL")
	for _, c := range []prometheus.Collector{m.requests, m.bytes, m.receiving, m.took, m.refused, m.crowded, m.held, m.full,
		m.conns.open, m.conns.refused} {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *storageMetrics) proxyRefused(reason string) { m.refused.WithLabelValues(reason).Inc() }

func (m *storageMetrics) count(status int) { m.requests.WithLabelValues(strconv.Itoa(status)).Inc() }

// finished counts an answer and how long its request took.
func (m *storageMetrics) finished(status int, took time.Duration) {
	m.count(status)
	if class := status / 100; class >= 1 && class < len(classes) {
		m.took.WithLabelValues(classes[class]).Observe(took.Seconds())
	}
}
