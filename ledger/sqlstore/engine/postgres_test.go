package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest/postgres"
)

// server is a ledger on PostgreSQL with two workspaces, spoken to as PostgreSQL or
// in the way of CockroachDB: with savepoints.
type server struct {
	*DB
	url     string
	a, b    uuid.UUID
	aside   *pgx.Conn // another client
	metrics *prometheus.Registry
}

// onServer runs a test in both ways.
func onServer(t *testing.T, test func(t *testing.T, s *server)) {
	for _, d := range []dialect{postgresDialect(), cockroachDialect()} {
		t.Run(d.name+"'s way", func(t *testing.T) {
			// What differs without being tried here: PostgreSQL's snapshot is understood by both.
			d.snapshot = postgresDialect().snapshot
			test(t, newServer(t, d))
		})
	}
}

func newServer(t *testing.T, d dialect) *server {
	t.Helper()
	s := &server{url: newLedger(t), metrics: prometheus.NewRegistry()}
	s.DB = effort.Must(newDB(d, book, Options{Registerer: s.metrics, RetryWait: soon}))(t)
	for _, a := range []access{{}, {readOnly: true}} {
		db := effort.Must(connector(s.url, a))(t)
		if a.readOnly {
			s.readers = newPool(db, d, 4, s.meters.waits(kindRead))
		} else {
			s.writeBy(db, 4)
		}
	}
	t.Cleanup(func() { effort.OK(t, s.Close()) })
	s.a, s.b = addWorkspace(t, s.DB, "named"), addWorkspace(t, s.DB, "named")
	s.aside = effort.Must(pgx.Connect(t.Context(), s.url))(t)
	t.Cleanup(func() { _ = s.aside.Close(context.WithoutCancel(t.Context())) })
	return s
}

// does runs statements as the other client.
func (s *server) does(t *testing.T, statements string) {
	t.Helper()
	_, err := s.aside.PgConn().Exec(t.Context(), statements).ReadAll()
	effort.FatalIf(t, err != nil, "%s: %v", statements, err)
}

// rename sets the name of a workspace.
func rename(t *Tx, id uuid.UUID, name string) error {
	_, err := t.Exec(`UPDATE workspaces SET name = ? WHERE id = ?`, name, id[:])
	return err
}

// names reads the names of both workspaces.
func (s *server) names(t *testing.T) []string {
	t.Helper()
	var names []string
	effort.OK(t, s.View(t.Context(), func(tx *Tx) error {
		return tx.Each(func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			names = append(names, name)
			return err
		}, `SELECT name FROM workspaces`)
	}))
	slices.Sort(names)
	return names
}

// TestACommitThatFailsIsRunAgain makes a write skew: two transactions read both workspaces and each changes another
// one. The one that commits last is refused at its COMMIT, with 40001 (on PostgreSQL after RELEASE went well), although
// cockroach-go looks at no error of COMMIT.
func TestACommitThatFailsIsRunAgain(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		const both = `SELECT count(*) FROM workspaces WHERE name = 'named'`
		runs := 0
		var seen int
		err := s.Update(t.Context(), func(tx *Tx) error {
			if err := tx.Row(both).Scan(&seen); err != nil {
				return err
			}
			if err := rename(tx, s.a, "changed by us"); err != nil {
				return err
			}
			if runs++; runs == 1 {
				s.does(t, `BEGIN ISOLATION LEVEL SERIALIZABLE; `+both+`;
					UPDATE workspaces SET name = 'changed by the other' WHERE id = '\x`+hex(s.b)+`'; COMMIT`)
			}
			return nil // nothing has failed so far
		})
		effort.ErrorIf(t, err != nil || runs != 2 || seen != 1,
			"%v after %d runs, %d seen unchanged; want two runs, the second of which sees one", err, runs, seen)
		effort.Equal(t, s.names(t), []string{"changed by the other", "changed by us"})
		effort.Is(t, nettest.Metric(t, s.metrics, "rollcall_ledger_retries_total", "why="+whyConflict), 1)
	})
}

