package cutter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"rollcall/ledger/ledgertest/cutter"
	"rollcall/ledger/ledgertest/postgres"
)

// rig is a server with the table marks, reached directly and through a proxy.
type rig struct {
	t        *testing.T
	url      string // of the database, past the proxy
	database string
	proxy    *cutter.Proxy
	direct   *pgx.Conn
}

// TestProxy runs each test with a database and a proxy of its own.
func TestProxy(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	for i, tt := range []struct {
		name string
		run  func(*rig)
	}{
		{"faults", (*rig).faults},
		{"a failed statement aborts its transaction", (*rig).failedStatement},
		{"the recorder sees prepared statements and commits", (*rig).recorder},
		{"a slow statement", (*rig).slow},
		{"silence", (*rig).silence},
		{"refuse and sever", (*rig).refuseAndSever},
		{"a client that goes releases its locks", (*rig).clientThatGoes},
		{"large answers and pipelines pass", (*rig).largeAnswers},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(newRig(t, server, fmt.Sprintf("test%d", i))) })
	}
}

// newRig makes a rig that ends with the test, on a database of the given name.
func newRig(t *testing.T, server *postgres.Server, database string) *rig {
	t.Helper()
	r := &rig{t: t, url: server.NewDatabase(t, database, ""), database: database}
	var err error
	if r.proxy, err = cutter.Start(r.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.proxy.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	r.direct = r.connect(r.url)
	r.exec(r.direct, "CREATE TABLE marks (mark INT PRIMARY KEY)")
	return r
}

// connect is a connection that ends with the test.
func (r *rig) connect(url string) *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(r.t.Context())) })
	return conn
}

// through is a connection by way of the proxy.
func (r *rig) through() *pgx.Conn {
	r.t.Helper()
	return r.connect(r.proxy.URL(r.database))
}

// exec runs a statement that must succeed.
func (r *rig) exec(conn *pgx.Conn, statement string) {
	r.t.Helper()
	if _, err := conn.Exec(r.t.Context(), statement); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
}

// marked reports whether a mark is in the table, seen past the proxy. It waits for
// a transaction that is still at work on the mark.
func (r *rig) marked(mark int) bool {
	r.t.Helper()
	const claim = "INSERT INTO marks VALUES ($1) ON CONFLICT DO NOTHING"
	tag, err := r.direct.Exec(r.t.Context(), claim, mark)
	if err != nil {
		r.t.Fatal(err)
	}
	return tag.RowsAffected() == 0
}

// transact inserts mark in a transaction of three statements; after an error it
// rolls back as a client does.
func transact(ctx context.Context, conn *pgx.Conn, mark int) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err = tx.Exec(ctx, "INSERT INTO marks VALUES ($1)", mark); err == nil {
		return tx.Commit(ctx)
	}
	return errors.Join(err, tx.Rollback(ctx))
}

// truth is what a fault leaves in the table.
type truth string

const (
	absent  truth = "absent"
	present truth = "present"
	either  truth = "either"
)

func (r *rig) faults() {
	t := r.t
	undone := cutter.Act{Kind: cutter.FailUndone, Code: cutter.SerializationFailure}
	lost := cutter.Act{Kind: cutter.FailUndone, Code: cutter.CompletionUnknown}
	kept := cutter.Act{Kind: cutter.FailDone, Code: cutter.CompletionUnknown}
	for i, tt := range []struct {
		name string
		plan cutter.Plan
		kind cutter.Kind
		code string // "" : the connection is gone
		want truth
	}{
		{"commit cut before it is sent", cutter.AtCommit(1, cutter.Act{Kind: cutter.CutBefore}), cutter.CutBefore,
			"", absent},
		{"commit cut when sent", cutter.AtCommit(1, cutter.Act{Kind: cutter.CutSent}), cutter.CutSent, "", either},
		{"commit cut when executed", cutter.AtCommit(1, cutter.Act{Kind: cutter.CutExecuted}), cutter.CutExecuted,
			"", present},
		{"commit cut in the answer", cutter.AtCommit(1, cutter.Act{Kind: cutter.CutAnswer}), cutter.CutAnswer,
			"", present},
		{"commit fails with 40001", cutter.AtCommit(1, undone), cutter.FailUndone, "40001", absent},
		{"commit unknown and undone", cutter.AtCommit(1, lost), cutter.FailUndone, "40003", absent},
		{"commit unknown and done", cutter.AtCommit(1, kept), cutter.FailDone, "40003", present},
		{"begin cut before it is sent", cutter.AtStatement(1, cutter.Act{Kind: cutter.CutBefore}), cutter.CutBefore,
			"", absent},
		{"insert cut in the answer", cutter.AtStatement(2, cutter.Act{Kind: cutter.CutAnswer}), cutter.CutAnswer,
			"", absent},
		{"insert cut when executed", cutter.AtStatement(2, cutter.Act{Kind: cutter.CutExecuted}),
			cutter.CutExecuted, "", absent},
		{"begin fails with 40001", cutter.AtStatement(1, undone), cutter.FailUndone, "40001", absent},
		{"insert fails with 40001", cutter.AtStatement(2, undone), cutter.FailUndone, "40001", absent},
		{"insert executed and unknown", cutter.AtStatement(2, kept), cutter.FailDone, "40003", absent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rig{t: t, database: r.database, proxy: r.proxy, direct: r.direct}
			conn := r.through()
			before := r.proxy.Counts()[tt.kind]
			r.proxy.SetPlan(tt.plan)
			err := transact(t.Context(), conn, i)
			r.proxy.SetPlan(nil)
			var failure *pgconn.PgError
			answered := errors.As(err, &failure)
			if err == nil || answered != (tt.code != "") || answered && failure.Code != tt.code {
				t.Errorf("the client got %v, want code %q", err, tt.code)
			}
			if conn.IsClosed() != (tt.code == "") {
				t.Errorf("connection closed: got %v", conn.IsClosed())
			}
			if n := r.proxy.Counts()[tt.kind] - before; n != 1 {
				t.Errorf("injected %d times, want once", n)
			}
			if tt.code != "" { // the connection is fit for more
				if err := transact(t.Context(), conn, 1000+i); err != nil {
					t.Errorf("the next transaction: %v", err)
				}
			}
			if got := r.marked(i); tt.want != either && got != (tt.want == present) {
				t.Errorf("committed: got %v, want %s", got, tt.want)
			}
		})
	}
}

