package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rollcall/actors/inspect"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// Options are the options of a Server; all are required but TLS, Hosts and Pages. The functions must not block.
type Options struct {
	Listen    string      // host:port, port 0 takes a free one, see Addr; or unix:PATH, made with mode 0660
	TLS       *tls.Config // of a TCP listener; nil: requests are not encrypted
	Hosts     []string    // further allowed hosts of requests, without ports
	Book      ledger.Book
	Token     string              // see EnsureToken
	Gatherer  prometheus.Gatherer // what /metrics shows
	Draining  func() bool         // true from the moment the node takes no new work
	Wake      func()              // hint that the ledger has something new, such as a grant
	Log       *slog.Logger        // operators' changes, at info level
	Limits    ledger.Limits       // the defaults for workspaces without limits of their own
	PagesURL  func() string       // URL of the customers' pages; "": this node serves none
	Cluster   Cluster
	Inspector Inspector
	Throttle  *throttle.Table // the rules of this node

	ThrottleFile func() ThrottleFile // the state of this node's throttle file
	// Tuned is called after a change of an override or a weight, so that this node applies it at once instead of within
	// a second.
	Tuned func()
	// ReplayThrottle runs the text of a candidate throttle file on the nodes' records. Errors: ErrCandidate, and any
	// other when the nodes don't answer.
	ReplayThrottle func(ctx context.Context, candidate string) (inspect.Replayed, error)
	// ReplayOverride runs the present rules and one more override on the nodes' records.
	ReplayOverride func(ctx context.Context, name string, set throttle.Override) (inspect.Replayed, error)
	// Ready returns why the node should get no requests although its ledger answers: it has not joined yet, or its
	// fence is up. The text is public.
	Ready func(ctx context.Context) error
	// Identity returns the node's last report on its identity. CheckIdentity checks it again and returns the new
	// report, or the last one if ctx ends first.
	Identity      func() Identity
	CheckIdentity func(ctx context.Context) (Identity, error)
	// Pages makes the operators' web pages, which have all other paths of this listener. If it is nil, there are no
	// pages.
	Pages func(*Service) Pages
}

const tokenMin = 16

// Times of the listener. Operators' calls are small and few; only the audit of a large ledger takes long.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	idleTimeout   = 60 * time.Second
	ledgerTimeout = 10 * time.Second
	auditTimeout  = 10 * time.Minute
	pingTimeout   = 2 * time.Second
)

// Server is the operator's listener. Safe for concurrent use.
type Server struct {
	options  Options
	service  *Service
	pages    Pages // nil: none
	http     *http.Server
	listener net.Listener
	token    [32]byte
	long     context.Context // context of audits; ends with Drain
	drain    context.CancelFunc
}

// New checks the options and builds a server that does not listen yet.
func New(o Options) (*Server, error) {
	if len(o.Token) < tokenMin {
		return nil, fmt.Errorf("%w: it must have %d characters or more", ErrToken, tokenMin)
	}
	s := &Server{options: o, token: sha256.Sum256([]byte(o.Token))}
	s.long, s.drain = context.WithCancel(context.Background())
	s.service = newService(s.long, o)
	if o.Pages != nil {
		s.pages = o.Pages(s.service)
	}
	s.http = &http.Server{
		Handler:           o.withHost(s.routes()),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      auditTimeout + ledgerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Start binds the address and serves until Stop.
func (s *Server) Start() error {
	l, err := s.options.listen()
	if err != nil {
		return fmt.Errorf("admin: listen: %w", err)
	}
	s.listener = l
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.options.Log.Error("admin listener ended", "err", err)
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

// Drain ends running audits, so that the ledger can be closed. It may be called twice.
func (s *Server) Drain() { s.drain() }

// Stop waits for running calls and closes the listener. If ctx ends first, it cuts the calls. It may be called twice,
// or without Start.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// routes puts the operator API behind the token. Health and metrics need no token.
func (s *Server) routes() http.Handler {
	operator := http.NewServeMux()
	add := addCall(func(pattern string, call http.HandlerFunc) { operator.HandleFunc(pattern, call) })
	d := s.service
	for _, part := range []interface{ addRoutes(addCall) }{d.workspaceOps, d.verificationOps, d.receiverOps, d.throttleOps,
		d.clusterOps, d.nodeOps, d.userOps} {
		part.addRoutes(add)
	}
	add("POST /v1/operate", handle(body[OperateCall], s.operate))

	mux := http.NewServeMux()
	sniffless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.options.Gatherer, promhttp.HandlerOpts{}))
	mux.Handle("/v1/", s.withToken(withAuthor(operator)))
	if s.pages != nil {
		mux.Handle("/", s.pages)
		return sniffless
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", "there is nothing at this path")
	})
	return sniffless
}

