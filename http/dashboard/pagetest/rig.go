package pagetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/http/dashboard/operate"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp/identity"
	"rollcall/smtp/throttle"
)

// Token is the admin token of a Rig.
const Token = "a-token-that-nobody-guesses"

// Rig is the pages on a listener. Its fields set the answers of its inspector and its cluster.
type Rig struct {
	URL       string
	Workspace ledger.Workspace
	Open      ledger.Verification // the one with work, in the ledger and at the receiver "mx.slow.test"
	Overdue   ledger.Verification // of the same workspace, in work at node-2, one of its 4 addresses open
	Over      ledger.Verification // of the same workspace, made by Anna and cancelled
	Poor      ledger.Verification // of another workspace, waits for credits
	Key       ledger.Key          // of the workspace
	Anna      uuid.UUID           // its owner
	Node      uuid.UUID           // a session of the cluster
	Override  ledger.ThrottleOverride

	Book *MoodyBook

	t       testing.TB
	service *admin.Service
	pages   *operate.Pages
	table   *throttle.Table

	mu    sync.Mutex
	asked []string
	alone bool          // no node can be asked
	late  time.Duration // offset of the pages' clock
	held  time.Time     // fixed time for the pages; zero: the real clock
}

// MoodyBook is a ledger that can stop answering.
type MoodyBook struct {
	*sqlstore.Store
	Away   atomic.Bool
	Listed atomic.Int64              // how often it was asked for open verifications
	Ends   atomic.Pointer[time.Time] // when each of them was expected to end; nil: the ledger's time

	now func() time.Time
}

var (
	errAway  = errors.New("the test's ledger is away")
	errAlone = errors.New("the test's node knows no other")
)

// Settings and others fail while the ledger is away. Overrides end by the pages' clock.
func (b *MoodyBook) Settings(ctx context.Context) (ledger.Settings, error) {
	if b.Away.Load() {
		return ledger.Settings{}, errAway
	}
	found, err := b.Store.Settings(ctx)
	found.Overrides = slices.DeleteFunc(found.Overrides, func(o ledger.ThrottleOverride) bool { return !o.Expires.After(b.now()) })
	return found, err
}

// Ping fails while the ledger is away.
func (b *MoodyBook) Ping(ctx context.Context) error {
	if b.Away.Load() {
		return errAway
	}
	return b.Store.Ping(ctx)
}

// OperatorLog fails while the ledger is away.
func (b *MoodyBook) OperatorLog(ctx context.Context, q ledger.LogQuery) ([]ledger.LogLine, error) {
	if b.Away.Load() {
		return nil, errAway
	}
	return b.Store.OperatorLog(ctx, q)
}

// Workspaces fails while the ledger is away.
func (b *MoodyBook) Workspaces(ctx context.Context) ([]ledger.Workspace, error) {
	if b.Away.Load() {
		return nil, errAway
	}
	return b.Store.Workspaces(ctx)
}

// OpenVerifications fails while the ledger is away.
func (b *MoodyBook) OpenVerifications(ctx context.Context, limit int) ([]ledger.Verification, error) {
	b.Listed.Add(1)
	if b.Away.Load() {
		return nil, errAway
	}
	found, err := b.Store.OpenVerifications(ctx, limit)
	if ends := b.Ends.Load(); ends != nil {
		for i := range found {
			found[i].Expected = *ends
		}
	}
	return found, err
}

// Start starts a Rig that ends with the test.
func Start(t testing.TB) *Rig {
	t.Helper()
	store := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	table := effort.Must(throttle.NewTable(nil))(t)
	g := &Rig{t: t, Book: &MoodyBook{Store: store}, table: table, Node: uuid.New()}
	g.Book.now = g.now
	server, err := admin.New(admin.Options{Listen: "127.0.0.1:0", Hosts: []string{"ops.test"}, Book: g.Book, Limits: limits,
		PagesURL: func() string { return "https://rollcall.test/" }, Token: Token, Gatherer: prometheus.NewRegistry(),
		Draining: func() bool { return false }, Log: slog.New(slog.DiscardHandler), Inspector: g,
		Cluster: members{g}, Throttle: table,
		Identity: finding, ReplayOverride: replayed, Pages: g.made, Wake: func() {}, Tuned: func() {},
		ThrottleFile: func() admin.ThrottleFile { return admin.ThrottleFile{} },
		Ready:        func(context.Context) error { return nil }})
	if err == nil {
		err = server.Start()
	}
	effort.OK(t, err)
	g.URL = "http://" + server.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		effort.OK(t, errors.Join(server.Stop(ctx), store.Close()))
	})
	fill(t.Context(), g)
	return g
}

