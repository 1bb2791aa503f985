package upload

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/http/listen"
)

// metrics is what the storage listener counts.
type metrics struct {
	requests  *prometheus.CounterVec // label status: the HTTP status
	bytes     prometheus.Counter
	receiving prometheus.Gauge
	took      *prometheus.HistogramVec // label class
	crowded   *prometheus.CounterVec   // reason: of uploads without a place
	held      prometheus.Counter       // seconds
	conns     *listen.Metrics
	full      prometheus.Counter
}

func (m *metrics) register(to prometheus.Registerer) error {
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
	for _, class := range listen.Classes[2:] {
		m.took.WithLabelValues(class)
	}
	m.crowded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_upload_places_refused_total",
		Help: "Uploads that were told to come again for want of a place, by reason: share (their workspace had as many as " +
			"were still free) or full (none was free).",
	}, []string{"reason"})
	for _, reason := range []string{listen.NoShare, listen.NoPlace} {
		m.crowded.WithLabelValues(reason)
	}
	m.held = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_upload_held_back_seconds_total",
		Help: "How long uploads were not read because their workspace had sent upload.bytes_per_second.",
	})
	m.conns = listen.NewMetrics("rollcall_upload", "storage URL")
	own := []prometheus.Collector{m.requests, m.bytes, m.receiving, m.took, m.crowded, m.held, m.full}
	for _, c := range append(own, m.conns.Collectors()...) {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) count(status int) { m.requests.WithLabelValues(strconv.Itoa(status)).Inc() }

// finished counts an answer and how long its request took.
func (m *metrics) finished(status int, took time.Duration) {
	m.count(status)
	if class := status / 100; class >= 1 && class < len(listen.Classes) {
		m.took.WithLabelValues(listen.Classes[class]).Observe(took.Seconds())
	}
}
