package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"rollcall/config/effort"
	"rollcall/http"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// hotQueries are what requests and nodes ask all the time, the index each is to
// use, and the primary key's where that is it.
func hotQueries() []hotQuery {
	const ids = `SELECT id FROM verifications WHERE `
	const cursor = ` AND (created, id) < (?, ?)`
	endQuery := func(of links) string {
		query, _ := of.endStatement(time.Time{})
		return query
	}
	return []hotQuery{
		{"history", ids + `workspace = ?` + cursor + newestFirst, "verifications_history"},
		{"history of a kind", ids + `workspace = ? AND kind = ?` + cursor + newestFirst, "verifications_history_kind"},
		{"those whose ids begin alike", verificationsBetween, "verifications by id"},
		{"open ones", countOpen, "verifications_open"},
		{"runnable", free[0], "verifications_due"},
		{"runnable but of some", free[1], "verifications_due"},
		{"stored bytes", sumStored, "verifications_stored"},
		{"unpaid ones", countUnpaid, "verifications_unpaid"},
		{"unpaid ones to delete", dueUnpaid.ask("id, " + dueUnpaid.time), "verifications_unpaid_kept"},
		{"unread uploads to erase", dueUnread.ask("id, " + dueUnread.time), "verifications_unread"},
		{"unfunded", ids + covered + ` ORDER BY created, id LIMIT 1`, "verifications_unfunded"},
		{"renew", renewLeases, "verifications_leased"},
		{"what waits for credits for too long", dueFunding.ask("id, " + dueFunding.time), "verifications_waiting"},
		{"what can be worked on, whoever has it", oldestDue, "verifications_due"},
		{"what was below the bound of a lease", freeBelow, "verifications by id"},
		{"uploads past their time", dueUploading.ask("id, " + dueUploading.time), "verifications_uploading"},
		{"uploads to erase", dueUploads.ask("id, " + dueUploads.time), "verifications_uploads_kept"},
		{"results to erase", dueResults.ask("id, " + dueResults.time), "verifications_results_kept"},
		{"facts past their time", dueFacts.ask("receiver"), "receiver_facts_expired"},
		{"overrides that hold", activeOverrides, "throttle_overrides_ends"},
		{"how many hold", countActiveOverrides, "throttle_overrides_ends"},
		{"overrides of long ago", dueOverrides.ask("id"), "throttle_overrides_ends"},
		{"the newest of the log", newestLines, "operator_log_newest"},
		{"the log before a line", olderLines, "operator_log_newest"},
		{"sessions of a day ago", dueSessions.ask("id"), "user_sessions_ends"},
		{"links of long ago", dueLinks.ask("id"), "links_ends"},
		{"failed sign-ins past their time", dueAttempts.ask("subject"), "sign_in_attempts_ends"},
		{"newest settlements", recentOf[smtp.Undecided], "settlements of verification"},
		{"newest settlements with an outcome", recentOf[smtp.Unknown], "settlements of verification"},
		{"grants of a workspace", newestGrants, "entries_grants"},
		{"older grants", olderGrants, "entries_grants"},
		{"corrections of a workspace", correctionsOf + newestFirst, "corrections_workspace"},
		{"older corrections", correctionsOf + olderThan + newestFirst, "corrections_workspace"},
		{"verifications that held credits", paidOf + newestFirst, "verifications_history"},
		{"older ones", paidOf + olderThan + newestFirst, "verifications_history"},
		{"spent by day", spentSince, "days of workspace"},
		{"page of settlements", pageOfSettlements, "settlements of verification"},
		{"settlement with its evidence", settlementByNumber, "settlements of verification"},
		{"evidence of a settlement", settlementByNumber, "evidence of settlement"},
		{"what a session may do", mayDo, "memberships_user"},
		{"sessions of a user", heldSessions, "user_sessions_user"},
		{"open invitations", openLinks, "links_workspace"},
		{"members and invitations", countMembers, "links_workspace"},
		{"links of somebody", endQuery(links{folded: "x"}), "links_folded"},
		{"links for a password of somebody", endQuery(links{folded: "x", purpose: ledger.PasswordLink}), "links_folded"},
		{"invitations to a workspace that somebody made", endQuery(links{madeBy: "x", workspace: uuid.New()}),
			"links_workspace"},
		{"the newest of a workspace's log", newestWorkspaceLines, "workspace_log_newest"},
		{"a workspace's log before a line", olderWorkspaceLines, "workspace_log_newest"},
		{"who has an email", userByEmail, "users by email"},
		{"users after an email", pageOfUsers, "users by email"},
		{"who signs in by a provider", userByOIDC, "users_oidc"},
		{"invitations of somebody", invitations, "links_folded"},
	}
}

