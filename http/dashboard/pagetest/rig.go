package pagetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/identity"
	"rollcall/smtp/throttle"
)

// Token is the admin token of a Rig.
const Token = "a-token-that-nobody-guesses"

// Rig is the operators' pages on a listener. Its fields set the answers of its inspector and its cluster.
type Rig struct {
	URL       string
	Workspace ledger.Workspace
	Open      ledger.Verification // has work in the ledger and at the receiver "mx.slow.test"
	Overdue   ledger.Verification // of the same workspace, in work at node-2; 1 of its 4 addresses is open
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
	Ends   atomic.Pointer[time.Time] // expected end of each open verification; nil: the ledger's value

	now func() time.Time
}

var (
	errAway  = errors.New("the test's ledger is away")
	errAlone = errors.New("the test's node knows no other")
)

// Settings and the methods below fail while the ledger is away. Overrides end by the pages' clock.
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

// Start starts a Rig that ends with the test. It lets the test run beside others.
func Start(t testing.TB) *Rig {
	t.Helper()
	effort.Beside(t)
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

// finding returns an identity report with a failure.
func finding() admin.Identity {
	at := api.Time(time.Now())
	return admin.Identity{Enforced: true, Why: "Port 25 is closed <here>.", Checked: &at, Findings: []admin.Finding{
		{Check: identity.Port25, Source: "192.0.2.7", State: identity.Fail, Saw: "no answer", Next: "Ask the provider to open it.", Checked: at}}}
}

// replayed returns a replay in which an override halves the number of addresses asked.
func replayed(_ context.Context, name string, _ throttle.Override) (inspect.Replayed, error) {
	return inspect.Replayed{Hours: 2, Asked: 100, Receivers: []inspect.ReceiverReplay{{Key: name, Asked: 100, Would: 50, Delay: 90}}}, nil
}

// Asked is an address of Overdue with evidence of two attempts. Unkept is one without evidence.
const (
	Asked  = "anna@slow.test"
	Unkept = "dora@slow.test"
)

// Source is the source that probed Asked. Rule is the rule that judged the reply.
const (
	Source = "192.0.2.7"
	Rule   = "rcpt-5.1.1@00000007"
)

// Password is everybody's password. KeptPassword is its hash in the ledger, made with the lowest cost.
const (
	Password     = "a horse that nobody rides"
	KeptPassword = "$argon2id$v=19$m=8,t=1,p=1$H7lUOLmAlOobe3snqv3ZhQ$DmKhrNge8PeWCihcU87uy4ApxBcCbVfZfLfMBUv2V5M"
)

// Workspace makes a workspace with credits.
func Workspace(t testing.TB, book ledger.Book, name string, credits ledger.Credits) ledger.Workspace {
	t.Helper()
	w := effort.Must(book.CreateWorkspace(t.Context(), uuid.New(), name))(t)
	if credits > 0 {
		effort.Must(book.Grant(t.Context(), uuid.New(), w.ID, credits, "test"))(t)
	}
	return w
}

// Invite makes an invitation, and returns the secret of its link.
func Invite(t testing.TB, book ledger.People, workspace uuid.UUID, email string, role ledger.Role) signin.Token {
	t.Helper()
	token := signin.NewToken()
	id, _ := token.Hash()
	effort.Must(book.MakeLink(t.Context(), ledger.Link{ID: id, Purpose: ledger.InviteLink, Workspace: workspace,
		Email: email, Role: role, MadeBy: "operator test"}))(t)
	return token
}

// Join makes somebody a member. It returns their session and its cookie.
func Join(
	t testing.TB, book ledger.People, workspace uuid.UUID, email, name string, role ledger.Role,
) (ledger.SignedIn, signin.Token) {
	t.Helper()
	link, _ := Invite(t, book, workspace, email, role).Hash()
	cookie := signin.NewToken()
	id, _ := cookie.Hash()
	session := ledger.NewSession{ID: id, Agent: "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0", Network: "127.0.0.1",
		Life: time.Hour}
	return effort.Must(book.AcceptLink(t.Context(), ledger.Accept{Link: link, User: uuid.New(), Name: name,
		Password: KeptPassword, Session: session}))(t), cookie
}

// prepared makes a verification of n addresses, and returns it with the lease of a node.
func (g *Rig) prepared(ctx context.Context, workspace uuid.UUID, name string, n int64) (ledger.Verification, ledger.Lease) {
	g.t.Helper()
	d := &ledgertest.Fixture{Book: g.Book, T: g.t, Workspace: workspace, Node: g.Node}
	file := []byte("a@slow.test\n")
	asks := d.Asks(int64(len(file)))
	asks.Filename = name
	v := effort.Must(effort.First(g.Book.Create(ctx, asks)))(g.t)
	d.FillsWith(v, file)
	l := d.Takes(v.ID)
	return effort.Must(g.Book.Prepare(ctx, l, n, 0, n))(g.t), l
}

// fillOverdue settles three of four addresses of a file that should have ended an hour ago.
func fillOverdue(ctx context.Context, g *Rig) {
	v, l := g.prepared(ledger.WithActor(ctx, "key:"+g.Key.ID), g.Workspace.ID, "late <i>.csv", 4)
	at := time.Now().Add(-2 * time.Hour).Truncate(time.Millisecond)
	first := evidence.Attempt{At: at, Stage: smtp.StageRcpt, Host: "mx1.slow.test", Source: Source, Code: 450, Text: Hostile,
		Outcome: smtp.Undecided, Reason: smtp.Greylisted, Rule: "grey", Version: 3}
	second := first
	second.TLS, second.Code, second.Enhanced, second.Text = true, 550, smtp.EnhancedCode{5, 1, 1}, "<b>^</b> is nobody here"
	second.Outcome, second.Reason, second.Rule, second.Version = smtp.Invalid, smtp.MailboxNotFound, "rcpt-5.1.1", 7
	packed := effort.Must(evidence.Pack([]evidence.Entry{
		{Ordinal: 0, Case: evidence.Case{Hosts: 1, Attempts: []evidence.Attempt{first, second}}},
		{Ordinal: 1, Case: evidence.Case{Hosts: 1, Attempts: []evidence.Attempt{first}, GaveUp: true}}}))(g.t)
	effort.Must(g.Book.Settle(ctx, ledger.Settlement{Lease: l, Number: 1, Evidence: packed, Results: []ledger.Result{
		{Ordinal: 0, Email: Asked, Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, At: at},
		{Ordinal: 1, Email: "ben@slow.test", Outcome: smtp.Unknown, Reason: smtp.Greylisted, At: at},
		{Ordinal: 2, Email: Unkept, Outcome: smtp.Valid, Reason: smtp.MailboxExists, At: at}}}))(g.t)
	g.Overdue = effort.Must(g.Book.Wait(ctx, l, ledger.Estimate{Next: time.Now().Add(time.Minute),
		Expected: time.Now().Add(-time.Hour),
		Why:      "1 address waits for slow.test, which asked us to come <b>later</b>"}))(g.t)
	g.Overdue.Filename = v.Filename
}

// fillOver makes a file that was cancelled, "gone.csv", in the workspace of Open.
func fillOver(ctx context.Context, g *Rig) {
	ctx = ledger.WithActor(ctx, "user:"+g.Anna.String())
	v, _, err := g.Book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: g.Workspace.ID, Identity: uuid.New(), Filename: "gone.csv",
		Bytes: 7, BytesMax: 1 << 20, UploadExpiry: time.Hour, Limits: limits})
	effort.OK(g.t, err)
	g.Over = effort.Must(g.Book.Cancel(ctx, g.Workspace.ID, v.ID))(g.t)
}

