package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

// Sizes and times of the API listener.
const (
	bodyMax        = 8 << 10          // no operation has a body; some clients send {}
	headerMax      = 16 << 10         // many times a file name of 1,024 and a cursor of 512
	idleTimeout    = 60 * time.Second // longest time between requests; most clients poll more often
	ledgerTimeout  = 10 * time.Second // bounds one question to the ledger; then 503: repeating is safe
	secretTimeout  = 30 * time.Second // bounds the first question, when the database may just be starting
	cursorKeyBytes = 32               // AES-256

	// writeStall is how long a client of the API may read nothing before its connection is cut. It applies to each
	// write, so that a long download over a slow line continues.
	writeStall = 30 * time.Second
	// lingerTime and lingerBytes bound how long, and how much, is read and dropped after an early answer. Without
	// that, the connection could be reset before the client reads the answer.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// Server is the customer API on its own listener. Safe for concurrent use.
type Server struct {
	options  Options
	origins  listen.Origins
	http     *fasthttp.Server
	listener *listen.Listener
	keys     *keyCache
	limits   *requestLimits
	creates  createLock
	balances *reads[uuid.UUID, ledger.Balance] // by workspace
	details  *reads[detailOf, ledger.Verification]
	listings *reads[historyOf, []byte] // pages of history, as they are sent
	polls    *polls
	cursors  cursorSealer
	metrics  *metrics
	log      *slog.Logger
	noAnswer listen.Warning
	now      func() time.Time

	work     *atomic.Int64 // requests in work
	draining atomic.Bool
	served   chan struct{} // closed when the listener's loop has ended; nil before Start
	stop     sync.Mutex    // serializes Stop
}

// New builds a server that does not listen yet.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := newMetrics(o.Registerer, o.PageRoutes)
	s := &Server{
		options:  o,
		origins:  listen.NewOrigins(o.AllowedOrigins),
		keys:     newKeyCache(o.Book, o.Now),
		limits:   newRequestLimits(o.Limits, o.Nodes, o.Now),
		creates:  createLock{wait: createWait},
		polls:    newPolls(o.Limits.Reads, o.Nodes),
		balances: newReads(o.Book.Balance, o.Writes, m.panics.Inc),
		metrics:  m,
		work:     &m.working,
		log:      o.Log,
		noAnswer: listen.Warning{Log: o.Log, Message: "ledger did not answer"},
		now:      o.Now,
	}
	s.details = newReads(func(ctx context.Context, of detailOf) (ledger.Verification, error) {
		return o.Book.Verification(ctx, of.workspace, of.id)
	}, o.Writes, m.panics.Inc)
	s.listings = newReads(s.readHistory, o.Writes, m.panics.Inc)
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.handleError,
		HeaderReceived:               listen.RefuseTransferEncoding,
		Concurrency:                  o.Limits.ConnsMax + listen.AnswersMax, // above the listener's bound
		ReadBufferSize:               headerMax,
		ReadTimeout:                  o.Limits.Read,
		IdleTimeout:                  idleTimeout,
		MaxRequestBodySize:           bodyMax,
		DisablePreParseMultipartForm: true,
		SecureErrorLogMessage:        true, // otherwise the log gets raw headers with the key
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		Logger:                       listen.Quiet{Log: o.Log},
	}
	return s
}

// Start binds the address and serves until Stop. It first asks the ledger for the key of the cursors. Errors say what
// could not be done.
func (s *Server) Start() error {
	ctx, cancel := context.WithTimeout(context.Background(), secretTimeout)
	defer cancel()
	key, err := s.options.Book.Secret(ctx, "history-cursor", cursorKeyBytes)
	if err != nil {
		return fmt.Errorf("http: read the key of the cursors: %w", err)
	}
	s.cursors = newCursorSealer([cursorKeyBytes]byte(key))
	s.listener, err = listen.On(s.options.Listen, listen.Options{Max: s.options.Limits.ConnsMax,
		Trusted: s.options.Trusted, TLS: s.options.TLS, Stall: writeStall, Linger: lingerTime, Drain: lingerBytes,
		Answer: crowdedAnswer, Metrics: s.metrics.conns})
	if err != nil {
		return fmt.Errorf("http: listen: %w", err)
	}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		if err := s.http.Serve(s.listener); err != nil && !s.draining.Load() {
			s.log.Error("api listener ended", "err", err)
		}
	}()
	return nil
}

