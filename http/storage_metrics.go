package http

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// storageMetrics is what the storage listener counts.
type storageMetrics struct {
	requests  *prometheus.CounterVec // label status: the HTTP status
	bytes     prometheus.Counter
	receiving prometheus.Gauge
}

func (m *storageMetrics) register(to prometheus.Registerer) error {
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_upload_requests_total", Help: "Answers of the storage URL, by status.",
	}, []string{"status"})
	m.bytes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_upload_durable_bytes_total", Help: "Uploaded bytes made durable.",
	})
	m.receiving = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rollcall_uploads_receiving", Help: "Uploads that are sending bytes.",
	})
	for _, c := range []prometheus.Collector{m.requests, m.bytes, m.receiving} {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *storageMetrics) count(status int) { m.requests.WithLabelValues(strconv.Itoa(status)).Inc() }