type hotQuery struct{ name, query, index string }

// TestHotQueriesUseTheirIndex reads the query plans: no request may scan a whole table
// or sort.
func TestHotQueriesUseTheirIndex(t *testing.T) {
	s := effort.Must(Open(t.Context(), NewFile(t), Options{}))(t)
	defer func() { _ = s.Close() }()
	for _, c := range append(hotQueries(), hotQuery{"keys",
		`SELECT id FROM api_keys WHERE workspace = ? ORDER BY created, id`, "api_keys_workspace"}) {
		want := strings.Replace(c.index, "settlements of verification", "sqlite_autoindex_settlements_1", 1)
		want = strings.Replace(want, "evidence of settlement", "sqlite_autoindex_evidence_1", 1)
		want = strings.Replace(want, "verifications by id", "sqlite_autoindex_verifications_1", 1)
		want = strings.Replace(want, "users by email", "sqlite_autoindex_users_2", 1)
		want = strings.Replace(want, "days of workspace", "PRIMARY KEY", 1)
		plan := explain(t, s, c.query) + " "
		effort.ErrorIf(t, !strings.Contains(plan, "INDEX "+want+" ") && !strings.Contains(plan, "USING "+want+" ") ||
			strings.Contains(plan, "SCAN settlements"), "%s: %s is not used: %s", c.name, want, plan)
		effort.Lacks(t, plan, "TEMP B-TREE", c.name, "sorts")
	}
}

// TestHotQueriesAreCompiledOnce: SQLite compiles a statement anew at each execution when a value that is bound
// might change its plan.
func TestHotQueriesAreCompiledOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := effort.Must(Open(t.Context(), "sqlite:"+path, Options{}))(t)
	defer func() { _ = s.Close() }()
	db := effort.Must(sql.Open("sqlite", path))(t)
	defer func() { _ = db.Close() }()
	c := effort.Must(db.Driver().Open("file:" + path))(t)
	defer func() { _ = c.Close() }()
	tls := libc.NewTLS()
	defer tls.Close()
	for _, q := range hotQueries() {
		stmt, err := c.Prepare(s.db.Text(q.query))
		effort.OK(t, err, q.name)
		args := make([]driver.NamedValue, strings.Count(q.query, "?"))
		for run := range 3 {
			for i := range args {
				args[i] = driver.NamedValue{Ordinal: i + 1, Value: int64(run)}
			}
			rows, err := stmt.(driver.StmtQueryContext).QueryContext(t.Context(), args)
			if err == nil {
				err = rows.Close()
			}
			effort.OK(t, err, q.name)
		}
		handle := uintptr(reflect.ValueOf(stmt).Elem().FieldByName("pstmt").Uint()) // the driver does not tell it
		n := sqlite3.Xsqlite3_stmt_status(tls, handle, sqlite3.SQLITE_STMTSTATUS_REPREPARE, 0)
		effort.ErrorIf(t, n > 0, "%s: compiled %d times for 3 executions", q.name, 1+n)
		effort.ErrIs(t, stmt.Close(), nil, q.name)
	}
}

// TestHotQueriesUseTheirIndexOnPostgreSQL asks its planner, which knows what is in
// the tables and not the arguments, as for a statement that is prepared once.
func TestHotQueriesUseTheirIndexOnPostgreSQL(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	s := newServer(t, engine.Seams{})
	many := effort.Must(os.ReadFile("testdata/many_verifications.sql"))(t)
	s.does(t, string(many)+`; SET plan_cache_mode = force_generic_plan`)
	for i, c := range hotQueries() {
		want := strings.Replace(c.index, "settlements of verification", "settlements_pkey", 1)
		want = strings.Replace(want, "evidence of settlement", "evidence_pkey", 1)
		want = strings.Replace(want, "verifications by id", "verifications_pkey", 1)
		want = strings.Replace(want, "users by email", "email_once", 1)
		want = strings.Replace(want, "days of workspace", "credit_days_pkey", 1)
		name, nulls := "hot"+strconv.Itoa(i), strings.Repeat(", NULL", strings.Count(c.query, "?"))
		s.does(t, `PREPARE `+name+` AS `+s.db.Text(c.query))
		if nulls != "" {
			nulls = `(` + strings.TrimPrefix(nulls, ", ") + `)`
		}
		rows := effort.Must(s.aside.Query(t.Context(), `EXPLAIN EXECUTE `+name+nulls))(t)
		lines := effort.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		plan := strings.Join(lines, "\n")
		effort.Has(t, plan, " "+want+" ", c.name, want, "is not used")
		effort.Lacks(t, plan, "Seq Scan", c.name, want, "is not used")
		effort.Lacks(t, plan, "Sort", c.name, "sorts")
	}
}

