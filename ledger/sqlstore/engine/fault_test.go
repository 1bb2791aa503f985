package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"github.com/jackc/pgx/v5/pgconn"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// state is the database's error with a SQLSTATE, wrapped as closures do.
func state(code string) error {
	return fmt.Errorf("hold credits: %w", &pgconn.PgError{Code: code, Message: "m", Detail: "Key (id)=(secret)"})
}

// TestErrorsAreToldApart holds each error to what it means before the commit was asked for, and after.
func TestErrorsAreToldApart(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		name string
		err  error
		// a: run again. f: on a new connection. p: worth another call. u: unknown.
		before, after string
	}{
		{"serialization failure", state("40001"), "conflict ap", "conflict ap"},
		{"deadlock", state("40P01"), "conflict ap", "conflict ap"},
		{"completion unknown", state("40003"), "unknown afp", "unknown afpu"},
		{"administrator's shutdown", state("57P01"), "connection afp", "connection afpu"},
		{"crash", state("57P02"), "connection afp", "connection afpu"},
		{"starting up", state("57P03"), "connection afp", "connection afpu"},
		{"connection failure", state("08006"), "connection afp", "connection afpu"},
		{"idle in transaction", state("25P03"), "connection afp", "connection afpu"},
		{"prepared statement gone", state("26000"), "connection afp", "connection afpu"},
		{"too many connections", state("53300"), "resources afp", "resources afpu"},
		{"disk full", state("53100"), "resources afp", "resources afpu"},
		{"i/o error", state("58030"), "connection afp", "connection afpu"},
		{"internal error", state("XX000"), "connection afp", "connection afpu"},
		{"internal error of cockroachdb", state("XXUUU"), "connection afp", "connection afpu"},
		{"statement timeout", state("57014"), "busy ap", "busy afpu"},
		{"lock timeout", state("55P03"), "busy ap", "busy afpu"},
		{"an earlier failure was dropped", state("25P02"), "aborted ap", "aborted ap"},
		{"commit that rolled back", errAborted, "aborted ap", "aborted ap"},
		{"a standby", state("25006"), "read_only afp", "read_only afpu"},
		{"unique violation", state("23505"), "duplicate a", "duplicate a"},
		{"the table of another migration", state("42P07"), "duplicate a", "duplicate a"},
		{"the column of another migration", state("42701"), "duplicate a", "duplicate a"},
		{"check violation", state("23514"), "refused ", "refused "},
		{"numeric out of range", state("22003"), "refused ", "refused "},
		{"invalid byte sequence", state("22021"), "refused ", "refused "},
		{"insufficient privilege", state("42501"), "refused ", "refused "},
		{"wrong password", state("28P01"), "refused ", "refused "},
		{"no such database", state("3D000"), "refused ", "refused "},
		{"a code of the future", state("ZZ123"), "refused ", "unknown afpu"},

		{"connection reset", reset, "connection afp", "connection afpu"},
		{"end of stream", io.EOF, "connection afp", "connection afpu"},
		{"end in the middle", io.ErrUnexpectedEOF, "connection afp", "connection afpu"},
		{"connection done", sql.ErrConnDone, "connection afp", "connection afpu"},
		{"bad connection", driver.ErrBadConn, "connection afp", "connection afpu"},
		{"deadline of the attempt", context.DeadlineExceeded, "busy afp", "busy afpu"},

		{"a rule's refusal", ledger.ErrIllegal, " ", "unknown afpu"},
		{"no rows", sql.ErrNoRows, " ", "unknown afpu"},
		{"anything else", errors.New("else"), " ", "unknown afpu"},
	} {
		for _, at := range []struct {
			committing bool
			want       string
		}{{false, c.before}, {true, c.after}} {
			f := judgePostgres(failure{err: c.err, committing: at.committing})
			effort.Is(t, short(f), at.want, fmt.Sprintf("%s, committing %v", c.name, at.committing))
		}
	}
	effort.Is(t, short(judgePostgres(failure{err: ledger.ErrIllegal, lost: true})), "connection afp",
		"a refusal on a connection that is lost")
}