// Addr is the bound address; nil before Start.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Stop answers new requests with 503, waits for those in progress, then closes the listener and the connections. If
// ctx ends first, Stop cuts the remaining requests and returns ctx's error. Stop may be called twice, or without
// Start.
func (s *Server) Stop(ctx context.Context) error {
	s.draining.Store(true)
	s.stop.Lock()
	defer s.stop.Unlock()
	if s.listener == nil {
		return nil
	}
	idle := waitUntil(ctx, func() bool { return s.work.Load() == 0 })
	s.keys.used.Stop()
	// The library counts a connection that has sent nothing as one with a request, so these are cut.
	silent := time.AfterFunc(silentFor, s.listener.CutSilent)
	err := s.http.ShutdownWithContext(ctx)
	silent.Stop()
	_ = s.listener.Close() // before its first accept the library doesn't close it
	<-s.served
	s.listener.CutBusy()
	s.listener.Wait(ctx) // waits for connections that still send unwanted bytes
	if idle != nil {
		return idle
	}
	if errors.Is(err, net.ErrClosed) {
		return nil // the second Stop
	}
	return err
}

func crowdedAnswer(reason string) string {
	if reason == listen.NoShare {
		return listen.RefusalText(api.RateLimited, listen.Jitter(1, 9))
	}
	return listen.RefusalText(api.Overloaded, listen.Jitter(10, 10))
}

// silentFor is how long a connection may be silent while the server stops, because a request may still be on its way.
// Guess: a long round trip.
const silentFor = 500 * time.Millisecond

// drainStep is how often Stop checks whether the work has ended: often enough that nobody notices the wait, and too
// rarely to cost anything.
const drainStep = 5 * time.Millisecond

func waitUntil(ctx context.Context, done func() bool) error {
	tick := time.Tick(drainStep)
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
	return nil
}

// Rate is a token bucket: PerSecond tokens are added, at most Burst are kept.
type Rate struct {
	PerSecond float64 // above 0
	Burst     int     // 1 or more
}

// Limits bound the requests of one customer. The limits per key are for all nodes together, in equal shares (see
// Options.Nodes); the others are for one node. If they are too low, clients that obey Retry-After get 429; if far too
// high, one customer can slow the others.
type Limits struct {
	Reads       Rate          // per key, for everything but creates
	Creates     Rate          // per key
	Pages       Rate          // per user who is signed in
	BadKeys     Rate          // wrong keys per network address (an IPv6 /64 is one)
	KeyLookups  Rate          // ledger calls for an address above BadKeys, whose keys may be guesses
	DownloadMax int           // results downloads at once per key
	InFlightMax int           // requests in progress, shared by workspace; above it 503 overloaded
	ConnsMax    int           // open connections; a network address may hold no more than are still free
	Read        time.Duration // bound for reading one whole request; slower senders are cut
}

// DefaultLimits are the documented values: reads 20/s with burst 40, creates 5/s with burst 20, 20 wrong keys a
// minute, 4 downloads. The others are guesses for a small node; 100 ledger calls about keys a second are a hundredth
// of what the embedded ledger can do.
func DefaultLimits() Limits {
	return Limits{
		Reads:       Rate{PerSecond: 20, Burst: 40},
		Creates:     Rate{PerSecond: 5, Burst: 20},
		Pages:       Rate{PerSecond: 30, Burst: 60},
		BadKeys:     Rate{PerSecond: 20.0 / 60, Burst: 20},
		KeyLookups:  Rate{PerSecond: 100, Burst: 100},
		DownloadMax: 4,
		InFlightMax: 1024,
		ConnsMax:    4096,
		Read:        10 * time.Second,
	}
}

// Options are the options of a Server; all are required unless their line says otherwise.
type Options struct {
	Listen         string                    // host:port; port 0 takes a free one, see Addr
	Book           ledger.Book               // see ledger.Files
	Writes         func() (uint64, bool)     // see sqlstore.Store.Writes; nil: each answer is read again
	PublicUpload   func(id uuid.UUID) string // the upload URL of a verification, which never changes
	AllowedOrigins []string                  // exact, such as https://app.example.com; may be empty
	TLS            *tls.Config               // nil: requests are not encrypted
	Weight         func(uuid.UUID) int       // weight of a workspace. Must not block
	Trusted        listen.Trusted            // proxies whose PROXY and X-Forwarded-For headers are believed; may be none
	Limits         Limits                    // see DefaultLimits
	Nodes          func() int                // number of nodes that share the limits per key. Must not block
	MaxFileBytes   int64                     // size of a new file; above it 413
	MaxRows        int64                     // for customers; intake enforces it
	PerWorkspace   ledger.Limits             // defaults for workspaces without limits of their own; above them 429
	UploadExpiry   time.Duration             // life of an upload URL
	Pages          fasthttp.RequestHandler   // serves every path outside of the API; nil: 404. See PageRequest
	PageRoutes     []string                  // possible values of PageRequest.Route; may be empty
	Wake           func()                    // called when the ledger has something new. Must not block
	Log            *slog.Logger              // access lines at debug level
	Registerer     prometheus.Registerer     // gets rollcall_http_*
	Tracer         *tracing.Tracer           // nil: nothing is traced
	Now            func() time.Time          // for limits and Retry-After; nil: time.Now
}