// Running makes a file in work at a node, "runs.csv", without final addresses.
func Running(t testing.TB, g *Rig) ledger.Verification {
	t.Helper()
	v, _ := g.prepared(t.Context(), g.Workspace.ID, "runs.csv", 2)
	return v
}

// Settled makes a verification of n addresses, each settled by itself as valid: it has n + 1 entries.
func (g *Rig) Settled(t testing.TB, n int64) (v ledger.Verification) {
	t.Helper()
	_, l := g.prepared(t.Context(), g.Workspace.ID, "many.csv", n)
	for i := range n {
		v = effort.Must(g.Book.Settle(t.Context(), ledgertest.Batch(l, i+1, i, i, smtp.Valid)))(t)
	}
	return v
}

// Of returns what the ledger answers about the workspace of a Rig.
func Of[Out any](t testing.TB, g *Rig, ask func(context.Context, uuid.UUID) (Out, error)) Out {
	t.Helper()
	return effort.Must(ask(t.Context(), g.Workspace.ID))(t)
}

// Sessions returns how many sessions of Anna are valid.
func (g *Rig) Sessions(t testing.TB) int {
	t.Helper()
	found := effort.Must(g.Book.Sessions(t.Context(), g.Anna, time.Hour))(t)
	return len(found)
}

// Log returns the newest lines of the operator log.
func (g *Rig) Log(t testing.TB) []ledger.LogLine {
	t.Helper()
	return effort.Must(g.Book.OperatorLog(t.Context(), ledger.LogQuery{Limit: 100}))(t)
}