// TestAReaderSeesTransactionsInTheirOrder: one reads b and then changes a, another
// changes b and commits between, and a reader sees the new b beside the old a. So
// the first comes after the other and has to see its b, for which it is run again.
func TestAReaderSeesTransactionsInTheirOrder(t *testing.T) {
	s := newServer(t, postgresDialect())
	const nameOf = `SELECT name FROM workspaces WHERE id = ?`
	runs := 0
	var seen string
	err := s.Update(t.Context(), func(tx *Tx) error {
		if err := tx.Row(nameOf, s.b[:]).Scan(&seen); err != nil {
			return err
		}
		if err := rename(tx, s.a, "after "+seen); err != nil {
			return err
		}
		if runs++; runs == 1 {
			s.does(t, `BEGIN ISOLATION LEVEL SERIALIZABLE;
				UPDATE workspaces SET name = 'new' WHERE id = '\x`+hex(s.b)+`'; COMMIT`)
			effort.Equal(t, s.names(t), []string{"named", "new"}, "the reader sees")
		}
		return nil
	})
	if got := s.names(t); err != nil || runs != 2 || !slices.Equal(got, []string{"after new", "new"}) {
		t.Errorf("%v after %d runs: %q", err, runs, got)
	}
}

func hex(id uuid.UUID) string { return strings.ReplaceAll(id.String(), "-", "") }

// raise makes a statement fail with a code, as if the database had found it.
func raise(t *Tx, code string) error {
	_, err := t.session.conn.ExecContext(t.ctx, `DO $$ BEGIN RAISE SQLSTATE '`+code+`'; END $$`)
	return err
}

// TestWhatEndsATransaction: whatever ends it, it is there once or not at all, and the error says so.
func TestWhatEndsATransaction(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		for _, c := range []struct {
			name string
			fail func(t *Tx, run int) error
			want error // nil: committed
			runs int   // at least
		}{
			{"nothing", func(*Tx, int) error { return nil }, nil, 1},
			{"a conflict, twice", func(t *Tx, run int) error {
				if run <= 2 {
					return raise(t, "40001")
				}
				return nil
			}, nil, 3},
			{"a deadlock", func(t *Tx, run int) error {
				if run == 1 {
					return raise(t, "40P01")
				}
				return nil
			}, nil, 2},
			{"a lost connection", func(t *Tx, run int) error {
				if run == 1 {
					_, err := t.Exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
					return err
				}
				return nil
			}, nil, 2},
			{"a lost connection that a sentinel hides", func(t *Tx, run int) error {
				if run == 1 {
					_, _ = t.Exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
					return ledger.ErrIllegal
				}
				return nil
			}, nil, 2},
			{"a conflict that is dropped", func(t *Tx, run int) error {
				if run == 1 {
					_ = raise(t, "40001")
				}
				return nil
			}, nil, 2},
			{"a conflict that a sentinel hides", func(t *Tx, run int) error {
				if run == 1 {
					_ = raise(t, "40001")
					return ledger.ErrIllegal
				}
				return nil
			}, nil, 2},
			{"a disk that is full for ever", func(t *Tx, _ int) error { return raise(t, "53100") }, ErrUnavailable, attemptsMax},
			{"a refusal by the rules", func(*Tx, int) error { return ledger.ErrIllegal }, ledger.ErrIllegal, 1},
			{"a broken constraint", func(t *Tx, _ int) error {
				_, err := t.Exec(`UPDATE workspaces SET held = -1`)
				return err
			}, errSomething, 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				runs := 0
				err := s.Update(t.Context(), func(tx *Tx) error {
					runs++
					if err := rename(tx, s.a, c.name); err != nil {
						return err
					}
					return c.fail(tx, runs)
				})
				effort.ErrorIf(t, runs < c.runs || c.want == nil && err != nil || c.want != nil && err == nil ||
					c.want != nil && !errors.Is(err, c.want) && c.want != errSomething,
					"got %v after %d runs, want %v after %d", err, runs, c.want, c.runs)
				effort.Is(t, slices.Contains(s.names(t), c.name), c.want == nil, "there", err)
				effort.ErrorIf(t, err != nil && errors.Is(err, ErrUnavailable) != (c.want == ErrUnavailable),
					"got %v", err)
			})
		}
	})
}

