package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

const (
	listedOrigin  = "https://app.example.com"
	uploadCanary  = "canary-upload-token"
	edgeFileBytes = 1 << 20
	edgeCredits   = 1_000_000
)

// edge is a running API on a real socket with a real ledger, and one customer.
type edge struct {
	t         testing.TB
	book      *troubledBook
	server    *httpd.Server
	url       string
	registry  *prometheus.Registry
	logs      *effort.Log
	workspace uuid.UUID
	key       string
	keyID     string
	wakes     atomic.Int64
	checker   *answerChecker
	free      *atomic.Int64 // free bytes of the disk; the ledger reserves one, and checks once a second
}

// newEdge starts an edge. tweak may change the options.
func newEdge(t testing.TB, tweak func(*httpd.Options)) *edge {
	t.Helper()
	free := &atomic.Int64{}
	free.Store(1 << 40)
	store := effort.Must(sqlstore.Open(context.Background(), effort.Ledger(t, sqlstore.Migrate),
		sqlstore.Options{DiskReserve: 1, FreeBytes: func(string) (int64, error) { return free.Load(), nil }}))(t)
	e := &edge{
		t: t, book: &troubledBook{Store: store}, registry: prometheus.NewRegistry(),
		logs: &effort.Log{}, checker: effort.Must(checkerOfAll())(t), free: free,
	}
	e.workspace, e.key, e.keyID = e.customer("first")
	e.server = httpd.New(e.options(tweak))
	effort.OK(t, e.server.Start())
	e.url = "http://" + e.server.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		effort.OK(t, e.server.Stop(ctx))
		effort.OK(t, store.Close())
	})
	return e
}

