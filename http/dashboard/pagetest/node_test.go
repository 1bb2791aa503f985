package pagetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/http/dashboard"
	"rollcall/http/dashboard/pagetest"
	"rollcall/http/dashboard/signin"
	"rollcall/http/upload"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const password = pagetest.Password

// fileMax bounds an upload to a node of these tests.
const fileMax = 64 << 20

// node is the listeners of a node, pages, API and storage, with a real ledger. Proxies stand before them, which tests
// cut. What receivers would say is written into the ledger by tests, so that every state can be shown.
type node struct {
	book    *sqlstore.Store
	pages   *dashboard.Dashboard
	url     string // of front
	front   *proxy // of the pages
	storage *proxy
	logs    *effort.Log
}

// one is the node that tests share.
var one struct {
	sync.Once
	*node
	stop func()
	err  error
}

// theNode returns the shared node.
func theNode(t testing.TB) *node {
	t.Helper()
	one.Do(func() { one.node, one.stop, one.err = startNode() })
	effort.FatalIf(t, one.err != nil, "%v", one.err)
	return one.node
}

// ownNode starts a node for one test, which may break the node. change may alter the options of its pages.
func ownNode(t testing.TB, change ...func(*dashboard.Options)) *node {
	t.Helper()
	n, stop, err := startNode(change...)
	effort.OK(t, err)
	t.Cleanup(stop)
	return n
}

func startNode(change ...func(*dashboard.Options)) (n *node, stop func(), err error) {
	folder, err := os.MkdirTemp("", "rollcall-browser-")
	if err != nil {
		return nil, nil, err
	}
	ends := []func(){func() { _ = os.RemoveAll(folder) }}
	stop = func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	ctx := context.Background()
	store, err := sqlstore.Open(ctx, "sqlite:"+filepath.Join(folder, "ledger.db"), sqlstore.Options{})
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, func() { _ = store.Close() })
	n = &node{book: store, logs: &effort.Log{}}
	tokens := upload.NewTokens([upload.TokenKeyBytes]byte{7})
	log := slog.New(slog.NewTextHandler(n.logs, nil))
	storage := upload.DefaultOptions()
	storage.Listen, storage.Book, storage.Tokens, storage.Wake = "127.0.0.1:0", store, tokens, func() {}
	storage.Log, storage.Registerer, storage.PagesOrigin = log, prometheus.NewRegistry(), func() string { return n.url }
	files := upload.New(storage)
	if err = files.Start(); err != nil {
		return nil, nil, err
	}
	ends = append(ends, func() { _ = files.Stop(ctx) })
	if n.storage, err = newProxy(files.Addr().String()); err != nil {
		return nil, nil, err
	}
	ends = append(ends, n.storage.Close)
	end, err := n.startPages(log, tokens, change)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, end)
	return n, stop, nil
}

// startPages starts pages and API.
func (n *node) startPages(log *slog.Logger, tokens *upload.Tokens, change []func(*dashboard.Options)) (stop func(), err error) {
	o := dashboard.Options{Book: n.book, PublicURL: func() string { return n.url },
		UploadURL: n.storage.url(), MaxFileBytes: fileMax, MaxRows: 1_000_000, SessionIdle: time.Hour,
		SessionLife: 24 * time.Hour, Contact: "help@rollcall.test", Log: log, Now: time.Now,
		PerWorkspace: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000}, Wake: func() {},
		Checks: func() bool { return true }, Registerer: prometheus.NewRegistry(),
		Waits: func(context.Context, string) (inspect.Verification, error) {
			return inspect.Verification{}, inspect.ErrNotThere
		}}
	for _, c := range change {
		c(&o)
	}
	if n.pages, err = dashboard.New(context.Background(), o); err != nil {
		return nil, err
	}
	limits := httpd.DefaultLimits()
	wide := httpd.Rate{PerSecond: 1e6, Burst: 1e6}
	limits.Reads, limits.Creates, limits.Pages = wide, wide, wide
	server := httpd.New(httpd.Options{Listen: "127.0.0.1:0", Book: n.book, Pages: n.pages.Handler(),
		PublicUpload: func(id uuid.UUID) string { return tokens.URL(n.storage.url(), id) }, Limits: limits,
		MaxFileBytes: fileMax, MaxRows: 1_000_000, PerWorkspace: ledger.Limits{Open: 1000, Stored: 1 << 30, Unpaid: 1 << 30},
		UploadExpiry: time.Hour, Log: log, Registerer: prometheus.NewRegistry(), Now: time.Now, Wake: func() {},
		Nodes: func() int { return 1 }, Weight: func(uuid.UUID) int { return 1 }})
	if err = server.Start(); err != nil {
		return nil, err
	}
	if n.front, err = newProxy(server.Addr().String()); err != nil {
		return nil, err
	}
	n.url = n.front.url()
	return func() {
		n.front.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Stop(ctx)
		n.pages.Stop()
	}, nil
}