// errNoAnswer: the goroutine that asked a shared question panicked or ended.
var errNoAnswer = errors.New("http: the ledger gave no answer")

// What pages of listed origins may send and read. Browsers cache a preflight for 600 seconds; every browser accepts
// this time.
const (
	corsHeaders = "X-API-Key, Idempotency-Key, X-Upload-Content-Length, X-Upload-Filename, Content-Type"
	corsExposed = listen.HeaderRetryAfter + ", " + listen.HeaderRequestID + ", " + fasthttp.HeaderLink
	corsMaxAge  = "600"
)

// preflight answers OPTIONS. It needs no key, because browsers send none with it.
func (s *Server) preflight(r *request) {
	if s.origins.Foreign(r.RequestCtx) && r.route != routeCredits {
		s.refuse(r, api.OriginNotAllowed, 0)
		return
	}
	h := &r.Response.Header
	h.Set(fasthttp.HeaderAllow, allow[r.route])
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	if len(h.Peek(fasthttp.HeaderAccessControlAllowOrigin)) > 0 {
		h.Set(fasthttp.HeaderAccessControlAllowMethods, allow[r.route])
		h.Set(fasthttp.HeaderAccessControlAllowHeaders, corsHeaders)
		h.Set(fasthttp.HeaderAccessControlMaxAge, corsMaxAge)
	}
	r.SetStatusCode(fasthttp.StatusNoContent)
}

type metrics struct {
	requests *prometheus.CounterVec   // route, status
	took     *prometheus.HistogramVec // route, class
	limited  *prometheus.CounterVec   // limit: one of limitNames
	panics   prometheus.Counter
	working  atomic.Int64 // requests in work
	conns    *listen.Metrics
	pages    map[string]bool // the routes of pages; it does not change
}

// limitNames are the values of the label limit.
var limitNames = [...]string{"bad_keys", "key_lookups", "reads", "creates", "downloads", "open", "stored_bytes",
	"unpaid", "disk", "in_flight", "pages"}

// latencies are the buckets of the time of short answers.
var latencies = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newMetrics(r prometheus.Registerer, pages []string) *metrics {
	auto := promauto.With(r)
	m := &metrics{pages: make(map[string]bool, len(pages)),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_http_requests_total", Help: "Answered API requests and pages, by route and status.",
		}, []string{"route", "status"}),
		took: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rollcall_http_request_seconds",
			Help:    "Time to the head of the answer of an API request or a page, by route and class of status (2xx, 4xx, 5xx).",
			Buckets: latencies,
		}, []string{"route", "class"}),
		limited: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_http_limited_total",
			Help: "API requests refused by a limit of a caller (bad_keys, key_lookups, reads, creates, downloads), of a " +
				"workspace (open, stored_bytes, unpaid, in_flight) or of the ledger's disk (disk).",
		}, []string{"limit"}),
		panics: auto.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_http_panics_total", Help: "API requests that ended in internal_error; must stay 0.",
		}),
		conns: listen.NewMetrics(r, "rollcall_http", "API"),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_http_requests_in_flight", Help: "API requests in work, downloads of results included.",
	}, func() float64 { return float64(m.working.Load()) })
	for _, route := range routeNames[routeNone+1:] {
		m.took.WithLabelValues(route, "2xx")
	}
	for _, route := range pages {
		m.pages[route] = true
	}
	for _, limit := range limitNames {
		m.limited.WithLabelValues(limit)
	}
	return m
}

// answered counts an answer of a route, and its time.
func (m *metrics) answered(route string, status int, took time.Duration) {
	if status < 100 || status >= 600 {
		status = 500 // no status of ours
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(route, listen.Classes[status/100]).Observe(took.Seconds())
}

// finished counts a request, and writes its access line and its span. They have route, method, status, time and
// request id, but no path, key or query.
func (s *Server) finished(r *request, began time.Time) {
	took := time.Since(began)
	status := r.Response.StatusCode()
	name := routeNames[r.route]
	if r.page != nil && s.metrics.pages[r.page.Route] {
		name = r.page.Route
	}
	s.metrics.answered(name, status, took)
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

// methodName returns a method for logs. For unknown methods, which a stranger chose, it returns nothing.
func methodName(method []byte) string {
	switch m := string(method); m {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT":
		return m
	}
	return "other"
}
