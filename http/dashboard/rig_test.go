package dashboard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	httpd "rollcall/http"
	"rollcall/http/dashboard"
	"rollcall/http/dashboard/pagetest"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

func TestMain(m *testing.M) {
	effort.CollectSeldom()
	m.Run()
}

const password = pagetest.Password

// rig is the pages on a real listener with a real ledger. It has a workspace with credits, with a viewer, a member
// and an owner, and an owner of another workspace.
type rig struct {
	t         testing.TB
	book      *moodyBook
	pages     *dashboard.Dashboard
	url       string
	public    atomic.Pointer[string]
	workspace uuid.UUID
	other     uuid.UUID
	logs      *bytes.Buffer
	wakes     atomic.Int64
	as        map[string]*browser
	held      ledger.Lease // lease of the newest verification
	ahead     atomic.Int64 // how far the API's clock is ahead, in nanoseconds
	server    *httpd.Server
	waiting   map[string]inspect.Verification // what the open addresses of verifications wait for
	metrics   *prometheus.Registry
	now       atomic.Int64 // how far the pages' clock is ahead, in seconds
}

// moodyBook is a ledger that can stop answering.
type moodyBook struct {
	*sqlstore.Store
	away     atomic.Bool
	balances atomic.Int64 // how often a balance was read

	settlements atomic.Int64 // how many settlements were read for their evidence
	breakdowns  atomic.Int64 // how often a whole file was read for the summary of its reasons

	held atomic.Pointer[hold] // makes reads of a workspace's history wait
}

// hold makes reads of a workspace wait.
type hold struct {
	workspace uuid.UUID
	come      chan struct{} // one value for each read that waits
	free      chan struct{} // closed: they go on
}

var errAway = errors.New("the test's ledger is away")

func (b *moodyBook) History(ctx context.Context, q ledger.HistoryQuery) ([]ledger.Verification, error) {
	if b.away.Load() {
		return nil, errAway
	}
	if h := b.held.Load(); h != nil && h.workspace == q.Workspace {
		h.come <- struct{}{}
		<-h.free
	}
	return b.Store.History(ctx, q)
}

func (b *moodyBook) Balance(ctx context.Context, workspace uuid.UUID) (ledger.Balance, error) {
	b.balances.Add(1)
	return b.Store.Balance(ctx, workspace)
}

func (b *moodyBook) Evidence(ctx context.Context, id uuid.UUID, after int64,
	yield func(ledger.StoredSettlement) error) (ledger.Verification, error) {
	return b.Store.Evidence(ctx, id, after, func(k ledger.StoredSettlement) error {
		b.settlements.Add(1)
		return yield(k)
	})
}

func (b *moodyBook) Breakdown(ctx context.Context, workspace, id uuid.UUID) (ledger.Breakdown, error) {
	b.breakdowns.Add(1)
	return b.Store.Breakdown(ctx, workspace, id)
}

func newRig(t testing.TB) *rig { t.Helper(); return newRigWith(t, func(*dashboard.Options) {}) }