// short writes a fault for a table.
func short(f fault) string {
	text := f.why + " "
	for _, flag := range []struct {
		letter string
		set    bool
	}{{"a", f.again}, {"f", f.fresh}, {"p", f.passing}, {"u", f.unknown}} {
		if flag.set {
			text += flag.letter
		}
	}
	return text
}

// TestWhatTheCallerIsTold gives attempts one error after the other.
func TestWhatTheCallerIsTold(t *testing.T) {
	conflict, cut := state("40001"), &commitError{io.EOF}
	always := func(err error) []error {
		most := attemptsMax
		if err == conflict {
			most = conflictsMax
		}
		return append(slices.Repeat([]error{err}, most), errors.New("one attempt too many"))
	}
	for _, c := range []struct {
		name   string
		errs   []error // nil once they are used up
		want   error   // nil: the call succeeds
		not    error
		cancel int // the caller gives up in this attempt
	}{
		{"at once", nil, nil, nil, 0},
		{"after a conflict", []error{conflict}, nil, nil, 0},
		{"after a lost commit", []error{cut}, nil, nil, 0},
		{"conflicts for ever", always(conflict), ErrUnavailable, ErrUnknown, 0},
		{"lost before the commit for ever", always(io.EOF), ErrUnavailable, ErrUnknown, 0},
		{"lost commits for ever", always(cut), ErrUnknown, ErrUnavailable, 0},
		{"a lost commit, then away for ever", append([]error{cut}, always(io.EOF)...), ErrUnknown, ErrUnavailable, 0},
		{"a lost commit, then a refusal by the rules", []error{cut, ledger.ErrStaleEpoch}, ledger.ErrStaleEpoch,
			ErrUnknown, 0},
		{"a lost commit, then no rights", []error{cut, state("42501")}, ErrUnknown, ErrUnavailable, 0},
		{"no rights", []error{state("42501")}, errSomething, ErrUnavailable, 0},
		{"given up", []error{io.EOF}, context.Canceled, ErrUnknown, 1},
		{"given up in the commit", []error{cut}, ErrUnknown, ErrUnavailable, 1},
		{"given up after a lost commit", []error{cut, io.EOF}, ErrUnknown, ErrUnavailable, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := openForTest(t)
			session := effort.Must(s.writer.take(t.Context(), false, 0))(t)
			defer s.writer.put(session)
			session.dialect.judge = judgePostgres
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			runs := 0
			err := s.repeatOn(ctx, session, func(context.Context) error {
				if runs++; runs == c.cancel {
					cancel()
				}
				if runs > len(c.errs) {
					return nil
				}
				return c.errs[runs-1]
			})
			switch {
			case c.want == nil && err != nil,
				c.want != nil && err == nil,
				c.want != nil && c.want != errSomething && !errors.Is(err, c.want),
				c.not != nil && errors.Is(err, c.not):
				t.Errorf("got %v after %d runs, want %v", err, runs, c.want)
			}
		})
	}
}

// TestErrorsOfTheEmbeddedDatabase are real ones, since its driver lets nobody make them.
func TestErrorsOfTheEmbeddedDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.db")
	var both [2]*sql.DB
	for i := range both {
		db := effort.Must(sql.Open("sqlite", dsn(path, []string{"busy_timeout(0)", "max_page_count(4)"}, "rwc")))(t)
		db.SetMaxOpenConns(1)
		t.Cleanup(func() { _ = db.Close() })
		both[i] = db
	}
	effort.Must(both[0].Exec(`CREATE TABLE one (data TEXT NOT NULL)`))(t)
	for _, c := range []struct{ name, before, statement, after, want string }{
		{"another writer", "BEGIN IMMEDIATE", `INSERT INTO one VALUES ('')`, "ROLLBACK", "busy ap"},
		{"a full disk", "SELECT 1", `INSERT INTO one VALUES (hex(zeroblob(99999)))`, "SELECT 1", "resources p"},
		{"a broken promise", "SELECT 1", `INSERT INTO one VALUES (NULL)`, "SELECT 1", "refused "},
	} {
		effort.Must(both[0].Exec(c.before))(t)
		_, err := both[1].Exec(c.statement)
		effort.Is(t, short(judgeSQLite(failure{err: err})), c.want, c.name, err)
		effort.Must(both[0].Exec(c.after))(t)
	}
}