// Ands returns the worst text of n bytes: HTML writes each "&" as five characters. The end makes every text
// different.
func Ands(bytes, number int) string {
	end := fmt.Sprint(number)
	return strings.Repeat("&", bytes-len(end)) + end
}

// Crowd fills a workspace with n of each: files that wait for receivers, grants, keys (all revoked except the oldest
// ten), and members. Each has the longest allowed texts.
func (g *Rig) Crowd(t testing.TB, n int) ledger.Workspace {
	t.Helper()
	ctx, w := t.Context(), Workspace(t, g.Book, Ands(200, 0), 0)
	for i := range n {
		effort.Must(g.Book.Grant(ledger.WithAuthor(ctx, Ands(200, i)), uuid.New(), w.ID, 1, Ands(200, i)))(t)
		_, l := g.prepared(ctx, w.ID, Ands(1024, i), 1)
		effort.Must(g.Book.Wait(ctx, l, ledger.Estimate{Next: time.Now().Add(time.Hour), Expected: time.Now().Add(-time.Hour),
			Why: Ands(ledger.WhyMax, i)}))(t)
		id := fmt.Sprintf("crowd%07d", i)
		effort.Must(g.Book.CreateKey(ctx, ledger.Key{ID: id, Workspace: w.ID, Label: Ands(200, i)}))(t)
		if i >= 10 {
			effort.Must(g.Book.RevokeKey(ctx, id))(t)
		}
		Join(t, g.Book, w.ID, Ands(ledger.EmailMax-len("@acme.test"), i)+"@acme.test", Ands(ledger.NameMax, i), ledger.Owner)
	}
	return w
}

// Hostile is a reply that runs as a script unless it is escaped.
const Hostile = `4.7.1 <script>alert("x")</script> try later`

func row(key, state, cause string, queued int) inspect.Receiver {
	r := inspect.Receiver{Key: key, Node: "node-1", State: state, Cause: cause, Why: "a sentence with the numbers", Queued: queued, Oldest: 640,
		Sessions: 1, Most: 2, Rcpts: 1, Allowed: 1, Ceiling: 5, Budget: 20, Refused: 0.61, Deferred: 0.01, PerHour: 3600,
		Last: inspect.Reply{At: time.Now(), Code: 450, Text: Hostile}}
	if cause != "free" {
		r.Until = time.Now().Add(time.Hour)
	}
	return r
}

// Receivers returns a receiver of each state, and a node that does not answer.
func (g *Rig) Receivers(context.Context) (inspect.Receivers, error) {
	return inspect.Receivers{At: time.Now(), Silent: []inspect.UnreachableNode{{Node: "node-3",
		Why: "no answer within 2 s"}}, Receivers: []inspect.Receiver{
		row("mx.slow.test", "asking", "allowance", 81_204), row("uni.test", "waiting", "connections", 917),
		row("strict.test", "suspended", "penalty", 300), row("quiet.test", "idle", "free", 0)}}, nil
}