// errSomething stands for any error.
var errSomething = errors.New("some error")

// TestATransactionIsSerializableWhateverTheDefault sets the default of the database and of the role.
func TestATransactionIsSerializableWhateverTheDefault(t *testing.T) {
	s := newServer(t, postgresDialect())
	name := s.url[strings.LastIndex(s.url, "/")+1 : strings.Index(s.url, "?")]
	s.does(t, `ALTER DATABASE `+name+` SET default_transaction_isolation = 'read uncommitted'`)
	s.does(t, `CREATE ROLE weak LOGIN; ALTER ROLE weak SET default_transaction_isolation = 'read committed';
		GRANT SELECT ON ALL TABLES IN SCHEMA public TO weak`)
	for _, url := range []string{s.url, strings.Replace(s.url, "//rollcall@", "//weak@", 1)} {
		store, err := Open(t.Context(), url, book, Options{})
		effort.OK(t, err)
		for name, run := range map[string]func(context.Context, func(*Tx) error) error{
			"update": store.Update, "snapshot": store.Snapshot} {
			var level, fallback string
			err = run(t.Context(), func(t *Tx) error {
				return errors.Join(t.Row(`SHOW transaction_isolation`).Scan(&level),
					t.Row(`SHOW default_transaction_isolation`).Scan(&fallback))
			})
			weakened := strings.HasPrefix(fallback, "read ")
			if name == "snapshot" {
				weakened = fallback == "serializable" // readers set it for all that they ask
			}
			effort.ErrorIf(t, err != nil || level != "serializable" || !weakened,
				"%s: %v: %q, the default is %q", name, err, level, fallback)
		}
		effort.OK(t, store.Close())
	}
	s.does(t, `REVOKE ALL ON ALL TABLES IN SCHEMA public FROM weak; DROP ROLE weak`)
}

// TestAConnectionThatIsNotSerializableIsRefused asks for less, as a proxy might.
func TestAConnectionThatIsNotSerializableIsRefused(t *testing.T) {
	config := effort.Must(pgx.ParseConfig(postgres.Shared(t).URL("postgres")))(t)
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		return checkIsolation(ctx, c, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	}))
	effort.ErrIs(t, db.PingContext(t.Context()), ErrIsolation)
	effort.OK(t, db.Close())
}

func TestTheDatabaseIsKnownByItsVersion(t *testing.T) {
	for _, c := range []struct{ name, version, want, audits string }{
		{"cockroachdb", "CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/01, go1.23)", "cockroachdb",
			"AS OF SYSTEM TIME"},
		{"imitated", "CockroachDB, imitated", "cockroachdb", "READ ONLY; SET"},
		{"postgresql", "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu", "postgresql", "DEFERRABLE"},
	} {
		if got := dialectOf(c.version); got.name != c.want || !strings.Contains(got.snapshot, c.audits) {
			t.Errorf("%s: got %s, which audits by %q", c.name, got.name, got.snapshot)
		}
	}
}

func TestConnectionsSayWhoTheyAreAndWaitForNothingLong(t *testing.T) {
	s := newServer(t, postgresDialect())
	store := effort.Must(Open(t.Context(), s.url+"&statement_timeout=0", book, Options{}))(t)
	defer func() { _ = store.Close() }()
	show := func(run func(context.Context, func(*Tx) error) error, name string) (value string) {
		effort.ErrIs(t, run(t.Context(), func(t *Tx) error { return t.Row(`SHOW ` + name).Scan(&value) }), nil, name)
		return value
	}
	for _, c := range []struct{ name, written, read string }{
		{"application_name", "rollcall", "rollcall"}, {"statement_timeout", "10s", "10s"},
		{"lock_timeout", "500ms", "500ms"}, {"idle_in_transaction_session_timeout", "2s", "15s"},
		{"default_transaction_read_only", "off", "on"},
	} {
		effort.Is(t, show(store.Update, c.name), c.written, fmt.Sprintf("a writer's %s", c.name))
		effort.Is(t, show(store.View, c.name), c.read, fmt.Sprintf("a reader's %s", c.name))
	}
	effort.Is(t, show(store.Snapshot, "statement_timeout"), "0", "an audit's statement_timeout")
	effort.Is(t, show(store.View, "statement_timeout"), "10s", "after an audit")
}