// withToken admits only requests with the token. It hashes both sides, so that the comparison takes equally long
// whatever was sent.
func (s *Server) withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		presented, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		sum := sha256.Sum256([]byte(presented))
		if !bearer || subtle.ConstantTimeCompare(sum[:], s.token[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "unauthorized",
				"send the token of DATA_DIR/"+TokenFile+" as Authorization: Bearer")
			return
		}
		next.ServeHTTP(jsonErrors{w}, r)
	})
}

// ready reports whether this node should get requests.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.options.Draining() {
		refuse(w, http.StatusServiceUnavailable, "draining", "the node is stopping; use another one")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pingTimeout)
	defer cancel()
	if err := s.options.Book.Ping(ctx); err != nil {
		s.options.Log.Warn("ledger did not answer", "stage", "ping", "err", err)
		refuse(w, http.StatusServiceUnavailable, "unavailable",
			"the ledger does not answer; check [ledger] url and the database")
		return
	}
	if err := s.options.Ready(ctx); err != nil {
		refuse(w, http.StatusServiceUnavailable, "not_ready", err.Error())
		return
	}
	writeJSON(w, http.StatusOK, s.service.readiness())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"report this"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	if j, wrapped := w.(jsonErrors); wrapped {
		w = j.ResponseWriter
	}
	writeJSON(w, status, map[string]any{"error": map[string]string{"code": code, "message": message}})
}

// jsonErrors turns the standard router's own plain-text answers, 404 and 405, into refusals.
type jsonErrors struct{ http.ResponseWriter }

// WriteHeader replaces the router's own answers; only they have the type text/plain here.
func (j jsonErrors) WriteHeader(status int) {
	if j.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		j.ResponseWriter.WriteHeader(status)
		return
	}
	code, message := "not_found", "there is nothing at this path"
	if status == http.StatusMethodNotAllowed {
		code, message = "method_not_allowed", "this path does not support this method; see the Allow header"
	}
	refuse(j.ResponseWriter, status, code, message)
}

// Write drops the text that follows the router's own status.
func (j jsonErrors) Write(b []byte) (int, error) {
	if j.Header().Get("Content-Type") == "application/json" && len(b) > 0 && b[0] != '{' {
		return len(b), nil
	}
	return j.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (j jsonErrors) Unwrap() http.ResponseWriter { return j.ResponseWriter }

var (
	// ErrToken: the token file can't be used; the text says what to do.
	ErrToken = errors.New("admin: token")
	// ErrNoKeyring: the gossip of this node is not encrypted.
	ErrNoKeyring = errors.New("admin: gossip has no keys")
	// ErrNodeUnknown: no node fits.
	ErrNodeUnknown = errors.New("no node has the name or the id")
	// ErrNodeAmbiguous: several nodes fit.
	ErrNodeAmbiguous = errors.New("several nodes fit")
)

// AuthorHeader is the header with the caller's name for the operator log. It is not authenticated: anybody with the
// token may send any name.
const AuthorHeader = "Rollcall-Operator"

// AuthorMax is the longest name of an author, in bytes. Guess: user@host.
const AuthorMax = 200

// AuthorFits reports whether AuthorHeader may have this value.
func AuthorFits(text string) bool {
	return len(text) <= AuthorMax && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// withAuthor makes the name in AuthorHeader the author of all changes of a call. The logs of workspaces say only that
// an operator made the change.
func withAuthor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		author := strings.TrimSpace(r.Header.Get(AuthorHeader))
		if !AuthorFits(author) {
			refuse(w, http.StatusBadRequest, "invalid_request",
				AuthorHeader+" must have at most 200 bytes, and none that cannot be printed")
			return
		}
		r = r.WithContext(ledger.WithActor(r.Context(), "operator"))
		if author != "" {
			r = r.WithContext(ledger.WithAuthor(r.Context(), author))
		}
		next.ServeHTTP(w, r)
	})
}