// newRigWith is a rig whose pages have other options and whose listener has other limits. It lets the test run beside
// others.
func newRigWith(t testing.TB, change func(o *dashboard.Options), limit ...func(l *httpd.Limits)) *rig {
	t.Helper()
	effort.Beside(t)
	store := effort.Must(sqlstore.Open(context.Background(), effort.Ledger(t, filled.fill(t)), sqlstore.Options{}))(t)
	g := &rig{t: t, book: &moodyBook{Store: store}, logs: &bytes.Buffer{}, as: map[string]*browser{},
		metrics: prometheus.NewRegistry()}
	g.now.Store(30 - time.Now().Unix()%30) // begin with a period of codes, so that none ends during a test
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	options := dashboard.Options{Book: g.book,
		PublicURL: func() string { return *g.public.Load() }, UploadURL: "http://127.0.0.1:7", MaxFileBytes: 1 << 20, MaxRows: 1000,
		PerWorkspace: ledger.Limits{Open: 100, Stored: 1 << 30, Unpaid: 1000}, Waits: g.waits,
		SessionIdle: time.Hour, SessionLife: 24 * time.Hour, Contact: "help@rollcall.test",
		Checks: func() bool { return true }, Wake: func() { g.wakes.Add(1) }, Log: log, Registerer: g.metrics, Now: g.clock}
	change(&options)
	g.pages = effort.Must(dashboard.New(context.Background(), options))(t)
	wide := httpd.Rate{PerSecond: 1e6, Burst: 1e6}
	limits := httpd.DefaultLimits()
	limits.Reads, limits.Creates, limits.Pages = wide, wide, wide
	for _, set := range limit {
		set(&limits)
	}
	server := httpd.New(httpd.Options{Listen: "127.0.0.1:0", Book: g.book, Pages: g.pages.Handler(), PageRoutes: dashboard.Routes(),
		PublicUpload: func(id uuid.UUID) string { return "http://127.0.0.1:7/upload/" + id.String() }, Limits: limits,
		MaxFileBytes: 1 << 20, MaxRows: 1000, PerWorkspace: ledger.Limits{Open: 100, Stored: 1 << 30, Unpaid: 1000},
		UploadExpiry: time.Hour, Log: log, Registerer: g.metrics, Wake: func() {},
		Nodes: func() int { return 1 }, Weight: func(uuid.UUID) int { return 1 },
		Now: func() time.Time { return time.Now().Add(time.Duration(g.ahead.Load())) }})
	effort.OK(t, server.Start())
	g.url, g.server = "http://"+server.Addr().String(), server
	g.public.Store(&g.url)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		effort.OK(t, server.Stop(ctx))
		g.pages.Stop()
		effort.OK(t, store.Close())
	})
	g.workspace, g.other = filled.workspace, filled.other
	for who, cookie := range filled.cookies {
		g.as[who] = g.browser(string(cookie))
	}
	return g
}

// filled is what every rig's ledger begins with: two workspaces, and a session of each of their people.
var filled beginning

type beginning struct {
	workspace, other uuid.UUID
	cookies          map[string]signin.Token
}

// fill returns what makes that ledger, once in a run: each rig has a copy.
func (f *beginning) fill(t testing.TB) func(ctx context.Context, url string, tell ...func(string)) error {
	return func(ctx context.Context, url string, tell ...func(string)) error {
		t.Helper()
		effort.OK(t, sqlstore.Migrate(ctx, url, tell...))
		store := effort.Must(sqlstore.Open(ctx, url, sqlstore.Options{}))(t)
		f.workspace = pagetest.Workspace(t, store, "acme", 1000).ID
		f.other = pagetest.Workspace(t, store, "elsewhere", 1000).ID
		f.cookies = map[string]signin.Token{"nobody": ""}
		for _, role := range []ledger.Role{ledger.Viewer, ledger.Member, ledger.Owner} {
			_, f.cookies[string(role)] = pagetest.Join(t, store, f.workspace, string(role)+"@acme.test", "", role)
		}
		_, f.cookies["stranger"] = pagetest.Join(t, store, f.other, "stranger@elsewhere.test", "", ledger.Owner)
		return store.Close()
	}
}

// pass lets time pass for the API.
func (g *rig) pass(d time.Duration) { g.ahead.Add(int64(d)) }

func (g *rig) secret() []byte {
	g.t.Helper()
	return effort.Must(g.book.Secret(context.Background(), "dashboard", 32))(g.t)
}

func (g *rig) clock() time.Time { return time.Now().Add(time.Duration(g.now.Load()) * time.Second) }

// join makes a user a member of a workspace, and returns a browser that is signed in as the user.
func (g *rig) join(email string, workspace uuid.UUID, role ledger.Role) *browser {
	g.t.Helper()
	_, cookie := pagetest.Join(g.t, g.book, workspace, email, "", role)
	return g.browser(string(cookie))
}

func (g *rig) invite(email string, workspace uuid.UUID, role ledger.Role) signin.Token {
	g.t.Helper()
	return pagetest.Invite(g.t, g.book, workspace, email, role)
}

// browser is a browser with the cookie of a session, or without one.
type browser struct {
	g       *rig
	session string
}