// TestLostConnectionsAreReplaced ends all connections behind the ledger's back: no call sees it.
func TestLostConnectionsAreReplaced(t *testing.T) {
	s := newServer(t, postgresDialect())
	var busy sync.WaitGroup
	for range 4 { // so that all sessions are connected
		busy.Go(func() {
			for range 5 {
				_, err := granted(t.Context(), s.DB, s.a)
				added := grant(t.Context(), s.DB, s.a)
				effort.ErrIs(t, errors.Join(err, added), nil)
			}
		})
	}
	busy.Wait()
	for _, call := range []func() error{
		func() error { return s.Ping(t.Context()) },
		func() error { _, err := granted(t.Context(), s.DB, s.b); return err },
		func() error { return audit(t.Context(), s.DB) },
		func() error { return grant(t.Context(), s.DB, s.a) },
	} {
		s.does(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		effort.OK(t, call())
	}
	effort.Is(t, effort.Must(granted(t.Context(), s.DB, s.a))(t), 21)
}

// TestALostDatabaseIsToldAsSuch: away, each kind of call says that it changed nothing; back, it works.
func TestALostDatabaseIsToldAsSuch(t *testing.T) {
	s := newServer(t, postgresDialect())
	for name, call := range map[string]func() error{
		"write": func() error { return grant(t.Context(), s.DB, s.a) },
		"read":  func() error { _, err := granted(t.Context(), s.DB, s.a); return err },
		"audit": func() error { return audit(t.Context(), s.DB) },
	} {
		effort.OK(t, postgres.Shared(t).Crash())
		if err := call(); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
			t.Errorf("%s while it is away: got %v, want ErrUnavailable", name, err)
		}
		effort.OK(t, postgres.Shared(t).Restart(t.Context()))
		effort.ErrIs(t, call(), nil, name, "when it is back")
	}
}

// TestASilentDatabaseIsGivenUp stops the server's processes: connections stay, and nothing is answered.
func TestASilentDatabaseIsGivenUp(t *testing.T) {
	s := newServer(t, postgresDialect())
	for name, call := range map[string]func(context.Context) error{
		"write": func(ctx context.Context) error { return grant(ctx, s.DB, s.a) },
		"read":  func(ctx context.Context) error { _, err := granted(ctx, s.DB, s.a); return err },
		"audit": func(ctx context.Context) error { return audit(ctx, s.DB) },
	} {
		if err := call(t.Context()); err != nil { // so that there is a connection
			t.Fatal(err)
		}
		effort.OK(t, postgres.Shared(t).Pause())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := call(ctx)
		cancel()
		effort.ErrIs(t, err, context.DeadlineExceeded, name)
		effort.ErrIs(t, err, ErrUnavailable, name)
		effort.OK(t, postgres.Shared(t).Resume())
		effort.ErrIs(t, call(t.Context()), nil, name, "afterwards")
	}
	effort.Is(t, effort.Must(granted(t.Context(), s.DB, s.a))(t), 2, "the two grants that were answered")
}

// eachSession does something with each session, none of which is in use.
func (s *server) eachSession(do func(s *session)) {
	for _, p := range []*pool{s.writer, s.readers} {
		for range cap(p.free) {
			session := <-p.free
			do(session)
			p.free <- session
		}
	}
}

// shortens bounds the attempts, and COMMIT and ROLLBACK by even less.
func (s *server) shortens(attempt time.Duration) {
	s.eachSession(func(s *session) { s.dialect.attempt, s.dialect.ending = attempt, 20*time.Millisecond })
}

