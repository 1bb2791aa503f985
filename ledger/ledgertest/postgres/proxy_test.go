package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
)

// rig is a server with the table marks, reached directly and through a proxy.
type rig struct {
	t        *testing.T
	url      string // of the database, past the proxy
	database string
	proxy    *postgres.Proxy
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
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(newRig(t, server, fmt.Sprintf("test%d", i))) })
	}
}

// newRig makes a rig that ends with the test, on a database of the given name.
func newRig(t *testing.T, server *postgres.Server, database string) *rig {
	t.Helper()
	r := &rig{t: t, url: server.NewDatabase(t, database, ""), database: database}
	r.proxy = effort.Must(postgres.StartProxy(r.url))(t)
	t.Cleanup(func() { effort.OK(t, r.proxy.Close()) })
	r.direct = r.connect(r.url)
	r.exec(r.direct, "CREATE TABLE marks (mark INT PRIMARY KEY)")
	return r
}

// connect is a connection that ends with the test.
func (r *rig) connect(url string) *pgx.Conn {
	r.t.Helper()
	conn := effort.Must(pgx.Connect(r.t.Context(), url))(r.t)
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
	_, err := conn.Exec(r.t.Context(), statement)
	effort.FatalIf(r.t, err != nil, "%s: %v", statement, err)
}

// marked reports whether a mark is in the table, seen past the proxy. It waits for
// a transaction that is still at work on the mark.
func (r *rig) marked(mark int) bool {
	r.t.Helper()
	const claim = "INSERT INTO marks VALUES ($1) ON CONFLICT DO NOTHING"
	tag := effort.Must(r.direct.Exec(r.t.Context(), claim, mark))(r.t)
	return tag.RowsAffected() == 0
}

// transact inserts mark in a transaction of three statements; after an error it rolls back as a client does.
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

// atStatement does act at the n-th statement, from 1.
func atStatement(n int, act postgres.Act) postgres.Plan {
	return func(postgres.Statement) postgres.Act {
		if n--; n != 0 {
			return postgres.Act{}
		}
		return act
	}
}

// atCommit does act at the next commit.
func atCommit(act postgres.Act) postgres.Plan {
	return func(s postgres.Statement) postgres.Act {
		if !s.Commit {
			return postgres.Act{}
		}
		return act
	}
}

func (r *rig) faults() {
	t := r.t
	undone := postgres.Act{Kind: postgres.FailUndone, Code: postgres.SerializationFailure}
	lost := postgres.Act{Kind: postgres.FailUndone, Code: postgres.CompletionUnknown}
	kept := postgres.Act{Kind: postgres.FailDone, Code: postgres.CompletionUnknown}
	for i, tt := range []struct {
		name string
		plan postgres.Plan
		kind postgres.Kind
		code string // "" : the connection is gone
		want truth
	}{
		{"commit cut before it is sent", atCommit(postgres.Act{Kind: postgres.CutBefore}), postgres.CutBefore, "", absent},
		{"commit cut when sent", atCommit(postgres.Act{Kind: postgres.CutSent}), postgres.CutSent, "", either},
		{"commit cut when executed", atCommit(postgres.Act{Kind: postgres.CutExecuted}), postgres.CutExecuted, "", present},
		{"commit cut in the answer", atCommit(postgres.Act{Kind: postgres.CutAnswer}), postgres.CutAnswer, "", present},
		{"commit fails with 40001", atCommit(undone), postgres.FailUndone, "40001", absent},
		{"commit unknown and undone", atCommit(lost), postgres.FailUndone, "40003", absent},
		{"commit unknown and done", atCommit(kept), postgres.FailDone, "40003", present},
		{"begin cut before it is sent", atStatement(1, postgres.Act{Kind: postgres.CutBefore}), postgres.CutBefore,
			"", absent},
		{"insert cut in the answer", atStatement(2, postgres.Act{Kind: postgres.CutAnswer}), postgres.CutAnswer, "", absent},
		{"insert cut when executed", atStatement(2, postgres.Act{Kind: postgres.CutExecuted}),
			postgres.CutExecuted, "", absent},
		{"begin fails with 40001", atStatement(1, undone), postgres.FailUndone, "40001", absent},
		{"insert fails with 40001", atStatement(2, undone), postgres.FailUndone, "40001", absent},
		{"insert executed and unknown", atStatement(2, kept), postgres.FailDone, "40003", absent},
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
			effort.ErrorIf(t, err == nil || answered != (tt.code != "") || answered && failure.Code != tt.code,
				"the client got %v, want code %q", err, tt.code)
			effort.Is(t, conn.IsClosed(), tt.code == "", "connection closed")
			effort.Is(t, r.proxy.Counts()[tt.kind]-before, 1, "injected times")
			if tt.code != "" { // the connection is fit for more
				effort.ErrIs(t, transact(t.Context(), conn, 1000+i), nil, "the next transaction")
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
	act := postgres.Act{Kind: postgres.FailUndone, Code: postgres.SerializationFailure}
	r.exec(conn, "BEGIN")
	r.proxy.SetPlan(atStatement(1, act))
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Fatal("the statement did not fail")
	}
	_, err := conn.Exec(t.Context(), "SELECT 2")
	var failure *pgconn.PgError
	effort.ErrorIf(t, !errors.As(err, &failure) || failure.Code != "25P02",
		"got %v, want 25P02: in failed sql transaction", err)
}
