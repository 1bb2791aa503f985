package sqlstore

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/http"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// notebook is a driver that notes each statement that another one runs, and may fail one in its place. Its connections
// can nothing that database/sql does not need, so that none runs unseen.
type notebook struct {
	driver driver.Driver
	dsn    string

	mu         sync.Mutex
	statements []string                // guarded by mu
	instead    func(text string) error // of a statement, unless it answers nil; guarded by mu
}

// notedConn and notedStmt are a connection and a prepared statement of it.
type notedConn struct {
	driver.Conn
	notes *notebook
}

type notedStmt struct {
	driver.Stmt
	text  string
	notes *notebook
}

func (n *notebook) Driver() driver.Driver { return n.driver }

func (n *notebook) Connect(context.Context) (driver.Conn, error) {
	c, err := n.driver.Open(n.dsn)
	return notedConn{c, n}, err
}

func (c notedConn) Prepare(text string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(text)
	return notedStmt{s, text, c.notes}, err
}

func (s notedStmt) note() error {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	s.notes.statements = append(s.notes.statements, s.text)
	if s.notes.instead == nil {
		return nil
	}
	return s.notes.instead(s.text)
}

func (s notedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.note(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s notedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.note(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// take gives what was noted since the last time.
func (n *notebook) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	noted := n.statements
	n.statements = nil
	return noted
}

// TestPollIsOnePointRead: GET /v1/verifications/{id} asks the ledger one question, which is answered by one row found
// by its key; the API key is read once for some seconds of polls.
func TestPollIsOnePointRead(t *testing.T) {
	s, both := openNoted(t, Options{})
	notes := both[1]
	d := ledgertest.NewFixture(t, s, 10)
	v, _ := d.Prepares(10)
	poll := poller(t, d, v.ID)
	poll() // the key is read
	notes.take()
	const polls = 20
	for range polls {
		poll()
	}
	noted := slices.DeleteFunc(notes.take(), func(text string) bool {
		return strings.Contains(text, "FROM api_keys")
	})
	effort.MustBe(t, len(noted), polls, "statements for polls", noted)
	plan := explain(t, s, noted[0])
	want := "SEARCH verifications USING INDEX sqlite_autoindex_verifications_1 (id=?)"
	effort.ErrorIf(t, plan != want, "a poll is answered by %s, want %s", plan, want)
}

// TestASettlementIsOneTransaction, also of a process that has not read those before it.
func TestASettlementIsOneTransaction(t *testing.T) {
	s, notes := openNoted(t, Options{})
	d := ledgertest.NewFixture(t, s, 3)
	_, l := d.Prepares(3)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	s.Engine = transitions.New(database{s.base}) // which remembers nothing
	notes[0].take()
	d.Settles(l, 2, 1, 1, smtp.Valid)
	begun := slices.DeleteFunc(notes[0].take(), func(text string) bool { return text != "BEGIN IMMEDIATE" })
	effort.Is(t, len(begun), 1, "transactions")
}

// poller starts the API over a desk's ledger and gives what polls one verification.
func poller(t *testing.T, d *ledgertest.Fixture, id uuid.UUID) func() {
	t.Helper()
	text, key := api.NewKey()
	effort.Must(d.CreateKey(t.Context(), ledger.Key{ID: key.ID, Workspace: d.Workspace, SecretSHA256: key.SHA256}))(t)
	limits := http.DefaultLimits()
	limits.Reads = http.Rate{PerSecond: 1e6, Burst: 1e6}
	server := http.New(http.Options{
		Listen: "127.0.0.1:0", Book: d.Book, Limits: limits,
		PublicUpload: func(id uuid.UUID) string { return "http://storage.test/" + id.String() },
		MaxFileBytes: 1000, MaxRows: 1000, PerWorkspace: ledger.Limits{Open: 10, Stored: 1 << 30, Unpaid: 10}, UploadExpiry: time.Hour,
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Wake: func() {},
		Nodes: func() int { return 1 }, Weight: func(uuid.UUID) int { return 1 },
	})
	effort.OK(t, server.Start())
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(t.Context())) })
	return func() {
		t.Helper()
		request := effort.Must(nethttp.NewRequestWithContext(t.Context(), nethttp.MethodGet,
			fmt.Sprintf("http://%s/v1/verifications/%s", server.Addr(), id), nil))(t)
		request.Header.Set("X-API-Key", text)
		answer := effort.Must(nethttp.DefaultClient.Do(request))(t)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		effort.FatalIf(t, err != nil || answer.StatusCode != nethttp.StatusOK ||
			!strings.Contains(string(body), id.String()), "poll: %d %s, %v", answer.StatusCode, body, err)
	}
}