// place is a workspace of a node, with its newest file.
type place struct {
	*node
	t    testing.TB
	id   uuid.UUID
	path string // of its pages
	held ledger.Lease
}

func (n *node) workspace(t testing.TB, name string, credits int64) *place {
	t.Helper()
	w := pagetest.Workspace(t, n.book, name, ledger.Credits(credits))
	return &place{node: n, t: t, id: w.ID, path: "/w/" + w.ID.String()}
}

// link makes a one-time link, and returns its path.
func (p *place) link(purpose ledger.Purpose, email string, role ledger.Role) string {
	p.t.Helper()
	token := signin.NewToken()
	id, _ := token.Hash()
	l := ledger.Link{ID: id, Purpose: purpose, Workspace: p.id, Email: email, Role: role, MadeBy: "operator test"}
	if purpose == ledger.PasswordLink {
		l.Workspace, l.Role = uuid.Nil, ""
	}
	effort.Must(p.book.MakeLink(p.t.Context(), l))(p.t)
	return "/link/" + string(token)
}

// person is somebody who may sign in, with a session.
type person struct {
	email string
	user  uuid.UUID
	token string // the cookie's value
	id    ledger.Hash
}

// join makes somebody a member, with a session.
func (p *place) join(role ledger.Role) person {
	p.t.Helper()
	email := fmt.Sprintf("%s-%s@acme.test", role, uuid.NewString()[:6])
	in, cookie := pagetest.Join(p.t, p.book, p.id, email, "", role)
	return person{email: email, user: in.User.ID, token: string(cookie), id: in.Session.ID}
}

// engine writes to the ledger like an engine at a node of its own.
func (p *place) engine() *ledgertest.Fixture {
	return &ledgertest.Fixture{Book: p.book, T: p.t, Workspace: p.id, Node: uuid.New()}
}

// uploading makes a verification without any uploaded bytes.
func (p *place) uploading(name string, size int64) ledger.Verification {
	p.t.Helper()
	n := p.engine().Asks(size)
	n.Filename = name
	v := effort.Must(effort.First(p.book.Create(p.t.Context(), n)))(p.t)
	return v
}

// preparing makes a verification with all bytes, and leases it.
func (p *place) preparing(name string) ledger.Verification {
	p.t.Helper()
	leasing.Lock()
	defer leasing.Unlock()
	return p.whole(name)
}

// whole is preparing for a caller that holds leasing.
func (p *place) whole(name string) ledger.Verification {
	p.t.Helper()
	v := p.uploading(name, 4)
	p.engine().FillsWith(v, []byte("a@b\n"))
	return p.leased(v)
}