// TestAnAttemptEndsByItself: a caller that waits for ever gets an answer too.
func TestAnAttemptEndsByItself(t *testing.T) {
	s := newServer(t, postgresDialect())
	s.shortens(20 * time.Millisecond)
	effort.OK(t, postgres.Shared(t).Pause())
	wrote := grant(t.Context(), s.DB, s.a)
	_, read := granted(t.Context(), s.DB, s.a)
	listed := s.DB.Glance(t.Context(), count)
	effort.OK(t, postgres.Shared(t).Resume())
	for _, err := range []error{wrote, read, listed} {
		effort.ErrIs(t, err, ErrUnavailable)
	}
}

// TestAConnectionIsNotUsedForEver: it moves to the database's new nodes.
func TestAConnectionIsNotUsedForEver(t *testing.T) {
	for _, c := range []struct {
		name string
		long time.Duration
		same bool
	}{{"used for half an hour", lifeTime, true}, {"used for too long", 4, false}} {
		s := newServer(t, postgresDialect())
		db := effort.Must(connector(s.url, access{}))(t)
		d := s.dialect
		d.lifetime = c.long
		p := newPool(db, d, 1, func(uuid.UUID, time.Duration) {})
		var pids [2]int
		for i := range pids {
			session, err := p.take(t.Context(), false, 0)
			if err == nil {
				err = session.connect(t.Context())
			}
			if err == nil {
				err = (&Tx{ctx: t.Context(), session: session}).Row(`SELECT pg_backend_pid()`).Scan(&pids[i])
			}
			effort.OK(t, err)
			p.put(session)
		}
		effort.Is(t, pids[0] == pids[1], c.same, c.name, "connections", pids)
		effort.OK(t, p.close())
	}
}

// TestACallThatIsGivenUpLeavesNoTransactionBehind ends calls in the middle.
func TestACallThatIsGivenUpLeavesNoTransactionBehind(t *testing.T) {
	s := newServer(t, postgresDialect())
	answered := int64(0)
	for i := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			err := grant(ctx, s.DB, s.a)
			done <- err
		}()
		if i%2 == 0 {
			cancel()
		}
		if err := <-done; err == nil {
			answered++
		} else if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	b, err := granted(t.Context(), s.DB, s.a)
	effort.ErrorIf(t, err != nil || b != answered || answered < 20, "granted %d, acknowledged %d, %v", b, answered, err)
}

