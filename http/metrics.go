package http

import (
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/http/listen"
	"rollcall/ledger/tracing"
)

// metrics are the counters of the API listener.
type metrics struct {
	requests *prometheus.CounterVec   // route, status
	took     *prometheus.HistogramVec // route, class
	limited  *prometheus.CounterVec   // limit: one of limitNames
	panics   prometheus.Counter
	working  atomic.Int64 // requests in work
	conns    *listen.Metrics

	// byStatus and byClass save the look-up of a label pair on each request.
	byStatus [routeCount][600]atomic.Pointer[prometheus.Counter]
	byClass  [routeCount][len(listen.Classes)]atomic.Pointer[prometheus.Observer]
	pages    map[string]bool // the routes of pages; it does not change
}

// limitNames are the values of the label limit.
var limitNames = [...]string{"bad_keys", "key_lookups", "reads", "creates", "downloads", "open", "stored_bytes",
	"unpaid", "disk", "in_flight", "pages"}

// latencies are the buckets of the time of short answers.
var latencies = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newMetrics(r prometheus.Registerer, pages []string) (*metrics, error) {
	m := &metrics{pages: make(map[string]bool, len(pages)),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_http_requests_total", Help: "Answered API requests and pages, by route and status.",
		}, []string{"route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rollcall_http_request_seconds",
			Help:    "Time to the head of the answer of an API request or a page, by route and class of status (2xx, 4xx, 5xx).",
			Buckets: latencies,
		}, []string{"route", "class"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_http_limited_total",
			Help: "API requests refused by a limit: bad_keys, key_lookups, reads, creates or downloads (how often), open, " +
				"stored_bytes or unpaid (what a workspace has), disk (the reserve of the ledger), in_flight (a workspace has " +
				"its share of the requests in work).",
		}, []string{"limit"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_http_panics_total", Help: "API requests that ended in internal_error; must stay 0.",
		}),
	}
	m.conns = listen.NewMetrics("rollcall_http", "API")
	flying := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_http_requests_in_flight", Help: "API requests in work, downloads of results included.",
	}, func() float64 { return float64(m.working.Load()) })
	own := []prometheus.Collector{m.requests, m.took, m.limited, m.panics, flying}
	for _, c := range append(own, m.conns.Collectors()...) {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	for r := routeNone + 1; r < routeCount; r++ {
		m.observer(r, 200)
	}
	for _, route := range pages {
		m.pages[route] = true
	}
	for _, limit := range limitNames {
		m.limited.WithLabelValues(limit)
	}
	return m, nil
}

// observer finds the histogram of a route and a status.
func (m *metrics) observer(r route, status int) prometheus.Observer {
	class := status / 100
	if class < 1 || class >= len(listen.Classes) {
		class = 5 // no status of ours
	}
	slot := &m.byClass[r][class]
	o := slot.Load()
	if o == nil {
		made := m.took.WithLabelValues(routeNames[r], listen.Classes[class])
		o = &made
		slot.Store(o)
	}
	return *o
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

// page counts one answer of a page whose route is known.
func (m *metrics) page(name string, status int, took time.Duration) {
	if status < 100 || status >= 600 {
		status = 500 // no status of ours
	}
	m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(name, listen.Classes[status/100]).Observe(took.Seconds())
}

// finished counts a request and writes its access line and its span: route, method,
// status, time and request id, never a path, a key or a query.
func (s *Server) finished(r *request, began time.Time) {
	took := time.Since(began)
	status := r.Response.StatusCode()
	name := routeNames[r.route]
	if r.page != nil && s.metrics.pages[r.page.Route] {
		name = r.page.Route
		s.metrics.page(name, status, took)
	} else {
		s.metrics.count(r.route, status)
		s.metrics.observer(r.route, status).Observe(took.Seconds())
	}
	if r.span.On() {
		r.span.Word(tracing.Route, name)
		r.span.Word(tracing.Method, methodName(r.Method()))
		r.span.Count(tracing.Status, int64(status))
		r.span.ID(tracing.Verification, r.id)
	}
	r.span.End(status >= 500)
	if s.log.Enabled(r.RequestCtx, slog.LevelDebug) {
		s.log.Debug("request answered", "method", methodName(r.Method()), "route", name,
			"status", status, "took", took, "request", listen.RequestID(r.RequestCtx))
	}
}

// methodName returns a method for logs; it leaves out unknown methods, which are a stranger's text.
func methodName(method []byte) string {
	switch m := string(method); m {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT":
		return m
	}
	return "other"
}
