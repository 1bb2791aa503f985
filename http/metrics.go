package http

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of the API listener.
type metrics struct {
	requests *prometheus.CounterVec   // route, status
	took     *prometheus.HistogramVec // route
	limited  *prometheus.CounterVec   // limit: bad_keys, reads, creates, downloads
	panics   prometheus.Counter

	// byStatus saves the look-up of a label pair on each request.
	byStatus [routeCount][600]atomic.Pointer[prometheus.Counter]
	byRoute  [routeCount]prometheus.Observer
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_http_requests_total", Help: "Answered API requests.",
		}, []string{"route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_http_request_seconds", Help: "Time to the head of the answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_http_limited_total", Help: "Requests refused by a rate limit.",
		}, []string{"limit"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_http_panics_total", Help: "Requests that ended in internal_error; must stay 0.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.took, m.limited, m.panics} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for r := range routeCount {
		m.byRoute[r] = m.took.WithLabelValues(routeNames[r])
	}
	return m, nil
}

// count counts one answer.
func (m *metrics) count(r route, status int) {
	if status < 0 || status >= len(m.byStatus[r]) {
		return
	}
	slot := &m.byStatus[r][status]
	c := slot.Load()
	if c == nil {
		made := m.requests.WithLabelValues(routeNames[r], strconv.Itoa(status))
		c = &made
		slot.Store(c)
	}
	(*c).Inc()
}

// finished counts a request and writes its access line: route, method, status,
// time and request id, never a path, a key or a query.
func (s *Server) finished(r *request, began time.Time) {
	took := time.Since(began)
	status := r.Response.StatusCode()
	s.metrics.count(r.route, status)
	s.metrics.byRoute[r.route].Observe(took.Seconds())
	if s.log.Enabled(r.RequestCtx, debugLevel) {
		s.log.Debug("request answered", "method", methodName(r.Method()), "route", routeNames[r.route],
			"status", status, "took", took, "request", requestID(r.RequestCtx))
	}
}