// A statement after the one that failed must find its transaction aborted, or the
// fault would be kinder than the real one.
func (r *rig) failedStatement() {
	t := r.t
	conn := r.through()
	act := cutter.Act{Kind: cutter.FailUndone, Code: cutter.SerializationFailure}
	r.exec(conn, "BEGIN")
	r.proxy.SetPlan(cutter.AtStatement(1, act))
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Fatal("the statement did not fail")
	}
	_, err := conn.Exec(t.Context(), "SELECT 2")
	var failure *pgconn.PgError
	if !errors.As(err, &failure) || failure.Code != "25P02" {
		t.Errorf("got %v, want 25P02: in failed sql transaction", err)
	}
}

func (r *rig) recorder() {
	t := r.t
	conn := r.through()
	var recorder cutter.Recorder
	r.proxy.SetPlan(recorder.Plan)
	if err := transact(t.Context(), conn, 1); err != nil {
		t.Fatal(err)
	}
	r.exec(conn, "BEGIN")
	r.exec(conn, "SAVEPOINT cockroach_restart")
	r.exec(conn, "RELEASE SAVEPOINT cockroach_restart")
	r.exec(conn, "COMMIT")
	want := []cutter.Statement{
		{Text: "begin", Number: 1},
		{Text: "INSERT INTO marks VALUES ($1)", Number: 2},
		{Text: "commit", Number: 3, Commit: true, Commits: 1},
		{Text: "BEGIN", Number: 4, Commits: 1},
		{Text: "SAVEPOINT cockroach_restart", Number: 5, Commits: 1},
		{Text: "RELEASE SAVEPOINT cockroach_restart", Number: 6, Commit: true, Commits: 2},
		{Text: "COMMIT", Number: 7, Commit: true, Commits: 3},
	}
	got := recorder.Statements()
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("statement %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func (r *rig) slow() {
	t := r.t
	conn := r.through()
	const delay = 50 * time.Millisecond
	r.proxy.SetPlan(cutter.Always(cutter.Act{Kind: cutter.Slow, Delay: delay}))
	start := time.Now()
	r.exec(conn, "SELECT 1")
	if took := time.Since(start); took < delay {
		t.Errorf("took %v, want at least %v", took, delay)
	}
	if n := r.proxy.Injected(); n != 1 {
		t.Errorf("injected %d, want 1", n)
	}
}

// noAnswer fails the test unless conn gets no answer for a moment.
func noAnswer(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT 1")
	var network net.Error
	if !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("got %v, want a time-out", err)
	}
}

func (r *rig) silence() {
	t := r.t
	one, two := r.through(), r.through()
	r.proxy.SetPlan(cutter.AtStatement(1, cutter.Act{Kind: cutter.Silence}))
	noAnswer(t, one)
	r.exec(two, "SELECT 1") // the others go on
	r.proxy.Hush()
	noAnswer(t, two)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, r.proxy.URL(r.database)); err == nil {
		t.Error("a new connection was answered")
	}
	r.proxy.Heal()
	r.exec(r.through(), "SELECT 1")
	// The client that gave up also asked the server to cancel, in silence.
	if got := r.proxy.Counts(); got[cutter.Silence] != 1 || r.proxy.Injected() < 3 {
		t.Errorf("counts: %v", got)
	}
}

func (r *rig) refuseAndSever() {
	t := r.t
	conn := r.through()
	r.proxy.Refuse()
	if _, err := pgx.Connect(t.Context(), r.proxy.URL(r.database)); err == nil {
		t.Error("a new connection was taken")
	}
	r.exec(conn, "SELECT 1") // an old one goes on
	if n := r.proxy.Sever(); n != 1 {
		t.Errorf("severed %d connections, want 1", n)
	}
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a severed connection goes on")
	}
	r.proxy.Heal()
	r.exec(r.through(), "SELECT 1")
}

// A client that goes takes its transaction with it, also when the proxy waits
// for the server.
func (r *rig) clientThatGoes() {
	t := r.t
	conn := r.through()
	r.exec(conn, "BEGIN")
	r.exec(conn, "INSERT INTO marks VALUES (1)")
	r.proxy.SetPlan(cutter.AtCommit(1, cutter.Act{Kind: cutter.Silence}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "COMMIT"); err == nil {
		t.Error("a silent commit was answered")
	}
	if r.marked(1) { // waits for the lock on the row
		t.Error("the transaction was committed")
	}
}

func (r *rig) largeAnswers() {
	t := r.t
	conn := r.through()
	var sum int64
	rows, err := conn.Query(t.Context(), "SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) n")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var n int64
		var text string
		if err := rows.Scan(&n, &text); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if rows.Err() != nil || sum != 20000*20001/2 {
		t.Errorf("sum %d, %v", sum, rows.Err())
	}
	batch := &pgx.Batch{}
	for i := range 100 {
		batch.Queue("INSERT INTO marks VALUES ($1)", i)
	}
	if err := conn.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Error(err)
	}
	if !r.marked(99) {
		t.Error("the batch was not stored")
	}
}
