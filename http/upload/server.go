package upload

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

	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/quota"
	"rollcall/ledger/tracing"
)

// Options are the options of a Server. All but AllowedOrigins, TLS and Trusted are required; DefaultOptions fills in
// the limits.
type Options struct {
	Listen         string        // host:port; port 0 takes a free one, see Addr
	Book           ledger.Files  // where the bytes go
	Tokens         *Tokens       // makes and checks the secret in the URL
	AllowedOrigins []string      // exact browser origins; none: no browser may upload
	PagesOrigin    func() string // origin of our own pages, which may upload too; "": none; may be nil

	// TLS is the listener's TLS configuration; nil: requests are not encrypted.
	TLS *tls.Config
	// Trusted are the proxies whose PROXY headers are believed.
	Trusted listen.Trusted

	// UploadsMax bounds the uploads that send bytes at the same time. A workspace may have no more of these places
	// than are still free, times its Weight; one more upload gets 429. Each holds one chunk of ChunkBytes in memory.
	UploadsMax int
	// Weight returns a workspace's weight. If it is nil, all weights are 1. It must not block.
	Weight func(workspace uuid.UUID) int
	// BytesPerSecond bounds how fast the uploads of one workspace are read; 0: no bound. The server then reads later,
	// which does not count against the client's deadlines.
	BytesPerSecond int64
	// ConnectionsMax bounds the open connections, busy or idle. A network address may hold no more than are still
	// free; one more connection gets 429 and is closed. ConnectionsMax is larger than UploadsMax, so that there is
	// room for status queries.
	ConnectionsMax int
	// FirstByteTimeout bounds the time from the first byte of a request's head to the first byte of its body. If it
	// is too low, slow phones are cut; if too high, idle sockets pile up.
	FirstByteTimeout time.Duration
	// WindowBytes must arrive within each Window. Otherwise the connection is cut, but the session stays. The time
	// that the ledger takes does not count.
	WindowBytes int64
	Window      time.Duration
	// LedgerTimeout bounds one call of the ledger; then the client must try again.
	LedgerTimeout time.Duration
	// LingerTimeout bounds how long data is read and dropped after an answer before the body's end. If the connection
	// were closed at once, the kernel would reset it, and the client could lose the answer.
	LingerTimeout time.Duration

	Wake       func() // called after each upload that became complete; must not block
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *tracing.Tracer // nil: nothing is traced
}

// ChunkBytes is the size of one stored chunk, except for the last of a request. With 256 KiB, the largest file takes
// 400 transactions.
const ChunkBytes = 256 << 10

// DefaultOptions returns Options with only the limits filled in.
func DefaultOptions() Options {
	return Options{
		UploadsMax:       64,   // guess: 16 MiB of chunk buffers
		ConnectionsMax:   1024, // guess: far more than uploads, but below common limits of descriptors
		FirstByteTimeout: 10 * time.Second,
		WindowBytes:      4 << 10,
		Window:           10 * time.Second,
		LedgerTimeout:    10 * time.Second, // our own client waits 30 s
		LingerTimeout:    3 * time.Second,  // guess: a few round trips of a bad line
		Weight:           func(uuid.UUID) int { return 1 },
	}
}

// Server is the listener of the storage URL: {public_url}/upload/{token}. It streams bodies into the ledger chunk by
// chunk and never holds more than one chunk of a file. Safe for concurrent use.
type Server struct {
	o       Options
	origins listen.Origins
	server  *fasthttp.Server
	metrics metrics
	places  *quota.Pool[uuid.UUID] // places for uploads that send bytes, by workspace
	rates   *paces
	ending  chan struct{} // closed when Stop begins
	buffers sync.Pool     // of *[]byte, ChunkBytes long
	writers writers
	trouble listen.Warning  // about the ledger
	root    context.Context // of every ledger call
	abort   context.CancelFunc

	draining atomic.Bool
	stopping sync.Once        // closes ending
	listener *listen.Listener // nil before Start
	served   chan struct{}    // closed when Serve has returned
}

// New makes a storage listener that does not listen yet.
func New(o Options) *Server {
	s := &Server{o: o, origins: listen.NewOrigins(o.AllowedOrigins), places: quota.New[uuid.UUID](int64(o.UploadsMax)),
		rates: newPaces(o.BytesPerSecond), ending: make(chan struct{}), metrics: newMetrics(o.Registerer),
		trouble: listen.Warning{Log: o.Log, Message: "upload not stored"}}
	s.buffers.New = func() any { b := make([]byte, ChunkBytes); return &b }
	s.root, s.abort = context.WithCancel(context.Background())
	s.server = &fasthttp.Server{
		Handler:      s.recovered,
		ErrorHandler: s.framingError,
		// The listener bounds the connections; this bound is higher, so that fasthttp never refuses one with its own text.
		Concurrency:           o.ConnectionsMax + listen.AnswersMax,
		ReadTimeout:           o.FirstByteTimeout,
		WriteTimeout:          writeTimeout,
		IdleTimeout:           idleTimeout,
		ReadBufferSize:        headerBytes,
		StreamRequestBody:     true,
		MaxRequestBodySize:    prefetch,
		SecureErrorLogMessage: true,
		NoDefaultServerHeader: true,
		NoDefaultContentType:  true,
		CloseOnShutdown:       true,
		Logger:                listen.Quiet{Log: o.Log},

		DisablePreParseMultipartForm: true,
	}
	return s
}