func (g *Rig) made(d *admin.Service) admin.Pages {
	g.service, g.pages = d, operate.New(operate.Options{Service: d, Log: slog.New(slog.DiscardHandler), Now: g.now})
	return g.pages
}

// fill puts a customer with work and an override into the ledger.
func fill(ctx context.Context, g *Rig) {
	g.Workspace = Workspace(g.t, g.Book, "acme <b>", 1000)
	var err error
	g.Open, _, err = g.Book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: g.Workspace.ID, Identity: uuid.New(),
		Filename: "slow <i>.csv", Bytes: 64, BytesMax: 1 << 20, UploadExpiry: time.Hour, Limits: limits})
	effort.OK(g.t, err)
	g.Key = effort.Must(g.Book.CreateKey(ctx, ledger.Key{ID: "abcdefgh2345", Workspace: g.Workspace.ID, Label: "billing <b>"}))(g.t)
	anna, _ := Join(g.t, g.Book, g.Workspace.ID, "anna@acme.test", "Anna <b>", ledger.Owner)
	g.Anna = anna.User.ID
	fillOverdue(ctx, g)
	fillOver(ctx, g)
	g.Poor, _ = g.prepared(ctx, Workspace(g.t, g.Book, "poor & co", 0).ID, "unpaid.csv", 3)
	g.Override = effort.Must(g.Book.SetOverride(ledger.WithAuthor(ctx, "eve <eve@ops>"), ledger.ThrottleOverride{ID: uuid.New(),
		Key: "mx.slow.test", Fields: map[string]string{"rcpt_rate": "1/s"}, Reason: "ticket <812>"}, time.Hour))(g.t)
}

// limits are the defaults of a workspace.
var limits = ledger.Limits{Open: 5, Stored: 1 << 30, Unpaid: 1 << 30}

// Link makes a path that signs somebody in once.
func (g *Rig) Link(author string, readOnly bool) string {
	path, _ := g.pages.Link(author, readOnly)
	return path
}

// Later advances the pages' clock.
func (g *Rig) Later(by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late += by
}

func (g *Rig) now() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held.IsZero() {
		return g.held.Add(g.late)
	}
	return time.Now().Add(g.late)
}

// Hold stops the pages' clock; only Later advances it.
func (g *Rig) Hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = time.Now()
}

// Asked returns the changes requested of the cluster, and clears them.
func (g *Rig) Asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := g.asked
	g.asked = nil
	return asked
}

// Overrides returns the active ones.
func (g *Rig) Overrides(t testing.TB) []ledger.ThrottleOverride {
	t.Helper()
	found := effort.Must(g.Book.Settings(t.Context()))(t)
	return found.Overrides
}

// SetOverride sets an override for an hour, as another node does.
func (g *Rig) SetOverride(t testing.TB, o ledger.ThrottleOverride) {
	t.Helper()
	effort.Must(g.Book.SetOverride(t.Context(), o, time.Hour))(t)
}

func note(ctx context.Context, g *Rig, format string, args ...any) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, fmt.Sprintf(format, args...)+" by "+ledger.Author(ctx))
	return nil
}

// finding is an identity report with a failure.
func finding() admin.Identity {
	at := api.Time(time.Now())
	return admin.Identity{Enforced: true, Why: "Port 25 is closed <here>.", Checked: &at, Findings: []admin.Finding{
		{Check: identity.Port25, Source: "192.0.2.7", State: identity.Fail, Saw: "no answer", Next: "Ask the provider to open it.", Checked: at}}}
}

// replayed is a replay in which an override halves the addresses asked.
func replayed(_ context.Context, name string, _ throttle.Override) (inspect.Replayed, error) {
	return inspect.Replayed{Hours: 2, Asked: 100, Receivers: []inspect.ReceiverReplay{{Key: name, Asked: 100, Would: 50, Delay: 90}}}, nil
}