// checked makes a finished check of one address, with its evidence.
func (p *place) checked() ledger.Verification {
	p.t.Helper()
	leasing.Lock()
	defer leasing.Unlock()
	v := effort.Must(p.book.CreateSingle(p.t.Context(), ledger.CreateSingle{
		ID: uuid.New(), Workspace: p.id, Identity: uuid.New(),
		Address: "ghost@acme-clean.test", Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000}}))(p.t)
	p.leased(v)
	return p.refused("No such user ^ here")
}

// refused settles a leased check: the receiver said in these words that there is no such mailbox.
func (p *place) refused(words string) ledger.Verification {
	p.t.Helper()
	said := evidence.Attempt{At: time.Now(), Stage: smtp.StageRcpt, Host: "mx1.acme-clean.test", TLS: true, Code: 550,
		Enhanced: smtp.EnhancedCode{5, 1, 1}, Text: words, Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, Rule: "rcpt-5.1.1"}
	packed := effort.Must(evidence.Pack([]evidence.Entry{{Case: evidence.Case{Attempts: []evidence.Attempt{said}, Hosts: 1,
		Behaviour: evidence.AcceptBehaviour{Refused: 1, First: said.At, Last: said.At, Controls: []evidence.Attempt{said}}}}}))(p.t)
	effort.Must(p.book.Prepare(p.t.Context(), p.held, 1, 0, 1))(p.t)
	return effort.Must(p.book.Settle(p.t.Context(), ledger.Settlement{Lease: p.held, Number: 1, Evidence: packed,
		Results: []ledger.Result{{Email: "ghost@acme-clean.test", Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound,
			At: said.At}}}))(p.t)
}

// leased leases a verification. The caller holds leasing.
func (p *place) leased(v ledger.Verification) ledger.Verification {
	p.t.Helper()
	p.held = p.engine().Takes(v.ID)
	return v
}

// leasing keeps tests from taking each other's verifications.
var leasing sync.Mutex

// verifying makes a verification of total addresses, with the results of some of them.
func (p *place) verifying(name string, total int64, settled ...ledger.Result) ledger.Verification {
	p.t.Helper()
	p.preparing(name)
	v, err := p.book.Prepare(p.t.Context(), p.held, total+1, 1, total)
	if err == nil && len(settled) > 0 {
		v, err = p.book.Settle(p.t.Context(), ledger.Settlement{Lease: p.held, Number: 1, Results: settled})
	}
	effort.OK(p.t, err)
	return v
}

// failed makes a verification that failed because of a defect.
func (p *place) failed(name string) ledger.Verification {
	p.t.Helper()
	p.preparing(name)
	return effort.Must(p.book.Refuse(p.t.Context(), p.held, ledger.Issue{
		Code: "invalid_csv", Message: "The row has two columns.", Row: 17,
		Text: "anna@acme.test;Anna"}))(p.t)
}

// cancelled makes a verification that somebody cancelled.
func (p *place) cancelled(name string) ledger.Verification {
	p.t.Helper()
	return effort.Must(p.book.Cancel(p.t.Context(), p.id, p.uploading(name, 400_000).ID))(p.t)
}

// keys makes two keys and revokes one. It returns the public part of the other.
func (p *place) keys() string {
	p.t.Helper()
	_, works := api.NewKey()
	_, ended := api.NewKey()
	for _, k := range []api.Key{works, ended} {
		if _, err := p.book.CreateKey(context.Background(), ledger.Key{ID: k.ID, Workspace: p.id, Label: "laptop of " + k.ID[:3],
			SecretSHA256: k.SHA256}); err != nil {
			p.t.Fatal(err)
		}
	}
	effort.Must(p.book.RevokeKey(context.Background(), ended.ID))(p.t)
	return works.ID
}

func (p *place) userID(email string) string {
	p.t.Helper()
	u := effort.Must(p.book.UserByEmail(context.Background(), email))(p.t)
	return u.ID.String()
}

func (p *place) of(v ledger.Verification) string { return p.path + "/verifications/" + v.ID.String() }