// The listener's fixed settings.
const (
	writeTimeout = 10 * time.Second // answers are a few hundred bytes
	idleTimeout  = 60 * time.Second
	headerBytes  = 16 << 10 // enough for file names and tokens, too little for floods

	// prefetch is how much of a body fasthttp reads before it calls the handler; in stream mode this setting bounds
	// nothing else. Because it is one byte, rate checks and storing of partial bodies begin at the second byte.
	prefetch = 1

	// lingerBytes bounds how much is read and dropped after an early answer: a client that sends more has had time to
	// read the answer (guess).
	lingerBytes = 64 << 20
)

// Start binds the address and serves until Stop.
func (s *Server) Start() (err error) {
	s.listener, err = listen.On(s.o.Listen, listen.Options{Max: s.o.ConnectionsMax, Trusted: s.o.Trusted, TLS: s.o.TLS,
		Linger: s.o.LingerTimeout, Drain: lingerBytes, Answer: crowded, Metrics: s.metrics.conns})
	if err != nil {
		return fmt.Errorf("start storage listener: %w", err)
	}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		if err := s.server.Serve(s.listener); err != nil {
			s.o.Log.Error("storage listener ended", "err", err)
		}
	}()
	return nil
}

// Addr returns the bound address after Start, and nil before.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Stop accepts no new requests. It stores the bytes that running uploads have sent so far, and answers them that they
// should come again. It returns when all connections are closed or ctx ends. It may be called twice, or without
// Start.
func (s *Server) Stop(ctx context.Context) error {
	s.draining.Store(true)
	s.stopping.Do(func() { close(s.ending) })
	if s.listener == nil {
		return nil
	}
	// fasthttp's Shutdown does nothing before its Serve has reached the listener, so close the listener here and wait
	// for Serve first.
	_ = s.listener.Close()
	<-s.served
	s.listener.Interrupt()
	err := s.server.ShutdownWithContext(ctx)
	s.abort() // the caller's time is over: end the requests still running
	s.listener.Wait(ctx)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop storage listener: %w", err)
	}
	return nil
}

// The refusals of a session. If several apply, the first in this list is returned.
var (
	// ErrLengthRequired means that the length of the body is unknown: it has a Transfer-Encoding, or no Content-Length
	// (RFC 9110 §15.5.12).
	ErrLengthRequired = errors.New("upload: the request has no usable length")
	// ErrEncoding means that the body is encoded; the declared length counts the file's own bytes.
	ErrEncoding = errors.New("upload: the body is content-encoded")
	// ErrExpired means that the URL has expired while bytes are missing.
	ErrExpired = errors.New("upload: the session is expired")
	// ErrCancelled means that the verification was cancelled while bytes were missing.
	ErrCancelled = errors.New("upload: the session is cancelled")
	// ErrRangeInvalid means that Content-Range is malformed, contradicts itself,
	// contradicts Content-Length, or goes beyond the file.
	ErrRangeInvalid = errors.New("upload: the content range is invalid")
	// ErrLengthMismatch means that the request names another length of the file.
	ErrLengthMismatch = errors.New("upload: the length is not the declared one")
	// ErrTooLarge means that a body without Content-Range is longer than the file.
	ErrTooLarge = errors.New("upload: the body is longer than the declared length")
)

type metrics struct {
	requests  *prometheus.CounterVec // label status: the HTTP status
	bytes     prometheus.Counter
	receiving prometheus.Gauge
	took      *prometheus.HistogramVec // label class
	crowded   *prometheus.CounterVec   // label reason: why an upload got no place
	held      prometheus.Counter       // seconds
	conns     *listen.Metrics
	full      prometheus.Counter
}

func newMetrics(to prometheus.Registerer) metrics {
	auto := promauto.With(to)
	m := metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_upload_requests_total", Help: "Answers of the storage URL, by status.",
		}, []string{"status"}),
		bytes: auto.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_upload_durable_bytes_total", Help: "Uploaded bytes made durable.",
		}),
		full: auto.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_upload_disk_full_total",
			Help: "Uploads refused because less than ledger.disk_reserve was free on the disk of the ledger.",
		}),
		receiving: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_uploads_receiving", Help: "Uploads that are sending bytes.",
		}),
		took: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_upload_request_seconds",
			Help: "Time of a request of the storage URL, the sending of its bytes included, by class of status " +
				"(2xx, 3xx: more bytes are expected, 4xx, 5xx).",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800},
		}, []string{"class"}),
		crowded: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_upload_slots_refused_total",
			Help: "Uploads that must try again because no slot was free, by reason: share (their workspace had as " +
				"many as were still free) or full (none was free).",
		}, []string{"reason"}),
		held: auto.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_upload_held_back_seconds_total",
			Help: "How long uploads were not read because their workspace had reached upload.bytes_per_second.",
		}),
		conns: listen.NewMetrics(to, "rollcall_upload", "storage URL"),
	}
	for _, class := range listen.Classes[2:] {
		m.took.WithLabelValues(class)
	}
	for _, reason := range []string{listen.NoShare, listen.NoPlace} {
		m.crowded.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) count(status int) { m.requests.WithLabelValues(strconv.Itoa(status)).Inc() }

func (m *metrics) finished(status int, took time.Duration) {
	m.count(status)
	if class := status / 100; class >= 1 && class < len(listen.Classes) {
		m.took.WithLabelValues(listen.Classes[class]).Observe(took.Seconds())
	}
}