func (g *rig) browser(session string) *browser { return &browser{g: g, session: session} }

// answer is what came back.
type answer struct{ nettest.Answer }

// send sends a request. values are a form.
func (b *browser) send(method, path string, values url.Values, headers ...string) answer {
	b.g.t.Helper()
	if values != nil {
		headers = append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)
		return b.sendBody(method, path, values.Encode(), headers...)
	}
	return b.sendBody(method, path, "", headers...)
}

// sendBody sends a request with a body, unchanged.
func (b *browser) sendBody(method, path, text string, headers ...string) answer {
	b.g.t.Helper()
	if method == http.MethodPost {
		headers = append([]string{"Sec-Fetch-Site", "same-origin"}, headers...)
	}
	if b.session != "" && !slices.Contains(headers, "Cookie") {
		headers = append(headers, "Cookie", "__Host-rollcall="+b.session)
	}
	return answer{nettest.Send(b.g.t, method, b.g.url+path, text, headers...)}
}

func (b *browser) get(path string, headers ...string) answer {
	b.g.t.Helper()
	return b.send("GET", path, nil, headers...)
}

func (b *browser) post(path string, pairs ...string) answer {
	b.g.t.Helper()
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return b.send("POST", path, v)
}

// cookie returns the session that an answer sets, or "".
func (a answer) cookie() string { return a.Cookie("__Host-rollcall") }

// engine writes to the ledger like an engine at a node of its own.
func (g *rig) engine() *ledgertest.Fixture {
	return &ledgertest.Fixture{Book: g.book, T: g.t, Workspace: g.workspace, Node: uuid.New()}
}

// verification makes a verification of total addresses in the rig's workspace, with these results.
func (g *rig) verification(name string, total int64, settled ...ledger.Result) ledger.Verification {
	g.t.Helper()
	v := g.create(name, 4)
	g.engine().FillsWith(v, []byte("a@b\n"))
	g.held = g.lease(v.ID)
	v, err := g.book.Prepare(g.t.Context(), g.held, total+1, 1, total)
	if err == nil && len(settled) > 0 {
		v, err = g.book.Settle(g.t.Context(), ledger.Settlement{Lease: g.held, Number: 1, Results: settled})
	}
	effort.OK(g.t, err)
	return v
}

func (g *rig) create(name string, size int64) ledger.Verification {
	g.t.Helper()
	n := g.engine().Asks(size)
	n.Filename = name
	v := effort.Must(effort.First(g.book.Create(g.t.Context(), n)))(g.t)
	return v
}

func (g *rig) lease(id uuid.UUID) ledger.Lease {
	g.t.Helper()
	return g.engine().Takes(id)
}

// result is one settled address.
func result(ordinal int64, email string, o smtp.Outcome, r smtp.Reason) ledger.Result {
	return ledger.Result{Ordinal: ordinal, Email: email, Outcome: o, Reason: r, At: time.Unix(1_700_000_000, 0)}
}

// BenchmarkPages measures whole requests by a socket: a page of 50 verifications, a page of 100 results, and a
// repeated request for an unchanged part. p99-ms is the 99th percentile of times.
func BenchmarkPages(b *testing.B) {
	g := newRig(b)
	all := make([]ledger.Result, 100)
	for i := range all {
		all[i] = result(int64(i), fmt.Sprintf("name-%d@acme.test", i), smtp.Valid, smtp.MailboxExists)
	}
	v := g.verification("open.csv", 200, all...)
	for i := range 60 {
		g.create(fmt.Sprintf("list-%d.csv", i), 10)
	}
	viewer := g.as["viewer"]
	base := g.path("/verifications/" + v.ID.String())
	tag := viewer.get(base + "/live").Header.Get("ETag")
	for _, c := range []struct {
		name, path string
		header     []string
		want       int
	}{
		{"list", g.path(""), nil, 200},
		{"results", base + "/results", nil, 200},
		{"unchanged", base + "/live", []string{"If-None-Match", tag}, 304},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				effort.MustBe(b, viewer.send("GET", c.path, nil, c.header...).Status, c.want, c.path)
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