// results returns n settled addresses, with all outcomes in turn.
func results(n int) (all []ledger.Result) {
	kinds := []struct {
		outcome smtp.Outcome
		reason  smtp.Reason
	}{{smtp.Valid, smtp.MailboxExists}, {smtp.Invalid, smtp.MailboxNotFound}, {smtp.Valid, smtp.MailboxExists},
		{smtp.CatchAll, smtp.AcceptAll}, {smtp.Unknown, smtp.Greylisted}}
	for i := range n {
		k := kinds[i%len(kinds)]
		all = append(all, ledger.Result{Ordinal: int64(i), Email: fmt.Sprintf("person-%d@acme.test", i), Outcome: k.outcome,
			Reason: k.reason, At: time.Now()})
	}
	return all
}

// required reports whether the tests in a browser must run, as in make browser and CI. Then nothing may be missing.
func required() bool { return os.Getenv("ROLLCALL_REQUIRE_BROWSER") == "1" }

// notAsked is printed if these tests needn't run, because a browser would take processors and memory from the other
// tests.
const notAsked = "the tests of the pages in a browser are skipped: run make browser"

// TestMain ends the browser that all tests share. If the browser was not asked for, it says so once.
func TestMain(m *testing.M) {
	effort.AtOnce(3)
	if !required() {
		fmt.Fprintln(os.Stderr, notAsked)
	}
	code := m.Run()
	if shared.end != nil {
		shared.end()
	}
	if one.stop != nil {
		one.stop()
	}
	os.Exit(code)
}

// program returns the path of the browser.
func program() (string, error) {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no browser: install chromium-headless-shell")
}

// shared is the one browser of this run.
var shared struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}

// chromium starts the browser once. It skips the test unless the browser is asked for.
func chromium(t testing.TB) context.Context {
	t.Helper()
	effort.Children(t)
	if !required() {
		t.Skip(notAsked)
	}
	path := effort.Must(program())(t)
	shared.once.Do(func() {
		o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900))
		if os.Geteuid() == 0 {
			o = append(o, chromedp.NoSandbox) // root can't use Chromium's sandbox
		}
		allocated, stop := chromedp.NewExecAllocator(context.Background(), o...)
		ctx, cancel := chromedp.NewContext(allocated)
		shared.ctx, shared.end = ctx, func() { cancel(); stop() }
		shared.err = chromedp.Do(ctx)
	})
	effort.OK(t, shared.err, "start", path)
	return shared.ctx
}

// module returns a file of a node package.
func module(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("npm", "node_modules", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	effort.FatalIf(t, err != nil, "%v", name+" is missing: run npm ci in http/dashboard/pagetest/npm")
	return path
}

// proxy passes all bytes on to a listener, until a test cuts it, slows it or makes the listener unreachable.
type proxy struct {
	*effort.Proxy

	mu    sync.Mutex
	left  int64         // bytes that still pass to the target before the cut; below 0: no cut
	cuts  int           // how often it was cut
	pause time.Duration // before each piece that goes to the target
}

// newProxy makes a proxy for target.
func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{left: -1}
	p.Proxy = effort.StartProxy(l, target, p.through)
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.Addr() }

func (p *proxy) through(toTarget bool, n int) {
	if !toTarget {
		return
	}
	p.mu.Lock()
	pause, cut := p.pause, p.left >= 0 && p.left < int64(n)
	switch {
	case cut:
		p.left, p.cuts = -1, p.cuts+1
	case p.left >= 0:
		p.left -= int64(n)
	}
	p.mu.Unlock()
	if cut {
		p.Cut(false)
	} else if pause > 0 {
		<-time.After(pause)
	}
}

// cutAfter cuts the connections after this many further bytes to the target.
func (p *proxy) cutAfter(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// wasCut returns how many cuts there were.
func (p *proxy) wasCut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// slow makes the proxy wait between pieces of 16 KiB to the target.
func (p *proxy) slow(pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = pause
}