// explain returns the plan of a query with any arguments.
func explain(t *testing.T, s *Store, query string) string {
	t.Helper()
	var plan []string
	err := s.view(t.Context(), func(tx *tx) error {
		return tx.Each(func(rows *sql.Rows) error {
			var id, parent, unused int
			var detail string
			err := rows.Scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return err
		}, `EXPLAIN QUERY PLAN `+query, make([]any, strings.Count(query, "?"))...)
	})
	effort.OK(t, err, "explain", query)
	return strings.Join(plan, "; ")
}

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

// TestASettlementIsOneTransaction: this holds even in a process that has no earlier settlements cached.
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

// TestDaysAddUpTheEntriesOfOneStatement: several entries of one kind, as a correction writes them, all count on their
// day, beside those of other kinds and of other workspaces.
func TestDaysAddUpTheEntriesOfOneStatement(t *testing.T) {
	t.Parallel()
	s := effort.Must(Open(t.Context(), NewFile(t), Options{}))(t)
	t.Cleanup(func() { _ = s.Close() })
	w, other := ledgertest.NewFixture(t, s, 0).Workspace, ledgertest.NewFixture(t, s, 0).Workspace
	entry := func(workspace uuid.UUID, number int64, kind ledger.EntryKind, amount ledger.Credits) transitions.Entry {
		return transitions.Entry{Subject: workspace, Number: number, Kind: kind, Workspace: workspace, Amount: amount, Reason: "test"}
	}
	effort.OK(t, s.update(t.Context(), func(t *tx) error {
		return t.Enter(entry(w, 1, ledger.EntryCharge, 2), entry(w, 1, ledger.EntryGrant, 7),
			entry(other, 1, ledger.EntryCharge, 100), entry(w, 2, ledger.EntryCharge, 30), entry(w, 3, ledger.EntryCharge, 400))
	}))
	type sum struct {
		workspace uuid.UUID
		kind      string
	}
	got := map[sum]int64{}
	effort.OK(t, s.view(t.Context(), func(t *tx) error {
		clear(got)
		return t.Each(func(rows *sql.Rows) error {
			var one sum
			var credits int64
			err := rows.Scan(&one.workspace, &one.kind, &credits)
			got[one] += credits
			return err
		}, `SELECT workspace, kind, credits FROM credit_days`)
	}))
	want := map[sum]int64{
		{w, string(ledger.EntryCharge)}: 432, {w, string(ledger.EntryGrant)}: 7, {other, string(ledger.EntryCharge)}: 100}
	effort.Same(t, got, want, "the days have")
}

// TestABreakdownForgetsTheDomainsWithFewUnknown: memory is bounded, and the breakdown says that counts may be too low.
func TestABreakdownForgetsTheDomainsWithFewUnknown(t *testing.T) {
	t.Parallel()
	c := tally{reasons: map[ledger.ReasonCount]int64{}, domains: map[string]*unknowns{}, most: 4}
	ask := func(domain string, times int) {
		for range times {
			results := []ledger.Result{{Email: "a@" + domain, Outcome: smtp.Unknown, Reason: smtp.Greylisted}}
			p := effort.Must(ledger.EncodeResults(results))(t)
			var b ledger.Batch
			effort.OK(t, b.Decode(p.Bytes))
			c.add(&b)
		}
	}
	ask("worst.test", 5)
	ask("bad.test", 3)
	for i := range 2 {
		ask(fmt.Sprintf("d%d.test", i), 1)
	}
	if down := c.breakdown(); down.AtLeast || len(down.Worst) != 4 {
		t.Errorf("with room for all: %+v", down)
	}
	for i := range 20 {
		ask(fmt.Sprintf("e%d.test", i), 1)
		effort.FatalIf(t, len(c.domains) > c.most, "%d domains in memory", len(c.domains))
	}
	ask("bad.test", 1)
	down := c.breakdown()
	want := []ledger.DomainCount{{Domain: "worst.test", Unknown: 5, Reason: smtp.Greylisted}, {Domain: "bad.test", Unknown: 4, Reason: smtp.Greylisted}}
	effort.ErrorIf(t, !down.AtLeast || len(down.Worst) < 2 || down.Worst[0] != want[0] || down.Worst[1] != want[1] ||
		down.Reasons[0].Count != 31, "got %+v", down)
}