// TestCockroachsErrorsAreLookedInto: the library hides what it was behind types of its own.
func TestCockroachsErrorsAreLookedInto(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(statement string) error
		want string
		not  bool // committing
	}{
		{"release lost", failing("RELEASE SAVEPOINT cockroach_restart", io.EOF), "connection afpu", true},
		{"release unknown", failing("RELEASE SAVEPOINT cockroach_restart", state("40003")), "unknown afpu", true},
		{"release refused", failing("RELEASE SAVEPOINT cockroach_restart", state("23514")), "refused ", true},
		{"release in conflict", failing("RELEASE SAVEPOINT cockroach_restart", state("40001")), "conflict ap", false},
		{"no way back", both(failing("RELEASE SAVEPOINT cockroach_restart", state("40001")),
			failing("ROLLBACK TO SAVEPOINT cockroach_restart", io.EOF)), "connection afp", false},
		{"no savepoint", failing("SAVEPOINT cockroach_restart", io.EOF), "connection afp", false},
		{"commit lost", failing("COMMIT", io.EOF), "connection afpu", true},
		{"commit in conflict", failing("COMMIT", state("40001")), "conflict ap", true},
	} {
		s, _ := openForTest(t)
		session := effort.Must(s.writer.take(t.Context(), false, 0))(t)
		session.dialect = cockroachDialect()
		session.dialect.failed = func(any) bool { return false }
		session.dialect.control = func(_ context.Context, _ *sql.Conn, statement string) error {
			return c.fail(statement)
		}
		effort.OK(t, session.connect(t.Context()))
		runs := 0
		err := session.transaction(t.Context(), session.dialect.begin, func(*Tx) error {
			runs++
			return nil
		})
		var e *commitError
		f := judgePostgres(failure{err: err, committing: errors.As(err, &e)})
		if got := short(f); got != c.want || errors.As(err, &e) != c.not || runs > restartsMax+1 {
			t.Errorf("%s: got %q (%v) after %d runs, want %q", c.name, got, err, runs, c.want)
		}
		session.dialect = sqliteDialect()
		s.writer.put(session)
	}
}

func failing(statement string, err error) func(string) error {
	return func(got string) error {
		if got == statement {
			return err
		}
		return nil
	}
}

func both(a, b func(string) error) func(string) error {
	return func(statement string) error { return errors.Join(a(statement), b(statement)) }
}

// TestCockroachRunsAgainAFewTimesOnly: a transaction that always conflicts ends with an error.
func TestCockroachRunsAgainAFewTimesOnly(t *testing.T) {
	s := newServer(t, cockroachDialect())
	runs := 0
	err := s.Update(t.Context(), func(tx *Tx) error {
		runs++
		return raise(tx, "40001")
	})
	var most *crdb.MaxRetriesExceededError
	want := conflictsMax * (restartsMax + 1)
	effort.ErrorIf(t, runs != want || !errors.Is(err, ErrUnavailable) || !errors.As(err, &most),
		"%d runs and %v, want %d", runs, err, want)
}

func TestArgumentsAreNumbered(t *testing.T) {
	for _, c := range []struct{ name, statement, want string }{
		{"none", `SELECT 1`, `SELECT 1`},
		{"three", `a = ? AND b IN (?, ?)`, `a = $1 AND b IN ($2, $3)`},
		{"quoted", `a = '?' AND b = ? AND c = 'it''s ?'`, `a = '?' AND b = $1 AND c = 'it''s ?'`},
	} {
		effort.Is(t, numbered(c.statement), c.want, fmt.Sprintf("%s: %s", c.name, c.statement))
	}
}