// Receiver returns all of mx.slow.test.
func (g *Rig) Receiver(_ context.Context, key string) ([]inspect.ReceiverDetail, error) {
	if key != "mx.slow.test" {
		return nil, inspect.ErrNotThere
	}
	d := inspect.ReceiverDetail{Receiver: row(key, "asking", "allowance", 81_204),
		SessionList: []inspect.Session{{ID: 7, Source: "192.0.2.7", Host: "mx1.slow.test", State: "asking", Age: 12, Rcpts: 40, Refused: 3, TLS: "1.3"}},
		Queues:      []inspect.Queue{{Workspace: g.Workspace.ID.String(), Verification: g.Open.ID.String(), Queued: 81_204, Oldest: 640, Weight: 1}},
		Firings:     []inspect.Reply{{At: time.Now(), Code: 450, Text: Hostile, Rule: "rcpt-4.7.1", Action: "slow down"}},
		Learned: []inspect.Limit{{Field: "rcpt_rate", Value: "1/s", From: "deferred twice",
			Until: time.Now().Add(time.Hour)}}}
	for i := range 60 {
		d.Minutes = append(d.Minutes, inspect.Minute{At: time.Now().Add(time.Duration(i-60) * time.Minute), Asked: i, Accepted: i / 2,
			Refused: i / 4, Deferred: i / 4, Allowed: 1, Cause: "allowance"})
	}
	return []inspect.ReceiverDetail{d}, nil
}

// Sources returns three sources: one in use, one suspended, and a paused one whose address the system chooses.
func (g *Rig) Sources(context.Context) ([]inspect.Source, []inspect.UnreachableNode, error) {
	return []inspect.Source{{Node: "node-1", Source: "192.0.2.7", Hello: "out1.test", State: "used", Today: 12, PerDay: 100, Spoken: 3},
		{Node: "node-1", Source: "192.0.2.8", State: "suspended", Until: time.Now().Add(time.Hour), Reason: "listed",
			Blocked: 2},
		{Node: "node-2", Source: inspect.DefaultSource, State: "paused"}}, nil, nil
}

// CloseSession records the call.
func (g *Rig) CloseSession(ctx context.Context, key, node string, session int) error {
	return note(ctx, g, "close %s %s %d", key, node, session)
}

// Forget records the call.
func (g *Rig) Forget(ctx context.Context, key, what string) ([]inspect.Forgotten, []inspect.UnreachableNode, error) {
	return []inspect.Forgotten{{Key: key, Dropped: []string{"a pace"}}}, nil, note(ctx, g, "forget %s %s", key, what)
}

// Trace returns two lines.
func (g *Rig) Trace(context.Context, string, string, map[string]uint64) ([]inspect.TraceLine, error) {
	return []inspect.TraceLine{{Number: 1, Node: "node-1", At: time.Now(), Session: 7, Source: "192.0.2.7", Host: "mx1.slow.test", Line: "> RCPT TO:<…@slow.test>"},
		{Number: 2, Node: "node-1", At: time.Now(), Session: 7, Source: "192.0.2.7", Host: "mx1.slow.test", Line: "< " + Hostile}}, nil
}

// Verification returns that Open waits for mx.slow.test.
func (g *Rig) Verification(_ context.Context, id string) (inspect.Verification, error) {
	if id != g.Open.ID.String() {
		return inspect.Verification{}, inspect.ErrNotThere
	}
	return inspect.Verification{ID: id, Workspace: g.Workspace.ID.String(), Status: "verifying", Node: "node-1", Total: 90_000, Final: 8_796,
		At: time.Now(), Finish: time.Now().Add(time.Hour), Waits: []inspect.Wait{{Addresses: 81_204, For: inspect.ForReceiver, Receiver: "mx.slow.test",
			Cause: "allowance", PerHour: 3600}}}, nil
}

// Explain returns the built-in limits, and the override of mx.slow.test.
func (g *Rig) Explain(_ context.Context, name string) (inspect.Explanation, error) {
	return g.ExplainRules(name)
}