func TestRowsAreCutOffInTheMiddle(t *testing.T) {
	s := newServer(t, postgresDialect())
	rows := 0
	err := s.View(t.Context(), func(tx *Tx) error {
		return tx.Each(func(r *sql.Rows) error {
			if rows++; rows == 1 {
				s.does(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			}
			var n int
			return r.Scan(&n)
		}, `SELECT n FROM generate_series(1, 3000000) AS n`)
	})
	effort.ErrorIf(t, !errors.Is(err, ErrUnavailable) || rows >= 3_000_000, "got %v after %d rows", err, rows)
}

// TestAPanicLeavesNoTransactionBehind: the session is not used again.
func TestAPanicLeavesNoTransactionBehind(t *testing.T) {
	s := newServer(t, postgresDialect())
	for name, run := range map[string]func(context.Context, func(*Tx) error) error{
		"update": s.Update, "snapshot": s.Snapshot, "view": s.View} {
		func() {
			defer func() {
				effort.Not(t, recover(), nil, name, "no panic")
			}()
			_ = run(t.Context(), func(t *Tx) error {
				var n int
				if err := t.Row(`SELECT 1`).Scan(&n); err != nil {
					return err
				}
				panic("a fault of ours")
			})
		}()
		s.eachSession(func(s *session) {
			effort.ErrorIf(t, s.conn != nil && s.connReports(func(c any) bool {
				return c.(*stdlib.Conn).Conn().PgConn().TxStatus() != 'I'
			}), "%s: a session is given back inside a transaction", name)
		})
	}
}

// TestAReadingThatIsSilentInTheMiddleEnds: the database stops when the transaction of a request has begun.
func TestAReadingThatIsSilentInTheMiddleEnds(t *testing.T) {
	s := newServer(t, postgresDialect())
	s.shortens(200 * time.Millisecond)
	paused := false
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // for a ledger that waits for ever
	defer cancel()
	err := s.Glance(ctx, func(tx *Tx) error {
		if err := postgres.Shared(t).Pause(); err != nil {
			return err
		}
		paused = true
		return count(tx)
	})
	if paused {
		effort.OK(t, postgres.Shared(t).Resume())
	}
	effort.ErrorIf(t, !errors.Is(err, ErrUnavailable) || ctx.Err() != nil,
		"got %v, want ErrUnavailable, the caller's time: %v", err, ctx.Err())
}

// TestACommitThatIsSilentEnds: the database stops before it, and nobody knows.
func TestACommitThatIsSilentEnds(t *testing.T) {
	s := newServer(t, postgresDialect())
	s.shortens(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // for a ledger that waits for ever
	defer cancel()
	runs := 0
	err := s.Update(ctx, func(tx *Tx) error {
		err := rename(tx, s.a, "in doubt")
		if runs++; runs == 1 {
			err = errors.Join(err, postgres.Shared(t).Pause())
		}
		return err
	})
	if runs > 0 {
		effort.OK(t, postgres.Shared(t).Resume())
	}
	effort.ErrorIf(t, !errors.Is(err, ErrUnknown) || ctx.Err() != nil,
		"got %v after %d runs, want ErrUnknown, the caller's time: %v", err, runs, ctx.Err())
}

// TestACommitThatTheCallerStops: whoever stops waiting when all is written doesn't keep it from being committed.
func TestACommitThatTheCallerStops(t *testing.T) {
	onServer(t, func(t *testing.T, s *server) {
		ctx, stop := context.WithCancel(t.Context())
		err := s.Update(ctx, func(tx *Tx) error {
			defer stop()
			return rename(tx, s.a, "changed by us")
		})
		got := s.names(t)
		effort.ErrorIf(t, err != nil || got[0] != "changed by us", "got %q, %v", got, err)
	})
}

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// soon is the wait of ledgers whose retries are tried, and not how long they take.
const soon = time.Millisecond

// book is the schema of a ledger.
var book = Schema{Files: os.DirFS("..").(fs.ReadDirFS), Folder: "migrations", Version: 1}

// newLedger returns the URL of an empty ledger on the server of this run.
func newLedger(t testing.TB) string {
	t.Helper()
	return postgres.Filled(t, func(ctx context.Context, url string) error { return Migrate(ctx, url, book) })
}

func addWorkspace(t *testing.T, db *DB, name string) uuid.UUID {
	t.Helper()
	id := uuid.New()
	effort.OK(t, db.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO workspaces (id, name, created) VALUES (?, ?, {now})`, id[:], name)
		return err
	}))
	return id
}

// grant adds a credit to a workspace.
func grant(ctx context.Context, db *DB, workspace uuid.UUID) error {
	return db.Update(ctx, func(tx *Tx) error {
		_, err := tx.Exec(`UPDATE workspaces SET granted = granted + 1, available = available + 1 WHERE id = ?`, workspace[:])
		return err
	})
}

// granted reads how many credits a workspace was granted.
func granted(ctx context.Context, db *DB, workspace uuid.UUID) (n int64, err error) {
	err = db.View(ctx, func(tx *Tx) error {
		return tx.Row(`SELECT granted FROM workspaces WHERE id = ?`, workspace[:]).Scan(&n)
	})
	return n, err
}

// audit and glance read one moment of the ledger.
func audit(ctx context.Context, db *DB) error { return db.Snapshot(ctx, count) }

func count(tx *Tx) error {
	var n int
	return tx.Row(`SELECT count(*) FROM workspaces`).Scan(&n)
}

// openForTest opens an embedded ledger with one workspace.
func openForTest(t *testing.T) (*DB, uuid.UUID) {
	t.Helper()
	db, err := Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"), book, Options{RetryWait: soon})
	effort.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, addWorkspace(t, db, "desk")
}