// options returns the options of the rig's server, changed by tweak.
func (e *edge) options(tweak func(*httpd.Options)) httpd.Options {
	o := httpd.Options{
		Listen: "127.0.0.1:0",
		Book:   e.book,
		Writes: e.book.Writes,
		PublicUpload: func(id uuid.UUID) string {
			return "http://storage.test/upload/" + uploadCanary + id.String()
		},
		AllowedOrigins: []string{listedOrigin},
		Limits:         httpd.DefaultLimits(),
		MaxFileBytes:   edgeFileBytes,
		MaxRows:        1000,
		PerWorkspace:   ledger.Limits{Open: 100, Stored: 1 << 30, Unpaid: 1000},
		UploadExpiry:   time.Hour,
		Wake:           func() { e.wakes.Add(1) },
		Log:            slog.New(slog.NewJSONHandler(e.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer:     e.registry,
		Nodes:          func() int { return 1 },
		Weight:         func(uuid.UUID) int { return 1 },
	}
	// The tests with tables send more than a customer would. Tests of the limits set their own limits.
	wide := httpd.Rate{PerSecond: 1e6, Burst: 1e6}
	o.Limits.Reads, o.Limits.Creates, o.Limits.BadKeys = wide, wide, wide
	if tweak != nil {
		tweak(&o)
	}
	return o
}

// customer makes a workspace with a key and edgeCredits credits.
func (e *edge) customer(name string) (workspace uuid.UUID, key, keyID string) {
	e.t.Helper()
	ctx := context.Background()
	w := effort.Must(e.book.CreateWorkspace(ctx, uuid.New(), name))(e.t)
	text, k := api.NewKey()
	effort.Must(e.book.CreateKey(ctx, ledger.Key{ID: k.ID, Workspace: w.ID,
		SecretSHA256: k.SHA256}))(e.t)
	effort.Must(e.book.Grant(ctx, uuid.New(), w.ID, edgeCredits, "test"))(e.t)
	return w.ID, text, k.ID
}

// call is one request of a test.
type call struct {
	method, path string
	headers      map[string]string // without an X-API-Key, the first customer's is sent; "-" sends none
	body         string
}

// get returns a GET with headers: names and values in turn.
func get(path string, headers ...string) call {
	return call{method: "GET", path: path, headers: header(headers...)}
}

func post(path string, headers map[string]string, body ...string) call {
	return call{method: "POST", path: path, headers: headers, body: strings.Join(body, "")}
}

// answer is the answer to a call.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// is checks the status; of names the subject.
func (a answer) is(t testing.TB, status int, of ...any) {
	t.Helper()
	effort.Is(t, a.status, status, append(of, string(a.body))...)
}

// must does what is does, but ends the test if it finds a fault.
func (a answer) must(t testing.TB, status int, of ...any) {
	t.Helper()
	effort.MustBe(t, a.status, status, append(of, string(a.body))...)
}

// says checks the status and the code of a refusal.
func (a answer) says(t testing.TB, status int, code string, of ...any) {
	t.Helper()
	effort.Is(t, a.status, status, of...)
	effort.Is(t, a.code(), code, of...)
}

// code is the issue code of a refusal.
func (a answer) code() string {
	var e api.Error
	if json.Unmarshal(a.body, &e) != nil {
		return ""
	}
	return string(e.Issue.Code)
}

// do sends a call in the rig's own test.
func (e *edge) do(c call) answer {
	e.t.Helper()
	return e.send(e.t, c)
}

// send sends a call. It checks the answer against the OpenAPI description and the rules for all answers.
func (e *edge) send(t testing.TB, c call) answer {
	t.Helper()
	a, err := e.try(c)
	effort.OK(t, err, c.method, c.path)
	e.checker.check(t, c, a)
	return a
}

func (e *edge) try(c call) (answer, error) {
	req, err := http.NewRequest(c.method, e.url+c.path, strings.NewReader(c.body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-API-Key", e.key)
	for name, value := range c.headers {
		if value == "-" {
			req.Header.Del(name)
			continue
		}
		req.Header.Set(name, value)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	res, err := http.DefaultTransport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, body: body}, err
}

// creation returns the headers of a create.
func creation(identity, length string) map[string]string {
	return map[string]string{"Idempotency-Key": identity, "X-Upload-Content-Length": length}
}

// create makes a verification through the API and returns its id.
func (e *edge) create(length string) uuid.UUID {
	e.t.Helper()
	a := e.do(call{method: "POST", path: "/v1/verifications", headers: creation(uuid.NewString(), length)})
	var c api.Creation
	effort.FatalIf(e.t, a.status != 201 || json.Unmarshal(a.body, &c) != nil, "create: %d %s", a.status, a.body)
	return uuid.MustParse(c.ID)
}

// verified makes a verification of total addresses with some settled, as the engine would.
func (e *edge) verified(total int64, settled []ledger.Result) uuid.UUID {
	e.t.Helper()
	id := e.create("1")
	e.upload(id, 1)
	l := e.lease(id)
	ctx := context.Background()
	effort.Must(e.book.Prepare(ctx, l, total+1, 1, total))(e.t)
	for n := int64(1); len(settled) > 0; n++ {
		batch := settled[:min(len(settled), ledger.SettlementMax)]
		settled = settled[len(batch):]
		effort.Must(e.book.Settle(ctx, ledger.Settlement{Lease: l, Number: n, Results: batch}))(e.t)
	}
	return id
}

// engine writes to the ledger like an engine at a node of its own.
func (e *edge) engine() *ledgertest.Fixture {
	return &ledgertest.Fixture{Book: e.book, T: e.t, Workspace: e.workspace, Node: uuid.New()}
}

// upload stores the n bytes of a file.
func (e *edge) upload(id uuid.UUID, n int) {
	e.t.Helper()
	e.engine().FillsWith(ledger.Verification{ID: id}, bytes.Repeat([]byte("a"), n))
}

// lease takes the lease of a verification.
func (e *edge) lease(id uuid.UUID) ledger.Lease {
	e.t.Helper()
	return e.engine().Takes(id)
}

// results returns n settled addresses.
func results(n int) []ledger.Result {
	out := make([]ledger.Result, n)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	for i := range out {
		out[i] = ledger.Result{
			Ordinal: int64(i), Email: "person-" + uuid.NewString() + "@example.com",
			Outcome: smtp.Valid, Reason: smtp.MailboxExists, At: at,
		}
	}
	return out
}

// errTrouble is the error of a database that is away.
var errTrouble = errors.New("connection refused")

// troubledBook is the real ledger, but a test can make it fail.
type troubledBook struct {
	*sqlstore.Store
	away     atomic.Bool          // every question fails
	panics   atomic.Bool          // Verification panics
	cut      atomic.Int64         // if not 0, Results fails after this many rows
	creating atomic.Pointer[gate] // a Create waits in it
	keyReads atomic.Int64
}

// gate makes a call wait until the gate is opened.
type gate struct{ entered, open chan struct{} }

func newGate() *gate { return &gate{entered: make(chan struct{}, 100), open: make(chan struct{})} }

// Writes keeps the server from reusing an earlier answer of the ledger while a test makes it fail.
func (b *troubledBook) Writes() (count uint64, still bool) {
	count, still = b.Store.Writes()
	return count, still && !b.away.Load() && !b.panics.Load()
}

func (b *troubledBook) KeyByID(ctx context.Context, id string) (ledger.Key, error) {
	b.keyReads.Add(1)
	if b.away.Load() {
		return ledger.Key{}, errTrouble
	}
	return b.Store.KeyByID(ctx, id)
}

func (b *troubledBook) Balance(ctx context.Context, workspace uuid.UUID) (ledger.Balance, error) {
	if b.away.Load() {
		return ledger.Balance{}, errTrouble
	}
	return b.Store.Balance(ctx, workspace)
}

func (b *troubledBook) Create(ctx context.Context, n ledger.NewVerification) (ledger.Verification, bool, error) {
	if g := b.creating.Load(); g != nil {
		g.entered <- struct{}{}
		<-g.open
	}
	return b.Store.Create(ctx, n)
}

func (b *troubledBook) Verification(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	if b.panics.Load() {
		panic("secret of the panic " + id.String())
	}
	if b.away.Load() {
		return ledger.Verification{}, errTrouble
	}
	return b.Store.Verification(ctx, workspace, id)
}

func (b *troubledBook) Results(ctx context.Context, workspace, id uuid.UUID, yield func(ledger.Result) error) error {
	left := b.cut.Load()
	if left == 0 {
		return b.Store.Results(ctx, workspace, id, yield)
	}
	return b.Store.Results(ctx, workspace, id, func(r ledger.Result) error {
		if left--; left < 0 {
			return errTrouble
		}
		return yield(r)
	})
}

// answerChecker checks answers against openapi.yaml.
type answerChecker struct {
	doc    *openapi3.T
	router routers.Router
}

// checkerOfAll is read once for all tests, which only read it.
var checkerOfAll = sync.OnceValues(func() (*answerChecker, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err == nil {
		err = doc.Validate(context.Background())
	}
	if err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(doc)
	return &answerChecker{doc: doc, router: router}, err
})

// check checks one answer. If the request matches no operation, the answer must still have an Error body.
func (c *answerChecker) check(t testing.TB, sent call, a answer) {
	t.Helper()
	if a.status == http.StatusNoContent || sent.path == "/openapi.yaml" {
		return
	}
	effort.Is(t, a.header.Get("Cache-Control"), "no-store", fmt.Sprintf("%s %s: Cache-Control", sent.method, sent.path))
	if _, err := uuid.Parse(a.header.Get("X-Request-Id")); err != nil {
		t.Errorf("%s %s: X-Request-Id %q is no UUID", sent.method, sent.path, a.header.Get("X-Request-Id"))
	}
	if sent.method == http.MethodHead {
		return
	}
	if a.status >= 400 {
		c.checkError(t, sent, a)
	}
	req := effort.Must(http.NewRequest(sent.method, sent.path, nil))(t)
	route, params, err := c.router.FindRoute(req)
	if err != nil || a.status == 400 || a.status == 405 || a.status == 411 || a.status == 431 {
		return
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	})
	effort.OK(t, err, sent.method, sent.path, "status", a.status)
}

// checkError checks the body of a refusal.
func (c *answerChecker) checkError(t testing.TB, sent call, a answer) {
	t.Helper()
	var body any
	if err := json.Unmarshal(a.body, &body); err != nil {
		t.Errorf("%s %s: body %q is no JSON", sent.method, sent.path, a.body)
		return
	}
	err := c.doc.Components.Schemas["Error"].Value.VisitJSON(body)
	effort.ErrorIf(t, err != nil, "%s %s: body %s is no Error: %v", sent.method, sent.path, a.body, err)
	effort.Is[any](t, body.(map[string]any)["request_id"], a.header.Get("X-Request-Id"), sent.method, sent.path,
		"request_id")
	if link := a.header.Get("Link"); link != "" && link != "</docs/errors#"+a.code()+`>; rel="help"` {
		t.Errorf("%s %s: %s has the link %s", sent.method, sent.path, a.code(), link)
	}
	effort.ErrorIf(t, a.status == 401 && a.header.Get("WWW-Authenticate") == "",
		"%s %s: 401 without WWW-Authenticate", sent.method, sent.path)
}

// TestMain lets tests that use sockets run beside each other, because they mostly wait.
func TestMain(m *testing.M) {
	effort.AtOnce(4)
	os.Exit(m.Run())
}