// ExplainRules returns the same as Explain.
func (g *Rig) ExplainRules(name string) (inspect.Explanation, error) {
	x := inspect.Explanation{Key: name, Fields: inspect.Fields(g.table.Explain(name))}
	for i := range x.Fields {
		if f := &x.Fields[i]; name == "mx.slow.test" && f.Field == "rcpt_rate" {
			f.Beaten = []inspect.SaidValue{{Value: f.Value, Said: f.Said}}
			f.Value, f.Said = "1/s", inspect.Said{Layer: "override", Name: name, ID: g.Override.ID.String(), Author: g.Override.Author,
				Reason: g.Override.Reason, Until: g.Override.Expires}
		}
	}
	return x, nil
}

// Files returns no differences.
func (g *Rig) Files(context.Context) ([]inspect.OtherFile, []inspect.UnreachableNode, error) {
	return nil, nil, nil
}

// Health returns a healthy node, one with a failed check, and one that does not answer.
func (g *Rig) Health(context.Context) ([]inspect.Health, []inspect.UnreachableNode, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone {
		return nil, nil, errAlone
	}
	own := admin.HealthOf(finding())
	own.Node, own.This = "node-1", true
	return []inspect.Health{own, {Node: "node-2", Known: true, Enforced: true, Unread: 1200, Foreign: 40, Why: "ptr of 192.0.2.9: no name <b>", Checked: time.Now(),
			Findings: []inspect.HealthFinding{{Check: "ptr", Source: "192.0.2.9", State: "fail", Saw: "no name <b>", Next: "Ask the owner of the network for a name."},
				{Check: "spf", Source: "192.0.2.9", State: "warn", Saw: "softfail", Next: "Add it to the record."}, {Check: "clock", State: "ok", Saw: "12 ms"}}},
			{Node: "node-4", Known: true, Probing: true, Checked: time.Now(), Findings: []inspect.HealthFinding{{Check: "clock", State: "ok", Saw: "3 ms"}}}},
		[]inspect.UnreachableNode{{Node: "node-3", Why: "no answer within 2 s"}}, nil
}

// Alone makes the inspector fail, as on a node that has just started.
func (g *Rig) Alone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone = true
}

// members is the cluster of a Rig. It is a type of its own because the inspector has a different method Forget.
type members struct{ *Rig }

// Members returns two live nodes and a lost one.
func (m members) Members(context.Context) (admin.Membership, error) {
	age, clock := 1.5, int64(-20)
	of := func(session uuid.UUID, name string, state admin.State) admin.Member {
		return admin.Member{Node: session, Session: session, Name: name, State: state, This: name == "node-1", Version: "1.4.0",
			Actors: "192.0.2.1:7947", Gossip: "192.0.2.1:7946", Since: api.Time(time.Now()), HeartbeatAge: &age,
			ClockOffset: &clock, Leases: 4,
			Addresses: 12_044, Receivers: 31, Agreed: true}
	}
	return admin.Membership{Cluster: "test", LedgerAge: 1, Members: []admin.Member{of(uuid.NewSHA1(m.Node, nil), "node-1", admin.StateServing),
		of(m.Node, "node-2", admin.StateIneligible), of(uuid.NewSHA1(m.Node, []byte{1}), "node-3", admin.StateLost)}}, nil
}

// Lost is the session of the node that is lost.
func (g *Rig) Lost() uuid.UUID { return uuid.NewSHA1(g.Node, []byte{1}) }

// Drain records the call.
func (m members) Drain(ctx context.Context, node uuid.UUID) error {
	return note(ctx, m.Rig, "drain %s", node)
}

// Undrain records the call.
func (m members) Undrain(ctx context.Context, node uuid.UUID) error {
	return note(ctx, m.Rig, "undrain %s", node)
}

// Keys is not called by pages.
func (m members) Keys(context.Context, admin.KeyCommand) ([]admin.KeyResult, error) { return nil, nil }

// Forget records the call.
func (m members) Forget(ctx context.Context, node uuid.UUID) error {
	return note(ctx, m.Rig, "forget node %s", node)
}
